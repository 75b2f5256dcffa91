//! Consumes from a Redis Cluster when the names do not all belong to one slot, such as a key's own limits and those of
//! its identity: a script can access one slot only.
//!
//! The parts are requested concurrently, except the one with the lease, which comes last and consumes only if all
//! others were admitted. If a part is rejected, what the others consumed is refunded. So nothing is admitted in excess,
//! and a denied request consumes nothing in the end; until the refund, other callers may see slightly less remaining
//! than there is.

use foundation::clock::Timestamp;
use futures_util::future::join_all;
use redis::cluster_routing::Slot;

use super::super::{ConsumeReply, ConsumeRequest, GroupChange, WindowCount};
use super::{ConsumeError, RedisCounters};

/// The part of a consume request that belongs to one slot.
struct SlotRequest {
    slot: Slot,
    request: ConsumeRequest,
    /// The indexes of its windows in the whole request.
    window_indexes: Vec<usize>,
}

/// Splits a consume request by slot. The part with the lease comes last.
fn split_by_slot(request: &ConsumeRequest) -> Vec<SlotRequest> {
    let mut parts: Vec<SlotRequest> = Vec::with_capacity(2);
    let slot_of = |name: &str| Slot::for_key(name);
    for (index, window) in request.windows.iter().enumerate() {
        let slot = slot_of(&window.key);
        let part = match parts.iter().position(|part| part.slot == slot) {
            Some(at) => &mut parts[at],
            None => {
                parts.push(SlotRequest {
                    slot,
                    request: ConsumeRequest::default(),
                    window_indexes: Vec::new(),
                });
                parts.last_mut().expect("just pushed")
            }
        };
        part.request.windows.push(window.clone());
        part.window_indexes.push(index);
    }
    if let Some(spend) = &request.spend {
        let slot = slot_of(&spend.lease);
        let mut lease_part = match parts.iter().position(|part| part.slot == slot) {
            Some(at) => parts.remove(at),
            None => {
                SlotRequest { slot, request: ConsumeRequest::default(), window_indexes: Vec::new() }
            }
        };
        lease_part.request.spend = Some(spend.clone());
        parts.push(lease_part);
    }
    parts
}

/// Returns the same request with all costs set to 0. A top-up is still added to the lease.
fn to_peek(mut request: ConsumeRequest) -> ConsumeRequest {
    request.windows.iter_mut().for_each(|window| window.cost = 0);
    request.spend.iter_mut().for_each(|spend| spend.cost = 0);
    request
}

impl RedisCounters {
    pub(super) async fn consume_across_slots(
        &self,
        request: &ConsumeRequest,
        now: Option<Timestamp>,
    ) -> Result<ConsumeReply, ConsumeError> {
        let mut parts = split_by_slot(request);
        let Some(mut lease_part) = parts.pop() else {
            return Ok(ConsumeReply {
                is_admitted: true,
                windows: Vec::new(),
                lease: None,
                group_change: GroupChange::None,
                regional: None,
            });
        };
        let pending =
            parts.iter().map(|part| self.enqueue(part.request.clone(), Some(part.slot), now));
        let mut replies = join_all(pending).await;
        let is_admitted =
            replies.iter().all(|reply| reply.as_ref().is_ok_and(|reply| reply.is_admitted));
        if !is_admitted {
            lease_part.request = to_peek(lease_part.request);
        }
        replies.push(self.enqueue(lease_part.request.clone(), Some(lease_part.slot), now).await);
        let is_admitted = is_admitted
            && replies
                .last()
                .is_some_and(|reply| reply.as_ref().is_ok_and(|reply| reply.is_admitted));
        parts.push(lease_part);
        if !is_admitted {
            self.refund_parts(&parts, &replies);
        }
        // What the parts with a reply consumed has been refunded, so all others are refunded too.
        let replies: Vec<_> =
            replies.into_iter().map(|reply| reply.map_err(ConsumeError::deny)).collect();
        let mut combined = ConsumeReply {
            is_admitted,
            windows: vec![
                WindowCount { effective_count: 0, window_number: 0 };
                request.windows.len()
            ],
            lease: None,
            group_change: GroupChange::None,
            regional: None,
        };
        for (part, reply) in parts.iter().zip(replies) {
            let reply = reply?;
            for (index, count) in part.window_indexes.iter().zip(reply.windows) {
                combined.windows[*index] = count;
            }
            combined.lease = combined.lease.or(reply.lease);
            combined.group_change = combined.group_change.max(reply.group_change);
        }
        Ok(combined)
    }

    /// Refunds what some parts have consumed, as soon as Redis replies. What cannot be refunded stays consumed: that
    /// withholds too much, and never admits too much.
    fn refund_parts(&self, parts: &[SlotRequest], replies: &[Result<ConsumeReply, ConsumeError>]) {
        for (part, reply) in parts.iter().zip(replies) {
            if let Ok(reply) = reply {
                self.script_runner.outage_windows.reconcile(&part.request, Some(reply), Vec::new());
            }
        }
        self.script_runner.send_due_charges();
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{LeaseSpend, Window};
    use super::*;

    #[test]
    fn split_by_slot_groups_by_hash_tag_with_lease_last() {
        let window = |name: &str| Window::new(name, 10, 1_000, 1);
        let windows = vec![window("w:{a}:1"), window("w:{b}:1"), window("w:{a}:2")];
        let spend = LeaseSpend { lease: "p:{a}:1".into(), cost: 1, top_up: None };

        let parts = split_by_slot(&ConsumeRequest::with_spend(windows, spend));

        let window_indexes: Vec<_> = parts.iter().map(|part| part.window_indexes.clone()).collect();
        assert_eq!(window_indexes, [vec![1], vec![0, 2]]);
        assert!(parts[0].request.spend.is_none() && parts[1].request.spend.is_some());
    }
}
