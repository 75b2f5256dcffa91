//! Checks and escapes the characters of texts.

/// The characters that a text may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedChars {
    /// Every character except NUL, which PostgreSQL cannot store.
    NonNul,
    /// Every character except those that [`is_hidden`] finds. For names that are shown to people.
    Printable,
    /// Letters, digits and `_`. For ids and prefixes.
    Word,
    /// For slugs of permissions.
    Slug,
    /// For external ids, which identify end users.
    ExternalId,
}

impl AllowedChars {
    pub fn contains(self, c: char) -> bool {
        match self {
            Self::NonNul => c != '\0',
            Self::Printable => !is_hidden(c),
            Self::Word => c.is_ascii_alphanumeric() || c == '_',
            Self::Slug => c.is_ascii_alphanumeric() || "_:-.*".contains(c),
            Self::ExternalId => c.is_ascii_alphanumeric() || "_.-".contains(c),
        }
    }

    /// Returns the rule as the end of a sentence that begins with the name of a field.
    pub fn rule(self) -> &'static str {
        match self {
            Self::NonNul => "must not contain the character NUL",
            Self::Printable => {
                "must not contain control characters or characters that change the direction of text"
            }
            Self::Word => "must contain only letters, digits and _",
            Self::Slug => "must contain only letters, digits and _ : - . *",
            Self::ExternalId => "must contain only letters, digits and _ . -",
        }
    }
}

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
