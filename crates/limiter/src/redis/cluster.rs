//! A take from a Redis Cluster whose names do not all belong to one slot, such as a key's own limits and those of its
//! identity: a script can touch one slot only.
//!
//! The parts are taken one beside the other, the one with the purse last and only when all others were. When one
//! refuses, what the others took is given back. So nothing is admitted that should not be, and what is denied costs
//! nothing in the end; for the moment between, others may find a little less than there is.

use foundation::clock::Timestamp;
use futures_util::future::join_all;
use redis::cluster_routing::Slot;

use super::super::{ConsumeReply, ConsumeRequest, GroupChange, WindowCount};
use super::{Missed, RedisCounters};

/// What of a take belongs to one slot.
struct SlotRequest {
    slot: Slot,
    take: ConsumeRequest,
    /// The places of its windows in the whole.
    places: Vec<usize>,
}

/// The parts of a take; the one with the purse stands last.
fn split_by_slot(take: &ConsumeRequest) -> Vec<SlotRequest> {
    let mut parts: Vec<SlotRequest> = Vec::with_capacity(2);
    let slot_of = |name: &str| Slot::for_key(name);
    for (place, window) in take.windows.iter().enumerate() {
        let slot = slot_of(&window.key);
        let part = match parts.iter().position(|part| part.slot == slot) {
            Some(at) => &mut parts[at],
            None => {
                parts.push(SlotRequest {
                    slot,
                    take: ConsumeRequest::default(),
                    places: Vec::new(),
                });
                parts.last_mut().expect("just pushed")
            }
        };
        part.take.windows.push(window.clone());
        part.places.push(place);
    }
    if let Some(spend) = &take.spend {
        let slot = slot_of(&spend.purse);
        let mut last = match parts.iter().position(|part| part.slot == slot) {
            Some(at) => parts.remove(at),
            None => SlotRequest { slot, take: ConsumeRequest::default(), places: Vec::new() },
        };
        last.take.spend = Some(spend.clone());
        parts.push(last);
    }
    parts
}

/// The same, taking nothing; what the bank has debited is put into the purse all the same.
fn to_peek(mut take: ConsumeRequest) -> ConsumeRequest {
    take.windows.iter_mut().for_each(|window| window.cost = 0);
    take.spend.iter_mut().for_each(|spend| spend.cost = 0);
    take
}

impl RedisCounters {
    pub(super) async fn consume_across_slots(
        &self,
        take: &ConsumeRequest,
        now: Option<Timestamp>,
    ) -> Result<ConsumeReply, Missed> {
        let mut parts = split_by_slot(take);
        let Some(mut last) = parts.pop() else {
            return Ok(ConsumeReply {
                is_admitted: true,
                windows: Vec::new(),
                purse: None,
                group: GroupChange::None,
            });
        };
        let asked = parts.iter().map(|part| self.enqueue(part.take.clone(), Some(part.slot), now));
        let mut taken = join_all(asked).await;
        let all = taken.iter().all(|taken| taken.as_ref().is_ok_and(|taken| taken.is_admitted));
        if !all {
            last.take = to_peek(last.take);
        }
        taken.push(self.enqueue(last.take.clone(), Some(last.slot), now).await);
        let all =
            all && taken.last().is_some_and(|taken| taken.as_ref().is_ok_and(|t| t.is_admitted));
        parts.push(last);
        if !all {
            self.refund(&parts, &taken);
        }
        let mut whole = ConsumeReply {
            is_admitted: all,
            windows: vec![WindowCount { effective: 0, number: 0 }; take.windows.len()],
            purse: None,
            group: GroupChange::None,
        };
        for (part, taken) in parts.iter().zip(taken) {
            let taken = taken.map_err(|missed| {
                if let Some(unsettled) = missed.unsettled {
                    // What the other parts consumed has been refunded, so this one is too.
                    unsettled.settle(Vec::new());
                }
                missed.cause
            })?;
            for (place, counted) in part.places.iter().zip(taken.windows) {
                whole.windows[*place] = counted;
            }
            whole.purse = whole.purse.or(taken.purse);
            whole.group = whole.group.max(taken.group);
        }
        Ok(whole)
    }

    /// Refunds what some parts have taken, as soon as Redis replies. What cannot be refunded stays taken: too much is
    /// held back then, and never too much let through.
    fn refund(&self, parts: &[SlotRequest], taken: &[Result<ConsumeReply, Missed>]) {
        for (part, taken) in parts.iter().zip(taken) {
            if let Ok(taken) = taken {
                self.calls.outage.settle(&part.take, Some(taken), Vec::new());
            }
        }
        self.calls.charge_due();
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{LeaseSpend, Window};
    use super::*;

    #[test]
    fn a_take_falls_into_parts_by_hash_tag_with_the_purse_last() {
        let window = |name: &str| Window::new(name, 10, 1_000, 1);
        let windows = vec![window("w:{a}:1"), window("w:{b}:1"), window("w:{a}:2")];
        let spend = LeaseSpend { purse: "p:{a}:1".into(), cost: 1, fill: None };

        let parts = split_by_slot(&ConsumeRequest { windows, spend: Some(spend) });

        let places: Vec<_> = parts.iter().map(|part| part.places.clone()).collect();
        assert_eq!(places, [vec![1], vec![0, 2]]);
        assert!(parts[0].take.spend.is_none() && parts[1].take.spend.is_some());
    }
}
