//! The confirmation page for actions that affect others.

use askama::Template;

use super::layout::Layout;

#[derive(Template)]
#[template(path = "confirm.html")]
pub struct ConfirmPage {
    pub layout: Layout,
    /// The question in the heading.
    pub question: String,
    /// The consequences, one paragraph each.
    pub consequences: Vec<String>,
    /// The URL to which the form is submitted.
    pub action_url: String,
    /// Further form fields: names and values.
    pub fields: Vec<(&'static str, String)>,
    pub button: &'static str,
    /// The URL of the page to which *Cancel* leads.
    pub back_url: String,
    /// What that page is about.
    pub back_label: String,
}
