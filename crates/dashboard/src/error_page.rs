//! The page of an error code, which needs no session: the errors of the API link to it.

use askama::Template;
use axum::body::Body;
use axum::http::Response;
use axum::response::IntoResponse;
use foundation::error::Code;
use pulldown_cmark::{Event, Parser, html};

use super::layout::Layout;
use super::{headers, render_page};

const DOCUMENT: &str = include_str!("../../../docs/errors.md");

#[derive(Template)]
#[template(path = "error_page.html")]
struct ErrorPage {
    layout: Layout,
    code: Code,
    /// The section of the code, as HTML.
    text: String,
}

/// Renders the page that explains an error.
pub fn render_error_page(code: Code) -> Response<Body> {
    let page = ErrorPage {
        layout: Layout::bare("Errors").about(code.name()),
        code,
        text: render_markdown(error_section(code).unwrap_or_default()),
    };
    headers::finish_public(render_page(&page).unwrap_or_else(IntoResponse::into_response))
}

/// Returns the Markdown text of a code's section in `docs/errors.md`.
pub fn error_section(code: Code) -> Option<&'static str> {
    let heading = format!("\n## {}\n", code.name());
    let (_, rest) = DOCUMENT.split_once(&heading)?;
    Some(rest.split("\n## ").next().unwrap_or(rest).trim())
}

/// Converts Markdown to HTML. HTML in it is shown as text.
fn render_markdown(text: &str) -> String {
    let events = Parser::new(text).map(|event| match event {
        Event::Html(tag) | Event::InlineHtml(tag) => Event::Text(tag),
        other => other,
    });
    let mut rendered = String::with_capacity(text.len() * 2);
    html::push_html(&mut rendered, events);
    rendered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_html_without_tags_of_its_own() {
        let text = "A *short* text with `a<b>` and <b>no</b> tag.\n\n- one\n- two";

        let expected = "<p>A <em>short</em> text with <code>a&lt;b&gt;</code> and &lt;b&gt;no&lt;/b&gt; tag.</p>\n\
            <ul>\n<li>one</li>\n<li>two</li>\n</ul>\n";
        assert_eq!(render_markdown(text), expected);
    }

    #[test]
    fn section_ends_before_the_next_code() {
        for code in Code::ALL {
            let section = error_section(*code).expect("a section");
            assert!(section.len() > 40 && !section.contains("\n## "), "{}", code.name());
        }
    }
}
