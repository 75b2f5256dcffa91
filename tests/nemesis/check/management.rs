//! Checks that every acknowledged change is present at the end, and in the audit log.

use std::collections::HashMap;

use super::{Finding, describe};
use crate::record::{Action, Call, KeyFinalState, KeyIndex, Run};

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::new("changes");
    let mut changes: HashMap<KeyIndex, Vec<&Call>> = HashMap::new();
    for call in &run.calls {
        for key in changed_keys(&call.action).into_iter().flatten() {
            changes.entry(key).or_default().push(call);
        }
    }
    let mut held = 0;
    let is_withdrawn = |key| {
        run.calls
            .iter()
            .any(|call| matches!(call.action, Action::Withdraw { key: of, .. } if of == key))
    };
    for final_state in run.final_states.iter().filter(|final_state| !is_withdrawn(final_state.key))
    {
        let calls = changes.get(&final_state.key).map_or(&[][..], Vec::as_slice);
        held += calls.iter().filter(|call| call.has_status(200)).count();
        check_effect(run, final_state, calls, &mut finding);
        check_audit(run, final_state, calls, &mut finding);
    }
    finding.notes.push(format!("{held} acknowledged changes of {} keys", run.final_states.len()));
    finding
}

/// Returns the keys that a change concerns.
fn changed_keys(action: &Action) -> [Option<KeyIndex>; 2] {
    match action {
        Action::Create { key } => [*key, None],
        Action::Reroll { key, new, .. } => [Some(*key), *new],
        Action::Credits { key, .. }
        | Action::Rename { key, .. }
        | Action::SetLimit { key, .. }
        | Action::Disable { key }
        | Action::Delete { key } => [Some(*key), None],
        Action::Control
        | Action::Verify { .. }
        | Action::Limit { .. }
        | Action::Override { .. }
        | Action::Withdraw { .. } => [None, None],
    }
}

fn check_effect(run: &Run, final_state: &KeyFinalState, calls: &[&Call], finding: &mut Finding) {
    let id = &run.keys[final_state.key].id;
    let deletes = calls.iter().filter(|call| matches!(call.action, Action::Delete { .. }));
    let (mut must_be_gone, mut may_be_gone) = (None, false);
    for call in deletes {
        may_be_gone |= call.has_status(200) || call.is_uncertain();
        must_be_gone = must_be_gone.or(call.has_status(200).then_some(call));
    }
    if let Some(call) = must_be_gone {
        finding.require(final_state.status == 404, || {
            format!("key {id} exists at the end, deleted {}", describe(call))
        });
    }
    let created = calls.iter().any(|call| matches!(call.action, Action::Create { .. }));
    finding.require(!created || may_be_gone || final_state.status == 200, || {
        format!("key {id} was created and does not exist at the end: {}", final_state.status)
    });
    if final_state.status != 200 {
        return;
    }
    for call in calls.iter().filter(|call| matches!(call.action, Action::Disable { .. })) {
        finding.require(!call.has_status(200) || !final_state.enabled, || {
            format!("key {id} is enabled at the end, disabled {}", describe(call))
        });
    }
    check_name(id, final_state, calls, finding);
}

/// Checks that the name is that of the last acknowledged rename, or of a later one that may have been executed.
fn check_name(id: &str, final_state: &KeyFinalState, calls: &[&Call], finding: &mut Finding) {
    let mut names = Vec::new();
    for call in calls {
        let Action::Rename { name, .. } = &call.action else { continue };
        if call.has_status(200) {
            names.clear();
        }
        if call.has_status(200) || call.is_uncertain() {
            names.push(name);
        }
    }
    let is_one =
        names.is_empty() || names.iter().any(|name| Some(*name) == final_state.name.as_ref());
    finding.require(is_one, || {
        format!("key {id} is named {:?} at the end, not {names:?}", final_state.name)
    });
}

fn check_audit(run: &Run, final_state: &KeyFinalState, calls: &[&Call], finding: &mut Finding) {
    let id = &run.keys[final_state.key].id;
    for event in ["key.create", "key.reroll", "key.update", "key.delete"] {
        let of_event = |call: &&&Call| {
            event
                == match call.action {
                    Action::Create { .. } => "key.create",
                    Action::Reroll { .. } => "key.reroll",
                    Action::Delete { .. } => "key.delete",
                    _ => "key.update",
                }
        };
        let least = calls.iter().filter(of_event).filter(|call| call.has_status(200)).count();
        let unsure = calls.iter().filter(of_event).filter(|call| call.is_uncertain()).count();
        let rows = final_state.audit.iter().filter(|row| *row == event).count();
        finding.require((least..=least + unsure).contains(&rows), || {
            format!("key {id} has {rows} audit rows {event}: {least} were acknowledged, {unsure} may have been done")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{call, finds, finds_nothing, reply, run};
    use super::*;

    fn changed_by(calls: Vec<Call>, final_state: KeyFinalState) -> Run {
        let mut run = run(calls);
        run.calls.insert(0, call(0, Action::Create { key: Some(0) }, Some(reply(200, ""))));
        let mut audit = final_state.audit.clone();
        audit.push("key.create".into());
        Run { final_states: vec![KeyFinalState { audit, ..final_state }], ..run }
    }

    fn renamed(sent_ms: u64, name: &str, status: u16) -> Call {
        call(sent_ms, Action::Rename { key: 0, name: name.into() }, Some(reply(status, "")))
    }

    fn active_key(name: &str, updates: usize) -> KeyFinalState {
        let audit = vec!["key.update".to_owned(); updates];
        let name = Some(name.to_owned());
        KeyFinalState { status: 200, enabled: true, name, audit, ..KeyFinalState::default() }
    }

    #[test]
    fn check_accepts_changes_that_are_present() {
        let calls = vec![renamed(10, "a", 200), renamed(20, "b", 503)];

        finds_nothing(&check(&changed_by(calls.clone(), active_key("a", 1))));
        finds_nothing(&check(&changed_by(calls, active_key("b", 2))));
    }

    #[test]
    fn check_reports_lost_change() {
        let calls = vec![renamed(10, "a", 200), renamed(20, "b", 200)];

        let finding = check(&changed_by(calls, active_key("a", 1)));

        finds(&finding, "is named Some(\"a\") at the end");
        finds(&finding, "1 audit rows key.update: 2 were acknowledged");
    }

    #[test]
    fn check_reports_deleted_key_that_exists() {
        let deleted = call(10, Action::Delete { key: 0 }, Some(reply(200, "")));
        let disabled = call(10, Action::Disable { key: 0 }, Some(reply(200, "")));

        finds(&check(&changed_by(vec![deleted], active_key("", 0))), "exists at the end");
        finds(&check(&changed_by(vec![disabled], active_key("", 1))), "is enabled at the end");
    }

    #[test]
    fn check_reports_created_key_that_is_missing() {
        let missing = KeyFinalState { status: 404, ..KeyFinalState::default() };

        finds(&check(&changed_by(Vec::new(), missing)), "was created and does not exist");
    }
}
