//! Keys, as people look for them, make, change and end them.

mod acts;
mod change;
mod credits;
mod deleted;
mod list;
mod live_search;
mod reveal;
mod search_all;
mod show;
mod why;

use super::{Browser, EMAIL, HOSTILE_NAME, PASSWORD, between, form_encode, workspace_path};
use crate::support::Reply;

/// Where an answer sends.
fn to(reply: &Reply) -> &str {
    assert_eq!(reply.status, 303, "{}", reply.text);
    reply.headers["location"].to_str().expect("a text")
}

/// The key that a page shows.
fn secret(page: &Reply) -> String {
    assert_eq!(page.status, 200, "{}", page.text);
    between(&page.text, "<code id=\"secret\">", "<").to_owned()
}

/// The id of the key that a page shows.
fn id(page: &Reply) -> String {
    assert_eq!(page.status, 200, "{}", page.text);
    let link = between(&page.text, "href=\"/dashboard/ws_default/keys/key_", "\"");
    format!("key_{link}")
}

/// A field of a page as a browser would send it.
fn field(page: &str, name: &str) -> String {
    let value = between(page, &format!("name=\"{name}\" value=\""), "\"");
    value
        .replace("&#34;", "\"")
        .replace("&#39;", "'")
        .replace("&#60;", "<")
        .replace("&#62;", ">")
        .replace("&#38;", "&")
}
