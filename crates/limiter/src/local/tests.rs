//! Tests what is counted without Redis, and what stays in memory.

use std::sync::Arc;

use super::*;

const MINUTE: i64 = 60_000;
/// The start of the window of this number.
const NUMBER: i64 = 100;
const NOW: Timestamp = Timestamp(NUMBER * MINUTE);

fn counters() -> LocalCounters {
    LocalCounters::new(Clock::fixed_at(NOW))
}

fn window(key: &str, cost: i64) -> Window {
    Window::new(key, 1_000, MINUTE, cost)
}

/// Changes the count of the window of this number. Returns what counts at the start of the current one, and halfway.
fn adjust(counters: &LocalCounters, window_number: i64, units: i64) -> [i64; 2] {
    counters.adjust(&Adjustment { window: window("a", 0), window_number, units });
    [NOW, NOW.plus_ms(MINUTE / 2)]
        .map(|now| counters.peek_at(&[window("a", 0)], now).windows[0].effective_count)
}

#[test]
fn adjustment_changes_the_window_of_its_number_and_no_count_below_zero() {
    let counters = counters();

    assert_eq!(adjust(&counters, NUMBER, 0), [0, 0]);
    assert_eq!(adjust(&counters, NUMBER, -5), [0, 0]);
    assert_eq!(counters.len(), 0, "there is nothing to remember");
    assert_eq!(adjust(&counters, NUMBER, 4), [4, 4]);
    assert_eq!(adjust(&counters, NUMBER, 3), [7, 7]);
    assert_eq!(adjust(&counters, NUMBER + 1, 1), [8, 8], "another clock is ahead");
    assert_eq!(adjust(&counters, NUMBER - 1, 6), [14, 11]);
    assert_eq!(adjust(&counters, NUMBER - 2, 100), [14, 11], "the window has ended");
    assert_eq!(adjust(&counters, NUMBER - 2, -100), [14, 11], "the window has ended");
    assert_eq!(adjust(&counters, NUMBER, -5), [9, 6]);
    assert_eq!(adjust(&counters, NUMBER, -4), [5, 2], "3 of this window, and 1 of the one before");
    assert_eq!(adjust(&counters, NUMBER - 1, 1), [6, 3]);
    assert_eq!(adjust(&counters, NUMBER, 2), [8, 5]);
    assert_eq!(adjust(&counters, NUMBER + 1, -1), [7, 4], "another clock is ahead");
    assert_eq!(adjust(&counters, NUMBER, 1), [8, 5]);
    assert_eq!(adjust(&counters, NUMBER - 1, -2), [6, 4]);
    assert_eq!(adjust(&counters, NUMBER - 1, -100), [2, 2]);
    assert_eq!(counters.len(), 1);
    assert_eq!(adjust(&counters, NUMBER, -2), [0, 0]);
    assert_eq!(counters.len(), 0);
}

#[test]
fn peek_and_rejected_request_leave_nothing_in_memory() {
    let counters = counters();

    assert!(counters.consume_at(&[window("a", 0)], NOW).is_admitted);
    assert!(!counters.consume_at(&[window("a", 1_001)], NOW).is_admitted);
    assert!(!counters.peek_at(&[window("a", 1)], NOW).is_admitted);

    assert_eq!(counters.len(), 0);
}

#[test]
fn counters_are_spread_over_shards() {
    let counters = counters();

    for n in 0..1_000 {
        counters.consume_at(&[window(&format!("counter {n}"), 1)], NOW);
    }

    let used = counters.shards.iter().filter(|shard| !shard.lock().entries.is_empty()).count();
    assert!(used > SHARD_COUNT / 2, "{used}");
    assert_eq!(counters.len(), 1_000);
}

#[test]
fn shard_is_swept_when_it_has_many_entries() {
    let now = Timestamp(1_000);
    // Of so many entries, every second one has just expired.
    let sweep = |entries: u64, sweep_entries| {
        let mut shard = LocalShard { sweep_entries, ..LocalShard::default() };
        for hash in 0..entries {
            let entry = CounterEntry {
                key: hash.to_string().into(),
                hash,
                counter: WindowCounter { number: 1, count: 1, previous_count: 0 },
                expires_ms: if hash % 2 == 0 { 1_000 } else { 1_001 },
            };
            shard.entries.insert_unique(hash, entry, |entry| entry.hash);
        }
        shard.sweep(now);
        (shard.entries.len(), shard.sweep_entries)
    };

    assert_eq!(sweep(1_022, 0), (1_022, 0));
    assert_eq!(sweep(1_024, 0), (512, 1_024));
    assert_eq!(sweep(1_998, 2_000), (1_998, 2_000));
    assert_eq!(sweep(2_000, 2_000), (1_000, 2_000));
}

#[test]
fn groups_are_forgotten_when_their_counters_have_expired() {
    let counters = counters();
    for (name, workspace, minutes_ago) in [("g1", "ws_1", 2), ("g2", "ws_1", 1), ("g3", "ws_2", 2)]
    {
        let group =
            CounterGroup { name: name.to_owned(), workspace: workspace.into(), live_max: 1 };
        let window = window(name, 1).with_group(Arc::new(group));
        counters.consume_at(&[window], NOW.plus_ms(-minutes_ago * MINUTE));
    }

    for _ in 0..2 {
        assert_eq!(
            counters.count_group_counters(),
            HashMap::from([(WorkspaceId::from("ws_1"), 1)])
        );
        let groups: usize = counters.shards.iter().map(|shard| shard.lock().groups.len()).sum();
        assert_eq!(groups, 1);
    }
}
