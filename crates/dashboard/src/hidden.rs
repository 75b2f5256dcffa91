//! Escapes hidden characters in stored texts, which change how the surrounding text is displayed.
//!
//! New names cannot contain them, but older names may, and descriptions and metadata are not restricted.

use foundation::model::is_hidden;

/// Escapes hidden characters in the text of a page, as `\u{202e}`. Tags and `textarea` elements stay unchanged, because
/// forms submit their values.
pub fn escape_hidden(html: String) -> String {
    if html.chars().all(is_visible) {
        return html;
    }
    let mut page = String::with_capacity(html.len() + 64);
    let (mut is_tag, mut is_field) = (false, false);
    for (at, c) in html.char_indices() {
        match c {
            '<' => {
                is_tag = true;
                is_field |= html[at..].starts_with("<textarea");
                is_field &= !html[at..].starts_with("</textarea");
            }
            '>' => is_tag = false,
            _ => {}
        }
        match is_tag || is_field || is_visible(c) {
            true => page.push(c),
            false => page.extend(c.escape_unicode()),
        }
    }
    page
}

fn is_visible(c: char) -> bool {
    !is_hidden(c) || matches!(c, '\n' | '\r' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_hidden_keeps_tags_and_textareas() {
        let page = "<p title=\"a\u{202e}b\">a\u{202e}b &#60; é 漢\u{200d}🦀</p>\n\t<textarea>\u{1b}a</textarea>\u{9b}";

        assert_eq!(
            escape_hidden(page.to_owned()),
            "<p title=\"a\u{202e}b\">a\\u{202e}b &#60; é 漢\u{200d}🦀</p>\n\t<textarea>\u{1b}a</textarea>\\u{9b}"
        );
    }

    #[test]
    fn escape_hidden_returns_page_unchanged_when_nothing_is_hidden() {
        let page = "<p>a</p>\r\n\t<textarea>b</textarea>";

        assert_eq!(escape_hidden(page.to_owned()), page);
    }
}
