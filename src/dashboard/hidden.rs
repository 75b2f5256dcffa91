//! Characters in stored texts that change how the text around them is shown.
//!
//! New names hold none, but names of before may, and descriptions and metadata are free.

use foundation::model::is_hidden;

/// Writes such characters out in the text of a page, as `\u{202e}`. They stay in tags and in `textarea` elements, whose
/// values come back with a form.
pub fn write_out(html: String) -> String {
    if html.chars().all(is_shown) {
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
        match is_tag || is_field || is_shown(c) {
            true => page.push(c),
            false => page.extend(c.escape_unicode()),
        }
    }
    page
}

fn is_shown(c: char) -> bool {
    !is_hidden(c) || matches!(c, '\n' | '\r' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_out_changes_texts_and_no_values() {
        let page = "<p title=\"a\u{202e}b\">a\u{202e}b &#60; é 漢\u{200d}🦀</p>\n\t<textarea>\u{1b}a</textarea>\u{9b}";

        assert_eq!(
            write_out(page.to_owned()),
            "<p title=\"a\u{202e}b\">a\\u{202e}b &#60; é 漢\u{200d}🦀</p>\n\t<textarea>\u{1b}a</textarea>\\u{9b}"
        );
    }

    #[test]
    fn write_out_leaves_a_page_without_such_characters_alone() {
        let page = "<p>a</p>\r\n\t<textarea>b</textarea>";

        assert_eq!(write_out(page.to_owned()), page);
    }
}
