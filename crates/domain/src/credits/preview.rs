//! Previews of decisions on credits and windows.

use foundation::error::Result;
use limiter::Window;

use super::{ConsumeDecision, CreditLedger, consume};
use crate::admission;
use crate::resolved_key::ResolvedKey;

/// Returns the decision that [`consume`] would return now, and consumes nothing. It does not predict whether a new ad-hoc
/// counter would be one too many.
pub async fn preview(
    ledger: &CreditLedger,
    resolved: &ResolvedKey,
    windows: &[Window],
    cost: i64,
) -> Result<ConsumeDecision> {
    let balance = match resolved.credits() {
        None => None,
        Some(_) => {
            let peeked = consume(ledger, resolved, Vec::new(), 0).await?;
            if peeked.is_key_deleted {
                return Ok(peeked);
            }
            peeked.credits
        }
    };
    let has_credits = balance.is_none_or(|left| left >= cost);
    let on_outage = ledger.context.settings.keys_outage_policy;
    let decision = admission::preview(&ledger.context, windows, on_outage, has_credits).await?;
    let spent = if decision.is_admitted { cost } else { 0 };
    let left = balance.map(|left| left.saturating_sub(spent));
    Ok(ConsumeDecision::from_limit_decision(decision, left))
}
