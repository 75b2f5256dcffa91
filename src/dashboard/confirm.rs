//! The page that asks before something is done that others will notice.

use askama::Template;

use super::layout::Layout;

#[derive(Template)]
#[template(path = "confirm.html")]
pub struct Confirm {
    pub shell: Layout,
    /// What is asked.
    pub question: String,
    /// What it would come to, a paragraph each.
    pub told: Vec<String>,
    /// Where the form is sent.
    pub act: String,
    /// What else is sent: names and values.
    pub fields: Vec<(&'static str, String)>,
    pub button: &'static str,
    /// Where to go instead.
    pub back: String,
}
