//! P7: every change that was acknowledged is there at the end, and in the audit log.

use std::collections::HashMap;

use super::{Finding, name};
use crate::record::{Act, Asked, Ending, KeyNo, Run};

pub fn check(run: &Run) -> Finding {
    let mut finding = Finding::of("P7 changes");
    let mut changes: HashMap<KeyNo, Vec<&Act>> = HashMap::new();
    for act in &run.acts {
        for key in changed(&act.asked).into_iter().flatten() {
            changes.entry(key).or_default().push(act);
        }
    }
    let mut held = 0;
    let is_withdrawn = |key| {
        run.acts.iter().any(|act| matches!(act.asked, Asked::Withdraw { key: of, .. } if of == key))
    };
    for ending in run.endings.iter().filter(|ending| !is_withdrawn(ending.key)) {
        let acts = changes.get(&ending.key).map_or(&[][..], Vec::as_slice);
        held += acts.iter().filter(|act| act.has(200)).count();
        check_effect(run, ending, acts, &mut finding);
        check_audit(run, ending, acts, &mut finding);
    }
    finding.told.push(format!("{held} acknowledged changes of {} keys", run.endings.len()));
    finding
}

/// The keys that a change concerns.
fn changed(asked: &Asked) -> [Option<KeyNo>; 2] {
    match asked {
        Asked::Create { key } => [*key, None],
        Asked::Reroll { key, new, .. } => [Some(*key), *new],
        Asked::Credits { key, .. }
        | Asked::Rename { key, .. }
        | Asked::Disable { key }
        | Asked::Delete { key } => [Some(*key), None],
        Asked::Control
        | Asked::Verify { .. }
        | Asked::Limit { .. }
        | Asked::Override { .. }
        | Asked::Withdraw { .. } => [None, None],
    }
}

fn check_effect(run: &Run, ending: &Ending, acts: &[&Act], finding: &mut Finding) {
    let id = &run.keys[ending.key].id;
    let deletes = acts.iter().filter(|act| matches!(act.asked, Asked::Delete { .. }));
    let (mut must_be_gone, mut may_be_gone) = (None, false);
    for act in deletes {
        may_be_gone |= act.has(200) || act.is_unsure();
        must_be_gone = must_be_gone.or(act.has(200).then_some(act));
    }
    if let Some(act) = must_be_gone {
        finding.hold(ending.status == 404, || {
            format!("key {id} is there at the end, deleted {}", name(act))
        });
    }
    let created = acts.iter().any(|act| matches!(act.asked, Asked::Create { .. }));
    finding.hold(!created || may_be_gone || ending.status == 200, || {
        format!("key {id} was made and is not there at the end: {}", ending.status)
    });
    if ending.status != 200 {
        return;
    }
    for act in acts.iter().filter(|act| matches!(act.asked, Asked::Disable { .. })) {
        finding.hold(!act.has(200) || !ending.enabled, || {
            format!("key {id} is enabled at the end, disabled {}", name(act))
        });
    }
    check_name(id, ending, acts, finding);
}

/// The name is that of the last rename that was acknowledged, or of one after it that may have been done.
fn check_name(id: &str, ending: &Ending, acts: &[&Act], finding: &mut Finding) {
    let mut names = Vec::new();
    for act in acts {
        let Asked::Rename { name, .. } = &act.asked else { continue };
        if act.has(200) {
            names.clear();
        }
        if act.has(200) || act.is_unsure() {
            names.push(name);
        }
    }
    let is_one = names.is_empty() || names.iter().any(|name| Some(*name) == ending.name.as_ref());
    finding
        .hold(is_one, || format!("key {id} is named {:?} at the end, not {names:?}", ending.name));
}

fn check_audit(run: &Run, ending: &Ending, acts: &[&Act], finding: &mut Finding) {
    let id = &run.keys[ending.key].id;
    for event in ["key.create", "key.reroll", "key.update", "key.delete"] {
        let of_event = |act: &&&Act| {
            event
                == match act.asked {
                    Asked::Create { .. } => "key.create",
                    Asked::Reroll { .. } => "key.reroll",
                    Asked::Delete { .. } => "key.delete",
                    _ => "key.update",
                }
        };
        let least = acts.iter().filter(of_event).filter(|act| act.has(200)).count();
        let unsure = acts.iter().filter(of_event).filter(|act| act.is_unsure()).count();
        let rows = ending.audit.iter().filter(|row| *row == event).count();
        finding.hold((least..=least + unsure).contains(&rows), || {
            format!("key {id} has {rows} audit rows {event}: {least} were acknowledged, {unsure} may have been done")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::{act, finds, finds_nothing, run, told};
    use super::*;

    fn changed_by(acts: Vec<Act>, ending: Ending) -> Run {
        let mut run = run(acts);
        run.acts.insert(0, act(0, Asked::Create { key: Some(0) }, Some(told(200, ""))));
        let mut audit = ending.audit.clone();
        audit.push("key.create".into());
        Run { endings: vec![Ending { audit, ..ending }], ..run }
    }

    fn renamed(sent_ms: u64, name: &str, status: u16) -> Act {
        act(sent_ms, Asked::Rename { key: 0, name: name.into() }, Some(told(status, "")))
    }

    fn there(name: &str, updates: usize) -> Ending {
        let audit = vec!["key.update".to_owned(); updates];
        let name = Some(name.to_owned());
        Ending { status: 200, enabled: true, name, audit, ..Ending::default() }
    }

    #[test]
    fn changes_that_are_there_are_right() {
        let acts = vec![renamed(10, "a", 200), renamed(20, "b", 503)];

        finds_nothing(&check(&changed_by(acts.clone(), there("a", 1))));
        finds_nothing(&check(&changed_by(acts, there("b", 2))));
    }

    #[test]
    fn a_change_that_was_lost_is_found() {
        let acts = vec![renamed(10, "a", 200), renamed(20, "b", 200)];

        let finding = check(&changed_by(acts, there("a", 1)));

        finds(&finding, "is named Some(\"a\") at the end");
        finds(&finding, "1 audit rows key.update: 2 were acknowledged");
    }

    #[test]
    fn a_key_that_came_back_is_found() {
        let deleted = act(10, Asked::Delete { key: 0 }, Some(told(200, "")));
        let disabled = act(10, Asked::Disable { key: 0 }, Some(told(200, "")));

        finds(&check(&changed_by(vec![deleted], there("", 0))), "is there at the end");
        finds(&check(&changed_by(vec![disabled], there("", 1))), "is enabled at the end");
    }

    #[test]
    fn a_key_that_was_made_and_is_gone_is_found() {
        let gone = Ending { status: 404, ..Ending::default() };

        finds(&check(&changed_by(Vec::new(), gone)), "was made and is not there");
    }
}
