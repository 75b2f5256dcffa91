//! The reason why a verification was rejected, as text for the analytics event.

use foundation::model::VerificationCode;

use super::verify::{EvaluatedLimit, VerifyRequest, VerifyResult};
use crate::caller::Caller;
use crate::wording::{format_grouped, format_quantity, format_rate};

/// Returns the reason of a rejection, for the event that records it: a sentence without its full stop.
pub fn refusal_reason(
    verified: &VerifyResult,
    request: &VerifyRequest,
    caller: &Caller,
) -> Option<Box<str>> {
    let resolved = &verified.resolved.as_ref()?.value;
    let reason = match verified.code {
        VerificationCode::Valid | VerificationCode::NotFound => return None,
        VerificationCode::Disabled => "The key is disabled".to_owned(),
        VerificationCode::Expired => "The key has expired".to_owned(),
        VerificationCode::Forbidden => match &request.api {
            Some(api) if api != resolved.key.api_id() => {
                format!("The key was presented for another API, {}", api.as_str())
            }
            Some(_) | None if request.is_refused_by_policy => {
                "The gateway policy has no rule for the request".to_owned()
            }
            Some(_) | None => match request.address.or(caller.client.address) {
                Some(address) => format!("The key may not be used from {address}"),
                None => {
                    "The key is restricted to certain networks, and the client address is unknown"
                        .to_owned()
                }
            },
        },
        VerificationCode::InsufficientPermissions => match &request.permissions {
            Some(required) => format!("The key lacks required permissions: {required}"),
            None => "The key lacks a permission".to_owned(),
        },
        VerificationCode::RateLimited => {
            let exceeded =
                verified.ratelimits.iter().filter(|evaluated| evaluated.status.is_exceeded);
            let limits = exceeded.map(|EvaluatedLimit { limit, .. }| {
                format!("\"{}\": {}", limit.name, format_rate(limit.limit, limit.duration_ms))
            });
            format!("Exceeded {}", limits.collect::<Vec<_>>().join(", "))
        }
        VerificationCode::UsageExceeded => {
            let remaining = format_quantity(verified.credits.unwrap_or(0), "credit");
            format!("{remaining} remaining, {} required", format_grouped(request.cost.unwrap_or(1)))
        }
    };
    Some(truncate(reason).into())
}

/// The maximum length of a recorded reason.
const REASON_MAX_BYTES: usize = 1024;

fn truncate(mut reason: String) -> String {
    const CUT: &str = "…";
    if reason.len() > REASON_MAX_BYTES {
        reason.truncate(reason.floor_char_boundary(REASON_MAX_BYTES - CUT.len()));
        reason.push_str(CUT);
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_cut_at_a_character_when_it_is_too_long() {
        assert_eq!(truncate("é".repeat(512)), "é".repeat(512));

        let cut = truncate("é".repeat(513));

        assert!(cut.len() <= REASON_MAX_BYTES && cut.ends_with("é…"), "{} bytes", cut.len());
    }
}
