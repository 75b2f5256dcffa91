//! Verifying a key: the same verification as through the API, which is counted and recorded.

use domain::first_steps::{FirstStep, FirstSteps};
use domain::keys::{self, VerificationCode, VerifyRequest, VerifyResult};
use domain::permission::Action;
use foundation::error::Error;
use foundation::id::KeyId;
use foundation::model::AllowedChars;
use foundation::secret::Plaintext;

use super::super::field_reader::FieldReader;
use super::super::form::split_form_errors;
use super::super::format::format_grouped;
use super::super::keys::explain_outcome;
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, render_invalid_page, render_page};
use super::recent::RecentVerifications;
use super::{GetStartedPage, snippets};

/// The length of a key that can be verified, as in `keys.verifyKey`.
const KEY_MAX: usize = 512;

/// The result of a verification, explained.
pub struct VerificationOutcome {
    pub code: &'static str,
    pub is_valid: bool,
    pub meaning: &'static str,
    pub todo: &'static str,
    /// The key, unless it was not found.
    pub key_id: Option<KeyId>,
    pub credits: Option<String>,
}

pub async fn verify(request: WorkspaceRequest) -> PageResult {
    request.caller.require_on_any(Action::VerifyKey)?;
    let (app, base_url) = (&request.page_request.app, &request.page_request.base_url);
    let key = request.page_request.form.text("key").trim();
    match split_form_errors(read_key(key))? {
        Ok(sent) => {
            // Boxed: the future is large.
            let verified = Box::pin(keys::verify(&app.keys, &request.caller, sent)).await?;
            let mut page = GetStartedPage::new(&request, base_url).await?;
            key.clone_into(&mut page.verified_key);
            page.snippets = snippets::build(base_url, Some(key));
            page.recent = RecentVerifications::of_result(&request, &verified).await;
            if verified.resolved.is_some() {
                // Its event is yet to be written.
                let steps = page.steps;
                let is_completed = |step| step == FirstStep::VerifyKey || steps.contains(step);
                page.steps = FirstSteps::filter(is_completed);
            }
            page.outcome = Some(VerificationOutcome::new(&verified));
            render_page(&page)
        }
        Err(errors) => {
            let mut page = GetStartedPage::new(&request, base_url).await?;
            key.clone_into(&mut page.verified_key);
            page.errors = errors;
            render_invalid_page(&page)
        }
    }
}

/// Reads the verification of a key: with its own limits, and a cost of one credit.
fn read_key(key: &str) -> Result<VerifyRequest, Error> {
    let mut fields = FieldReader::default();
    let key = fields.text("key", key, 1..=KEY_MAX, AllowedChars::NonNul);
    fields.finish(VerifyRequest {
        key: Plaintext::from(key),
        api: None,
        permissions: None,
        cost: None,
        ratelimits: Vec::new(),
        auto_applies_limits: true,
        address: None,
        migration: None,
        tags: Vec::new(),
        is_refused_by_policy: false,
    })
}

impl VerificationOutcome {
    fn new(verified: &VerifyResult) -> Self {
        let code = verified.code.as_str();
        let (meaning, todo) = match verified.code {
            VerificationCode::NotFound => (
                "No key of this workspace matches.",
                "Check that you pasted the full key. A deleted key is not found either.",
            ),
            _ => explain_outcome(code),
        };
        let key = verified.resolved.as_ref().map(|resolved| &resolved.value.key);
        Self {
            code,
            is_valid: verified.code == VerificationCode::Valid,
            meaning,
            todo,
            key_id: key.map(|key| KeyId::from(key.id())),
            credits: verified.credits.map(format_grouped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_rejected_when_its_length_is_out_of_bounds() {
        for (length, is_valid) in [(0, false), (1, true), (KEY_MAX, true), (KEY_MAX + 1, false)] {
            assert_eq!(read_key(&"é".repeat(length)).is_ok(), is_valid, "{length}");
        }
    }
}
