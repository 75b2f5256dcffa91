//! The undo action of an audit entry.

use serde_json::Value;
use store::StoredEntry;

use crate::audit::{AuditEvent, NOTHING_TO_RESTORE, UndoAction, UndoRefusal, UndoRule};

const NO_PREVIOUS_STATE: UndoRefusal = "the entry does not contain the previous state";

/// The targets of an entry.
struct Targets(Vec<Value>);

impl Targets {
    fn id(&self, index: usize) -> Result<&str, UndoRefusal> {
        self.0.get(index).and_then(|target| target["id"].as_str()).ok_or(NO_PREVIOUS_STATE)
    }

    fn name(&self, index: usize) -> Result<&str, UndoRefusal> {
        self.0.get(index).and_then(|target| target["name"].as_str()).ok_or(NO_PREVIOUS_STATE)
    }
}

/// Returns the action that undoes an entry, or the reason why it cannot be undone.
pub fn plan_undo(entry: &StoredEntry) -> Result<UndoAction, UndoRefusal> {
    let targets = Targets(serde_json::from_str(&entry.targets).unwrap_or_default());
    let id = targets.id(0)?;
    let if_has_before = |action: UndoAction| {
        if entry.before.is_some() { Ok(action) } else { Err(NO_PREVIOUS_STATE) }
    };
    let event = AuditEvent::parse(&entry.event).ok_or(NOTHING_TO_RESTORE)?;
    match event.undo_rule() {
        UndoRule::ById(action) => Ok(action(id)),
        UndoRule::FromPrevious(action) => if_has_before(action(id)),
        UndoRule::ByIds(action) => Ok(action(id, targets.id(1)?)),
        UndoRule::ByIdAndName(action) => Ok(action(id, targets.name(1)?)),
        UndoRule::KeyUpdate => match find_added_credits(&targets, entry) {
            Some(added) => {
                let opposite = added.checked_neg().ok_or(NO_PREVIOUS_STATE)?;
                Ok(UndoAction::AddCredits(id.into(), opposite))
            }
            None => if_has_before(UndoAction::RevertKey(id.into())),
        },
        UndoRule::KeyDeletion if targets.0[0]["meta"]["permanent"] == true => {
            Err("the key was deleted permanently")
        }
        UndoRule::KeyDeletion => Ok(UndoAction::RestoreKey(id.into())),
        UndoRule::OverrideUpdate if entry.after.is_none() => Err(NO_PREVIOUS_STATE),
        UndoRule::OverrideUpdate if entry.before.is_none() => {
            Ok(UndoAction::DeleteOverride(id.into(), targets.name(1)?.to_owned()))
        }
        UndoRule::OverrideUpdate => Ok(UndoAction::RevertOverride(id.into())),
        UndoRule::Refused(refusal) => Err(refusal),
    }
}

/// Returns the number of credits that an entry added, negative if it removed credits. `None`: the entry set the credits
/// or did not change them. An undo by a difference does not restore the other fields.
fn find_added_credits(targets: &Targets, entry: &StoredEntry) -> Option<i64> {
    let meta = targets.0.first()?.pointer("/meta/credits")?;
    let is_relative = !meta["increment"].is_null() || !meta["decrement"].is_null();
    let credits = |snapshot: &Option<String>| {
        serde_json::from_str::<Value>(snapshot.as_deref()?).ok()?["credits"].as_i64()
    };
    if is_relative { credits(&entry.after)?.checked_sub(credits(&entry.before)?) } else { None }
}

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;

    use super::*;

    fn entry(event: &str, targets: &str, before: Option<&str>, after: Option<&str>) -> StoredEntry {
        StoredEntry {
            id: "log_1".into(),
            at: Timestamp(0),
            event: event.into(),
            actor_type: "user".into(),
            actor_id: "user_1".into(),
            actor_name: None,
            remote_address: None,
            user_agent: None,
            targets: targets.into(),
            correlation_id: None,
            before: before.map(Into::into),
            after: after.map(Into::into),
            undoes: None,
            undone_by: None,
        }
    }

    #[test]
    fn plan_undo_adds_difference_when_credits_were_relative_and_restores_key_when_set() {
        let targets =
            |credits: &str| format!(r#"[{{"id":"key_1","meta":{{"credits":{credits}}}}}]"#);
        let (before, after) = (Some(r#"{"credits":5}"#), Some(r#"{"credits":15}"#));

        let added = plan_undo(&entry("key.update", &targets(r#"{"increment":10}"#), before, after));
        let removed =
            plan_undo(&entry("key.update", &targets(r#"{"decrement":99}"#), after, before));
        let set = plan_undo(&entry("key.update", &targets(r#"{"set":15}"#), before, after));

        assert_eq!(added, Ok(UndoAction::AddCredits("key_1".into(), -10)));
        // The decrement removed only the 10 credits that existed.
        assert_eq!(removed, Ok(UndoAction::AddCredits("key_1".into(), 10)));
        assert_eq!(set, Ok(UndoAction::RevertKey("key_1".into())));
    }

    #[test]
    fn plan_undo_restores_previous_override_when_one_was_replaced() {
        let targets = r#"[{"id":"rlns_1"},{"id":"rlor_1","name":"a*"}]"#;
        let (one, other) = (Some(r#"{"limit":1}"#), Some(r#"{"limit":2}"#));
        let event = "ratelimit.set_override";

        let created = plan_undo(&entry(event, targets, None, one));
        let replaced = plan_undo(&entry(event, targets, other, one));

        assert_eq!(created, Ok(UndoAction::DeleteOverride("rlns_1".into(), "a*".into())));
        assert_eq!(replaced, Ok(UndoAction::RevertOverride("rlns_1".into())));
        assert_eq!(plan_undo(&entry(event, targets, None, None)), Err(NO_PREVIOUS_STATE));
    }

    #[test]
    fn plan_undo_is_refused_when_state_is_lost() {
        let target = r#"[{"id":"key_1","meta":{"permanent":true}}]"#;
        let refusal = plan_undo(&entry("key.delete", target, Some("{}"), None));
        assert_eq!(refusal, Err("the key was deleted permanently"));
        for (event, targets) in [
            ("key.update", r#"[{"id":"key_1"}]"#),
            ("role.delete", r#"[{"id":"role_1"}]"#),
            ("key.delete", "[]"),
            ("key.delete", "no list"),
            ("key.decrypt", r#"[{"id":"key_1"}]"#),
            ("key.unknown", r#"[{"id":"key_1"}]"#),
        ] {
            assert!(plan_undo(&entry(event, targets, None, None)).is_err(), "{event} {targets}");
        }
    }
}
