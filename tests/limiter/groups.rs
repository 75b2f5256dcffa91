//! Tests groups of ad-hoc counters: the script that creates a counter bounds how many are live.

use limiter::{CounterGroup, GroupChange, GroupTotals, ReplicaRank};

use super::*;

fn group(keys: &Keyspace, live_max: u16) -> Arc<CounterGroup> {
    let workspace = "ws_default".into();
    Arc::new(CounterGroup { name: keys.group("key_a"), workspace, live_max })
}

fn window(keys: &Keyspace, name: &str, cost: i64, group: &Arc<CounterGroup>) -> Window {
    Window::new(keys.window("key_a", MINUTE, name), 5, MINUTE, cost).with_group(group.clone())
}

on_both_counters! {
    async fn group_rejects_new_counter_when_full(counters, keys) {
        let group = group(&keys, 3);
        let mut outcomes = Vec::new();

        for name in ["a", "b", "a", "c", "d", "c", "d"] {
            let reply = counters.consume_windows(&one(window(&keys, name, 1, &group)), Some(NOON)).await.unwrap();
            outcomes.push((reply.is_admitted, reply.group_change));
        }

        let (grown, none, full) =
            ((true, GroupChange::Grown), (true, GroupChange::None), (false, GroupChange::Full));
        assert_eq!(outcomes, [grown, grown, none, grown, full, none, full]);
    }

    /// An expired counter that was removed is live again for a clock that stepped back.
    async fn group_counts_counter_again_when_clock_goes_back(counters, keys) {
        let group = group(&keys, 2);
        let start = Timestamp(NOON.0 / MINUTE * MINUTE);
        let count = async |after_ms, names: &[&str]| {
            let request = |name: &&str| one(window(&keys, name, 1, &group));
            let requests: Vec<_> = names.iter().map(request).collect();
            let at = Some(start.plus_ms(after_ms));
            let reply = join_all(requests.iter().map(|request| counters.consume_windows(request, at))).await;
            reply.into_iter().map(|reply| reply.unwrap().group_change).collect::<Vec<_>>()
        };
        count(0, &["a"]).await;
        count(2 * MINUTE, &["b"]).await;

        let changes = count(MINUTE, &["a", "c"]).await;

        assert_eq!(changes, [GroupChange::Grown, GroupChange::Full]);
    }

    async fn group_rejects_all_windows_of_a_request_when_one_is_too_many(counters, keys) {
        let group = group(&keys, 3);
        let request = |names: &[&str]| -> Vec<_> {
            names.iter().map(|name| window(&keys, name, 1, &group)).collect()
        };
        let plain = Window::new(keys.window("key_a", MINUTE, "plain"), 5, MINUTE, 1);
        counters.consume_windows(&request(&["a", "b"]), Some(NOON)).await.unwrap();

        let mut too_many = request(&["a", "c", "d"]);
        too_many.push(plain.clone());
        let refused = counters.consume_windows(&too_many, Some(NOON)).await.unwrap();
        let fits = counters.consume_windows(&request(&["a", "c"]), Some(NOON)).await.unwrap();
        let untouched = counters.consume_windows(&one(plain), Some(NOON)).await.unwrap();

        assert_eq!((refused.is_admitted, refused.group_change), (false, GroupChange::Full));
        assert_eq!((fits.is_admitted, fits.windows[0].effective_count), (true, 1));
        assert_eq!(untouched.windows[0].effective_count, 0);
    }

    async fn group_has_space_when_a_counter_has_expired(counters, keys) {
        let group = group(&keys, 2);
        let start = Timestamp(NOON.0 / MINUTE * MINUTE);
        let mut outcomes = Vec::new();

        for (after_ms, name) in [
            (0, "a"),
            (0, "b"),
            (2 * MINUTE - 1, "c"),
            // Used in its second window, it stays live for another one.
            (2 * MINUTE - 1, "b"),
            (2 * MINUTE, "c"),
            (2 * MINUTE, "d"),
            (3 * MINUTE, "d"),
        ] {
            let request = one(window(&keys, name, 1, &group));
            let reply = counters.consume_windows(&request, Some(start.plus_ms(after_ms))).await.unwrap();
            outcomes.push(reply.group_change);
        }

        let (grown, full) = (GroupChange::Grown, GroupChange::Full);
        assert_eq!(outcomes, [grown, grown, full, grown, grown, full, grown]);
    }

    async fn counter_stays_usable_in_its_next_window_when_no_other_may_be_created(counters, keys) {
        let (open, full) = (group(&keys, 3), group(&keys, 0));
        let start = Timestamp(NOON.0 / MINUTE * MINUTE);
        counters.consume_windows(&one(window(&keys, "a", 1, &open)), Some(start)).await.unwrap();

        let next = Some(start.plus_ms(MINUTE));
        let known = counters.consume_windows(&one(window(&keys, "a", 1, &full)), next).await.unwrap();
        let new = counters.consume_windows(&one(window(&keys, "b", 1, &full)), next).await.unwrap();

        assert_eq!((known.is_admitted, known.group_change), (true, GroupChange::Grown));
        assert_eq!((new.is_admitted, new.group_change), (false, GroupChange::Full));
    }

    async fn group_does_not_grow_when_nothing_is_consumed(counters, keys) {
        let group = group(&keys, 1);
        let refused = Window::new(keys.window("key_a", MINUTE, "r"), 0, MINUTE, 1);
        let request = vec![window(&keys, "a", 1, &group), refused];

        let denied = counters.consume_windows(&request, Some(NOON)).await.unwrap();
        let peek = counters.consume_windows(&one(window(&keys, "b", 0, &group)), Some(NOON)).await.unwrap();
        let first = counters.consume_windows(&one(window(&keys, "c", 1, &group)), Some(NOON)).await.unwrap();

        assert_eq!([denied.group_change, peek.group_change], [GroupChange::None; 2]);
        assert_eq!(first.group_change, GroupChange::Grown);
    }

    async fn group_is_exact_when_counters_are_created_concurrently(counters, keys) {
        let group = group(&keys, 10);
        let names: Vec<_> = (0..40).map(|n| format!("n{n}")).collect();
        let requests: Vec<_> = names.iter().map(|name| one(window(&keys, name, 1, &group))).collect();

        let outcomes = join_all(requests.iter().map(|request| counters.consume_windows(request, Some(NOON)))).await;

        let reply = outcomes.into_iter().filter(|reply| reply.as_ref().unwrap().is_admitted).count();
        assert_eq!(reply, 10);
    }
}

#[tokio::test]
async fn group_in_redis_expires_with_its_longest_counter() {
    let keys = Keyspace::new(format!("t{}:", random_letters()));
    let (counters, group) = (redis(), group(&keys, 10));
    let long = Window::new(keys.window("key_a", 60 * MINUTE, "a"), 5, 60 * MINUTE, 1);

    counters.consume_windows(&one(long.with_group(group.clone())), None).await.unwrap();
    counters.consume_windows(&one(window(&keys, "b", 1, &group)), None).await.unwrap();

    let ttl = ttl_ms(&keys.group("key_a")).await;
    assert!(ttl > 60 * MINUTE - 1000 && ttl <= 120 * MINUTE, "{ttl}");
}

#[tokio::test]
async fn estimate_of_the_counters_of_a_period_expires_when_none_is_live() {
    let keys = Keyspace::new(format!("t{}:", random_letters()));
    let address = RedisAddress::new(&redis_url(), &RedisTls::default());
    let timeout = Duration::from_secs(5);
    let counters = RedisCounters::new(address, timeout, keys.clone(), &Metrics::default()).unwrap();
    let totals = GroupTotals::default();
    let long = Window::new(keys.window("key_a", 60 * MINUTE, "a"), 5, 60 * MINUTE, 1);
    totals.record_growth(&one(long.with_group(group(&keys, 10))), NOON);
    let (period, hashes) = totals.drain().into_iter().next().expect("a period");

    counters.record_group_counters(&period, &hashes).await.unwrap();

    let (ttl, lifetime) = (ttl_ms(&keys.group_period(&period)).await, period.lifetime_ms());
    assert!(ttl > lifetime - MINUTE && ttl <= lifetime, "{ttl} of {lifetime}");
}

#[tokio::test]
async fn replica_without_redis_has_space_when_its_expired_counters_were_removed() {
    let keys = Keyspace::new(format!("t{}:", random_letters()));
    let (counters, group) = (redis(), group(&keys, 1));
    let alone = ReplicaRank { rank: 0, replica_count: 1 };
    // Noon was long before the machine's time.
    let clock = Clock::fixed_at(NOON);
    let admits = |name| {
        let windows = one(window(&keys, name, 1, &group));
        counters.consume_share(&windows, alone, true, None, &clock).0.is_admitted
    };
    assert!(admits("a") && !admits("b"));

    counters.remove_expired_groups();

    assert!(admits("b"));
}

#[tokio::test]
async fn local_counters_drop_groups_when_their_counters_have_expired() {
    let counters = local();
    let keys = Keyspace::new("");
    for n in 0..1000_i64 {
        let key = format!("key_{n}");
        let group = CounterGroup {
            name: keys.group(&key),
            workspace: if n < 300 { "ws_1".into() } else { "ws_2".into() },
            live_max: 10,
        };
        let at = if n < 100 { NOON.plus_ms(-3 * MINUTE) } else { NOON };
        let window = Window::new(keys.window(&key, MINUTE, "a"), 5, MINUTE, 1);
        counters.consume_at(&one(window.with_group(Arc::new(group))), at);
    }

    let totals = counters.count_group_counters();

    assert_eq!((totals[&"ws_1".into()], totals[&"ws_2".into()]), (200, 700));
}
