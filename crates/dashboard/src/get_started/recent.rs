//! The latest verifications of the key that was verified. Events are written within about a second, so the page looks again
//! until it has found that of its verification.

use domain::analytics_access;
use domain::keys::{self, DecryptMode, VerifyResult};
use foundation::error::Result;
use foundation::id::{ApiId, KeyId};

use super::super::keys::VerificationEventRow;
use super::super::page_request::WorkspaceRequest;

/// The number of verifications that are shown.
const ROWS_MAX: usize = 5;
/// How often the page looks for the event of its verification, once a second.
const ATTEMPTS_MAX: usize = 10;

pub struct RecentVerifications {
    /// The events, the latest first; `None` if they cannot be read.
    pub rows: Option<Vec<VerificationEventRow>>,
    /// The request id of the verification.
    pub request_id: String,
    /// Whether its event is still to be written.
    pub is_pending: bool,
    /// The page that looks for the event.
    pub refresh_path: String,
    /// The page that the browser loads after a second, if it is to look again.
    pub next_path: Option<String>,
}

impl RecentVerifications {
    /// Loads the events of the key that the query names, if it names one.
    pub async fn from_query(request: &WorkspaceRequest) -> Result<Option<Self>> {
        let (app, query) = (&request.page_request.app, &request.page_request.query);
        let id = query.text("key");
        if id.is_empty() {
            return Ok(None);
        }
        let id = KeyId::from(id);
        let found = keys::get(&app.keys, &request.caller, &id, DecryptMode::None).await?;
        let attempt = query.text("attempt").parse().unwrap_or(ATTEMPTS_MAX);
        let api = &found.stored.key.api_id;
        Ok(Some(Self::load(request, (api, &id), query.text("request"), attempt).await))
    }

    /// Loads the events of the key that the request of the page has verified. `None` if there is no such key.
    pub async fn of_result(request: &WorkspaceRequest, verified: &VerifyResult) -> Option<Self> {
        let key = &verified.resolved.as_ref()?.value.key;
        let key_id = KeyId::from(key.id());
        let key = (key.api_id(), &key_id);
        Some(Self::load(request, key, request.caller.request_id.as_str(), 0).await)
    }

    /// Loads the events of a key of an API.
    async fn load(
        request: &WorkspaceRequest,
        (api, key): (&ApiId, &KeyId),
        request_id: &str,
        attempt: usize,
    ) -> Self {
        let app = &request.page_request.app;
        let found =
            analytics_access::list_recent_by_key(&app.analytics, &request.caller, api, key).await;
        let now = app.context.clock.now();
        let rows = match found {
            Ok(events) => {
                let events = events.into_iter().take(ROWS_MAX);
                Some(events.map(|event| VerificationEventRow::new(event, now)).collect())
            }
            Err(error) => {
                tracing::warn!(error = %error, "failed to read events of a key: {error}");
                None
            }
        };
        let is_request = |row: &VerificationEventRow| row.request == request_id;
        let is_pending = !request_id.is_empty()
            && rows.as_ref().is_some_and(|rows: &Vec<_>| !rows.iter().any(is_request));
        let path = |attempt: usize| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.append_pair("key", key.as_str()).append_pair("request", request_id);
            query.append_pair("attempt", &attempt.to_string());
            request.workspace_path(&format!("/get-started?{}", query.finish()))
        };
        Self {
            rows,
            request_id: request_id.to_owned(),
            is_pending,
            // Another address each time: a browser does not load a page again to go to a place in it.
            refresh_path: path(attempt.max(ATTEMPTS_MAX).saturating_add(1)),
            next_path: (is_pending && attempt < ATTEMPTS_MAX).then(|| path(attempt + 1)),
        }
    }
}
