//! What may stand in a name that people read.

/// Whether a character changes how the text around it is shown: a control character, or one that sets the direction of
/// writing or breaks a line. Terminals and pages obey them.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with such characters written out, as `\u{202e}`.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_writes_out_what_terminals_obey_and_nothing_else() {
        let name = "a\u{1b}[2J\nb\u{9b}1m\u{202e}c\u{2066}d\u{200f} é 漢\u{200d}🦀";

        assert_eq!(
            shown(name),
            "a\\u{1b}[2J\\u{a}b\\u{9b}1m\\u{202e}c\\u{2066}d\\u{200f} é 漢\u{200d}🦀"
        );
    }
}
