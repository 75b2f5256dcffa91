//! Live refresh of the analytics page: htmx replaces the figures and charts by those of the same page.

use foundation::clock::Timestamp;

use super::super::page_request::WorkspaceRequest;
use super::range::TimeRange;

/// The field that remembers live refresh.
const LIVE: &str = "live";

/// The button that starts and stops live refresh. It is hidden without the script.
pub struct LiveToggle {
    pub is_on: bool,
    /// The path of the page with live refresh.
    pub on_path: String,
    /// The path of the page without it.
    pub off_path: String,
}

impl LiveToggle {
    /// Creates the button. `None`: the range does not include now, so nothing would change.
    pub fn new(request: &WorkspaceRequest, range: &TimeRange, now: Timestamp) -> Option<Self> {
        if !range.includes(now) {
            return None;
        }
        let query = &request.page_request.query;
        let fields = || query.query_without(&[LIVE, "notice"]);
        let path = |query: String| request.workspace_path(&format!("/analytics?{query}"));
        Some(Self {
            is_on: query.text(LIVE) == "on",
            on_path: path(fields().append_pair(LIVE, "on").finish()),
            off_path: path(fields().finish()),
        })
    }
}
