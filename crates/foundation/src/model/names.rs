//! Checks and escapes the characters of names that are shown to people.

/// Returns whether a character changes how the surrounding text is displayed: a control character, or one that sets the
/// direction of writing or breaks a line. Terminals and web pages obey them.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the text with such characters escaped, as `\u{202e}`.
pub fn escape_hidden(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) {
            true => escaped.extend(c.escape_unicode()),
            false => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_hidden_keeps_visible_characters() {
        let name = "a\u{1b}[2J\nb\u{9b}1m\u{202e}c\u{2066}d\u{200f} é 漢\u{200d}🦀";

        assert_eq!(
            escape_hidden(name),
            "a\\u{1b}[2J\\u{a}b\\u{9b}1m\\u{202e}c\\u{2066}d\\u{200f} é 漢\u{200d}🦀"
        );
    }
}
