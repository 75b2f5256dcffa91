//! Previews of answers, for a user who wants to know what a policy decides.

use domain::app::App;
use domain::caller::{Caller, ClientInfo};
use domain::gateways::{self, ActivePolicy, GatewayPreview, OriginalRequest};
use foundation::error::Result;
use foundation::id::RequestId;

use super::assertion::AssertionSigner;
use super::outcome::{GatewayAnswer, answer_decision, answer_error};

/// What a gateway would be answered about a request.
#[derive(Debug)]
pub struct AnswerPreview {
    /// The decision, or the error because of which there is none.
    pub judgement: Result<GatewayPreview>,
    /// The answer, without a signed assertion: a preview signs nothing.
    pub answer: GatewayAnswer,
    /// The id in the answer, which finds no event.
    pub request_id: RequestId,
}

/// Judges a request by a policy as [`judge`](super::judge) would. Nothing is consumed, recorded or counted.
pub async fn preview(
    app: &App,
    policy: &ActivePolicy,
    request: &(impl OriginalRequest + Sync),
    client: ClientInfo,
) -> AnswerPreview {
    let now = app.context.clock.now();
    let caller = Caller {
        principal: policy.principal.clone(),
        client,
        idempotency_key: None,
        form_submission: None,
        request_id: RequestId::new(now),
        skips_analytics: true,
        undone_entry_id: None,
    };
    let judgement = judge(app, &caller, policy, request).await;
    let answer = match &judgement {
        Ok(preview) => {
            let format = app.context.settings.ratelimit_headers.for_gateways();
            answer_decision(policy, &preview.decision, &caller.request_id, now, format, None)
        }
        Err(error) => answer_error(Some(policy), error, &caller.request_id),
    };
    AnswerPreview { judgement, answer, request_id: caller.request_id }
}

async fn judge(
    app: &App,
    caller: &Caller,
    policy: &ActivePolicy,
    request: &(impl OriginalRequest + Sync),
) -> Result<GatewayPreview> {
    // Fails if nothing can be signed, as for a request of the gateway.
    AssertionSigner::for_policy(app, policy).await?;
    gateways::preview(&app.keys, caller, policy, request).await
}
