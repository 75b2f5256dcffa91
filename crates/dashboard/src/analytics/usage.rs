//! The usage of a key, an identity, an API or a namespace in this month, for its page.

use super::super::charts::BarChart;
use super::super::page_request::WorkspaceRequest;
use super::comparison::Comparison;
use super::figures::Figure;
use super::range::{THIS_MONTH, TimeRange};
use super::selection::Selection;
use super::traffic::build_charts;

/// The key figures of this month, compared with the last one.
pub struct UsagePanel {
    pub figures: Vec<Figure>,
    /// What is compared.
    pub text: String,
    /// The requests of each day, by outcome.
    pub chart: BarChart,
}

/// The section of a page about usage.
pub struct UsageSection {
    /// `None`: the events cannot be read.
    pub panel: Option<UsagePanel>,
    /// The same in the analytics page.
    pub analytics_url: String,
    /// The single requests in the log.
    pub logs_url: String,
}

impl UsageSection {
    /// Loads the usage. Events are stored separately, so they may be unavailable while the rest of a page is available.
    pub async fn load(request: &WorkspaceRequest, selection: &Selection) -> Self {
        let now = request.page_request.app.context.clock.now();
        let range = TimeRange::named(THIS_MONTH, now);
        let path_of = |page: &str, range: &[(&str, &str)]| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            let fields = selection.to_fields().into_iter().filter(|(_, value)| !value.is_empty());
            query.extend_pairs(range).extend_pairs(fields);
            request.workspace_path(&format!("/{page}?{}", query.finish()))
        };
        let of_this_month = [("range", THIS_MONTH)];
        let panel = match Comparison::load(request, selection, &range).await {
            Ok(Comparison { figures, text, series, .. }) => {
                let (mut chart, _) = build_charts(&series, &range, selection.kind, "");
                chart.zoom_path = Some(path_of("analytics", &[]));
                Some(UsagePanel { figures, text, chart })
            }
            Err(error) => {
                tracing::warn!(error = %error, "failed to read usage: {error}");
                None
            }
        };
        Self {
            panel,
            analytics_url: path_of("analytics", &of_this_month),
            logs_url: path_of("logs", &of_this_month),
        }
    }
}
