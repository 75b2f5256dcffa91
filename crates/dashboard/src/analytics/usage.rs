//! The usage of a key, an identity or an API in this month, for its page.

use super::super::page_request::WorkspaceRequest;
use super::comparison::Comparison;
use super::figures::Figure;
use super::range::{THIS_MONTH, TimeRange};
use super::selection::Selection;

/// The key figures of this month, compared with the last one.
pub struct UsagePanel {
    pub figures: Vec<Figure>,
    /// What is compared.
    pub text: String,
}

/// The section of a page about usage.
pub struct UsageSection {
    /// `None`: the events cannot be read.
    pub panel: Option<UsagePanel>,
    /// The same in the analytics page.
    pub analytics_url: String,
}

impl UsageSection {
    /// Loads the usage. Events are stored separately, so they may be unavailable while the rest of a page is available.
    pub async fn load(request: &WorkspaceRequest, selection: &Selection) -> Self {
        let now = request.page_request.app.context.clock.now();
        let range = TimeRange::named(THIS_MONTH, now);
        let panel = match Comparison::load(request, selection, &range).await {
            Ok(Comparison { figures, text, .. }) => Some(UsagePanel { figures, text }),
            Err(error) => {
                tracing::warn!(error = %error, "failed to read usage: {error}");
                None
            }
        };
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("range", THIS_MONTH);
        query.extend_pairs(selection.to_fields().iter().filter(|(_, value)| !value.is_empty()));
        let analytics_url = request.workspace_path(&format!("/analytics?{}", query.finish()));
        Self { panel, analytics_url }
    }
}
