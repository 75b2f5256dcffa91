//! Translates search texts for the indexes that find rows by any three characters of their texts.
//!
//! A pattern matches every row that contains the text, and may match more: queries compare the text itself too.

use std::collections::BTreeSet;

/// The number of characters by which the indexes find texts.
const GRAM_CHARS: usize = 3;
/// The maximum number of characters of a text in a pattern. More hardly make a result smaller.
const PATTERN_CHARS_MAX: usize = 64;

/// Returns the pattern of `LIKE` for a text in lower case. `None` if Postgres would read the whole index: it knows only words
/// of letters and digits, with two spaces before and one after each.
pub fn to_like_pattern(text: &str) -> Option<String> {
    let text: Vec<char> = text.chars().take(PATTERN_CHARS_MAX).collect();
    if !has_word_gram(&text) {
        return None;
    }
    let mut pattern = String::from("%");
    for c in text {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    Some(pattern)
}

/// Returns whether a part of a text contains three characters of a word, including the spaces around words. What is before
/// and after the part is unknown, so a word at its beginning or end may continue there.
fn has_word_gram(text: &[char]) -> bool {
    let (mut chars, mut is_after_separator) = (0, false);
    for c in text {
        if c.is_alphanumeric() {
            chars += if chars == 0 && is_after_separator { 3 } else { 1 };
        } else {
            if chars > 0 && chars + 1 >= GRAM_CHARS {
                return true;
            }
            (chars, is_after_separator) = (0, true);
        }
        if chars >= GRAM_CHARS {
            return true;
        }
    }
    false
}

/// Returns the full-text query of SQLite for a text in lower case. `None` if it is too short.
pub fn to_fts_pattern(text: &str) -> Option<String> {
    let chars: Vec<char> = text.chars().take(PATTERN_CHARS_MAX).collect();
    let grams: BTreeSet<&[char]> = chars.windows(GRAM_CHARS).collect();
    let quote = |gram: &[char]| {
        let gram: String = gram.iter().collect();
        format!("\"{}\"", gram.replace('"', "\"\""))
    };
    let grams: Vec<String> = grams.into_iter().map(quote).collect();
    (!grams.is_empty()).then(|| grams.join(" AND "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_pattern_is_none_when_text_has_no_three_characters_of_a_word() {
        for short in ["", "a", "ab", "é", "--", "----", "- -", "支付", "a-", "%"] {
            assert_eq!(to_like_pattern(short), None, "{short}");
        }
        for long in ["abc", "ab-", "-a", "a b", "支付宝", "x--y", "__a"] {
            assert!(to_like_pattern(long).is_some(), "{long}");
        }
    }

    #[test]
    fn like_pattern_escapes_wildcards() {
        assert_eq!(to_like_pattern("50%_of\\it"), Some("%50\\%\\_of\\\\it%".to_owned()));
    }

    #[test]
    fn fts_pattern_requires_every_three_characters() {
        assert_eq!(to_fts_pattern("ab"), None);
        assert_eq!(to_fts_pattern("abc"), Some("\"abc\"".to_owned()));
        assert_eq!(to_fts_pattern("a\"bc"), Some("\"\"\"bc\" AND \"a\"\"b\"".to_owned()));
        assert_eq!(to_fts_pattern("aaaa"), Some("\"aaa\"".to_owned()));
    }

    #[test]
    fn patterns_have_the_first_characters_of_a_long_text() {
        let alphabet: String = ('a'..='z').chain('0'..='9').collect();
        let long = alphabet.repeat(1_000);

        let expected = format!("%{}{}%", alphabet, &alphabet[..PATTERN_CHARS_MAX - alphabet.len()]);
        assert_eq!(to_like_pattern(&long), Some(expected));
        let grams = to_fts_pattern(&long).map(|query| query.matches(" AND ").count() + 1);
        assert_eq!(grams, Some(alphabet.len()));
    }
}
