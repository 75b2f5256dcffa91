//! Audit metadata about a key's credits: it records the requested change, because the balance changes with every use.

use foundation::model::Refill;
use serde_json::{Map, Value, json};

use super::snapshot::RefillSnapshot;
use super::{CreditsChange, CreditsUpdate, NewCredits, Patch};

/// Returns the metadata of an audit entry, or `None` if it is empty.
fn wrap_credits(credits: &Map<String, Value>) -> Option<Value> {
    (!credits.is_empty()).then(|| json!({ "credits": credits }))
}

fn refill_json(refill: &Refill) -> Value {
    json!(RefillSnapshot::from(*refill))
}

/// Returns the metadata of a key that is being created.
pub fn for_new_key(new: Option<&NewCredits>) -> Option<Value> {
    let new = new?;
    let mut meta_fields = Map::from_iter([("set".to_owned(), json!(new.balance))]);
    meta_fields.extend(new.refill.as_ref().map(|known| ("refill".to_owned(), refill_json(known))));
    wrap_credits(&meta_fields)
}

/// Returns the metadata of a credits update.
pub fn for_credits_update(update: CreditsUpdate) -> Option<Value> {
    let (name, value) = match update {
        CreditsUpdate::Set(balance) => ("set", json!(balance)),
        CreditsUpdate::Unlimited(_) => ("unlimited", json!(true)),
        CreditsUpdate::Increment(value) => ("increment", json!(value)),
        CreditsUpdate::Decrement(value) => ("decrement", json!(value)),
    };
    wrap_credits(&Map::from_iter([(name.to_owned(), value)]))
}

/// Returns the metadata of a key update. `None` if it does not change the credits.
pub fn for_key_update(change: &Patch<CreditsChange>) -> Option<Value> {
    let unlimited = || Some(("unlimited".to_owned(), json!(true)));
    let (remaining, back) = match change {
        Patch::Keep => (None, None),
        Patch::Clear => (unlimited(), None),
        Patch::Set(change) => (
            match change.remaining {
                Patch::Keep => None,
                Patch::Clear => unlimited(),
                Patch::Set(balance) => Some(("set".to_owned(), json!(balance))),
            },
            match &change.refill {
                Patch::Keep => None,
                Patch::Clear => Some(("refill".to_owned(), Value::Null)),
                Patch::Set(known) => Some(("refill".to_owned(), refill_json(known))),
            },
        ),
    };
    wrap_credits(&remaining.into_iter().chain(back).collect())
}

#[cfg(test)]
mod tests {
    use foundation::model::RefillInterval;

    use super::*;

    #[test]
    fn audit_meta_contains_only_the_requested_credits_change() {
        let monthly = Refill { interval: RefillInterval::Monthly { day: 5 }, amount: 9 };
        let refill_json = json!({ "interval": "monthly", "amount": 9, "day": 5 });
        let change = |remaining, refill| {
            for_key_update(&Patch::Set(CreditsChange {
                remaining,
                refill,
                ..CreditsChange::default()
            }))
        };

        let new = for_new_key(Some(&NewCredits { balance: 3, refill: Some(monthly) }));
        assert_eq!(new, Some(json!({ "credits": { "set": 3, "refill": refill_json } })));
        assert_eq!(for_new_key(None), None);
        let added = for_credits_update(CreditsUpdate::Increment(2));
        assert_eq!(added, Some(json!({ "credits": { "increment": 2 } })));
        assert_eq!(for_key_update(&Patch::Keep), None);
        assert_eq!(change(Patch::Keep, Patch::Keep), None);
        let set = change(Patch::Set(1), Patch::Clear);
        assert_eq!(set, Some(json!({ "credits": { "set": 1, "refill": null } })));
        let unlimited = Some(json!({ "credits": { "unlimited": true } }));
        assert_eq!(
            [for_key_update(&Patch::Clear), change(Patch::Clear, Patch::Keep)],
            [unlimited.clone(), unlimited]
        );
    }
}
