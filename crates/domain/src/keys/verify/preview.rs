//! Previews of verifications.

use foundation::error::Result;
use foundation::id::ApiId;
use foundation::secret::KeyHash;

use super::{VerifyRequest, VerifyResult, evaluate};
use crate::admission::ConsumeMode;
use crate::caller::Caller;
use crate::keys::{Keys, find, reason};

/// What a verification would return now.
#[derive(Debug, Default)]
pub struct VerifyPreview {
    pub result: VerifyResult,
    /// Why the key would be rejected, as the event of the verification would tell it.
    pub reason: Option<Box<str>>,
    /// The API of a key of the caller's workspace that the caller may not verify, and which is therefore not found.
    pub hidden_api: Option<ApiId>,
}

/// Returns what [`verify`](super::verify) would return now. Nothing is consumed, recorded or counted.
pub async fn preview(
    keys: &Keys,
    caller: &Caller,
    request: &VerifyRequest,
) -> Result<VerifyPreview> {
    let found = find::find_by_hash(keys, &KeyHash::compute(request.key.expose())).await?;
    let hidden = found.as_ref().filter(|resolved| {
        let is_visible = resolved.value.is_visible_to(&caller.principal.value);
        !is_visible && resolved.value.key.workspace_id() == caller.workspace_id()
    });
    let hidden_api = hidden.map(|resolved| resolved.value.key.api_id().clone());
    let visible = found.filter(|resolved| resolved.value.is_visible_to(&caller.principal.value));
    let result = evaluate(keys, caller, visible, request, ConsumeMode::Peek).await?;
    let reason = reason::refusal_reason(&result, request, caller);
    Ok(VerifyPreview { result, reason, hidden_api })
}
