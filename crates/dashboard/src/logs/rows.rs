//! The rows of the log.

use domain::analytics_access::{RecentCheck, RecentVerification};
use domain::apis;
use domain::keys::VerificationCode;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId, NamespaceId};

use super::super::format::{
    TimeLabel, format_grouped, format_latency, format_moment_to_ms, outcome_label,
};
use super::super::key_names::KeyNames;
use super::super::namespace_names::NamespaceNames;
use super::super::page_request::WorkspaceRequest;

pub struct VerificationTableRow {
    pub request_id: String,
    pub at: TimeLabel,
    pub outcome: String,
    pub is_valid: bool,
    pub key_id: String,
    pub key: String,
    pub api_id: String,
    pub api: String,
    pub identity: String,
    pub region: String,
    pub latency: String,
}

impl VerificationTableRow {
    pub async fn list(
        request: &WorkspaceRequest,
        events: &[RecentVerification],
    ) -> Result<Vec<Self>> {
        let mut keys: Vec<KeyId> = events.iter().map(|event| event.key_id.clone()).collect();
        let mut ids: Vec<ApiId> = events.iter().map(|event| event.api_id.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        ids.sort_unstable();
        ids.dedup();
        let context = &request.page_request.app.context;
        let keys = KeyNames::load(request, keys).await?;
        let apis = apis::load_names(context, &request.caller, &ids).await?;
        let row = |event: &RecentVerification| Self {
            at: exact_time(event.occurred_at),
            is_valid: event.outcome == VerificationCode::Valid.as_str(),
            outcome: outcome_label(event.outcome.clone()),
            key: keys.label(&event.key_id),
            key_id: event.key_id.to_string(),
            api: apis.get(&event.api_id).cloned().unwrap_or_else(|| event.api_id.to_string()),
            api_id: event.api_id.to_string(),
            identity: event.external_id.clone().unwrap_or_default(),
            region: event.region.clone(),
            latency: format_latency(event.latency_us),
            request_id: event.request_id.clone(),
        };
        Ok(events.iter().map(row).collect())
    }
}

pub struct CheckTableRow {
    /// Identifies the row in the page: the checks of one request have the same request id.
    pub row_id: String,
    pub request_id: String,
    pub at: TimeLabel,
    pub is_admitted: bool,
    pub identifier: String,
    /// The name of the namespace, or its id if it is deleted.
    pub namespace: String,
    /// `None`: it is deleted.
    pub namespace_path: Option<String>,
    pub cost: String,
    pub limit: String,
    pub remaining: String,
    pub latency: String,
}

impl CheckTableRow {
    pub async fn list(request: &WorkspaceRequest, events: &[RecentCheck]) -> Result<Vec<Self>> {
        let ids = events.iter().map(|event| NamespaceId::from(&*event.namespace_id)).collect();
        let names = NamespaceNames::load(request, ids).await?;
        let mut of_request = 0;
        let row = |(index, event): (usize, &RecentCheck)| {
            let is_next = index > 0 && events[index - 1].request_id == event.request_id;
            of_request = if is_next { of_request + 1 } else { 0 };
            let id = &event.namespace_id;
            let path = || request.workspace_path(&format!("/ratelimits/{id}"));
            Self {
                row_id: format!("{}-{of_request}", event.request_id),
                request_id: event.request_id.clone(),
                at: exact_time(event.occurred_at),
                is_admitted: event.passed,
                identifier: event.identifier.clone(),
                namespace: names.label(id),
                namespace_path: names.name(id).map(|_| path()),
                cost: format_grouped(event.tokens),
                limit: format_grouped(event.limit),
                remaining: format_grouped(event.remaining),
                latency: format_latency(event.latency_us),
            }
        };
        Ok(events.iter().enumerate().map(row).collect())
    }
}

/// Labels a time by itself: relative times of neighboring rows are the same.
fn exact_time(at: Timestamp) -> TimeLabel {
    let exact = TimeLabel::new(at, at).exact;
    TimeLabel { exact, text: format_moment_to_ms(at) }
}
