//! Groups of ad-hoc counters: how many are live is bounded in the act that creates one.

use limiter::{CounterGroup, GroupChange};

use super::*;

fn group(keys: &Keyspace, live_max: u16) -> Arc<CounterGroup> {
    let workspace = "ws_default".into();
    Arc::new(CounterGroup { name: keys.group("key_a"), workspace, live_max })
}

fn window(keys: &Keyspace, name: &str, cost: i64, group: &Arc<CounterGroup>) -> Window {
    Window::new(keys.window("key_a", MINUTE, name), 5, MINUTE, cost).in_group(group.clone())
}

both_engines! {
    async fn group_refuses_a_new_counter_when_it_is_full(engine, keys) {
        let group = group(&keys, 3);
        let mut outcomes = Vec::new();

        for name in ["a", "b", "a", "c", "d", "c", "d"] {
            let taken = engine.consume_windows(&one(window(&keys, name, 1, &group)), Some(NOON)).await.unwrap();
            outcomes.push((taken.is_admitted, taken.group));
        }

        let (grown, none, full) =
            ((true, GroupChange::Grown), (true, GroupChange::None), (false, GroupChange::Full));
        assert_eq!(outcomes, [grown, grown, none, grown, full, none, full]);
    }

    /// A counter that had expired, and was forgotten, is live again for a clock that stepped back.
    async fn group_counts_a_counter_again_when_the_clock_steps_back(engine, keys) {
        let group = group(&keys, 2);
        let start = Timestamp(NOON.0 / MINUTE * MINUTE);
        let count = async |after_ms, names: &[&str]| {
            let take = |name: &&str| one(window(&keys, name, 1, &group));
            let takes: Vec<_> = names.iter().map(take).collect();
            let at = Some(start.plus_ms(after_ms));
            let taken = join_all(takes.iter().map(|take| engine.consume_windows(take, at))).await;
            taken.into_iter().map(|taken| taken.unwrap().group).collect::<Vec<_>>()
        };
        count(0, &["a"]).await;
        count(2 * MINUTE, &["b"]).await;

        let told = count(MINUTE, &["a", "c"]).await;

        assert_eq!(told, [GroupChange::Grown, GroupChange::Full]);
    }

    async fn group_refuses_all_windows_of_a_take_when_one_is_too_many(engine, keys) {
        let group = group(&keys, 3);
        let take = |names: &[&str]| -> Vec<_> {
            names.iter().map(|name| window(&keys, name, 1, &group)).collect()
        };
        let plain = Window::new(keys.window("key_a", MINUTE, "plain"), 5, MINUTE, 1);
        engine.consume_windows(&take(&["a", "b"]), Some(NOON)).await.unwrap();

        let mut too_many = take(&["a", "c", "d"]);
        too_many.push(plain.clone());
        let refused = engine.consume_windows(&too_many, Some(NOON)).await.unwrap();
        let fits = engine.consume_windows(&take(&["a", "c"]), Some(NOON)).await.unwrap();
        let untouched = engine.consume_windows(&one(plain), Some(NOON)).await.unwrap();

        assert_eq!((refused.is_admitted, refused.group), (false, GroupChange::Full));
        assert_eq!((fits.is_admitted, fits.windows[0].effective), (true, 1));
        assert_eq!(untouched.windows[0].effective, 0);
    }

    async fn group_has_room_when_a_counter_has_expired(engine, keys) {
        let group = group(&keys, 2);
        let start = Timestamp(NOON.0 / MINUTE * MINUTE);
        let mut outcomes = Vec::new();

        for (after_ms, name) in [
            (0, "a"),
            (0, "b"),
            (2 * MINUTE - 1, "c"),
            // Used in its second window, it is live for another one.
            (2 * MINUTE - 1, "b"),
            (2 * MINUTE, "c"),
            (2 * MINUTE, "d"),
            (3 * MINUTE, "d"),
        ] {
            let take = one(window(&keys, name, 1, &group));
            let taken = engine.consume_windows(&take, Some(start.plus_ms(after_ms))).await.unwrap();
            outcomes.push(taken.group);
        }

        let (grown, full) = (GroupChange::Grown, GroupChange::Full);
        assert_eq!(outcomes, [grown, grown, full, grown, grown, full, grown]);
    }

    async fn group_is_not_grown_when_nothing_is_taken(engine, keys) {
        let group = group(&keys, 1);
        let refused = Window::new(keys.window("key_a", MINUTE, "r"), 0, MINUTE, 1);
        let take = vec![window(&keys, "a", 1, &group), refused];

        let denied = engine.consume_windows(&take, Some(NOON)).await.unwrap();
        let peek = engine.consume_windows(&one(window(&keys, "b", 0, &group)), Some(NOON)).await.unwrap();
        let first = engine.consume_windows(&one(window(&keys, "c", 1, &group)), Some(NOON)).await.unwrap();

        assert_eq!([denied.group, peek.group], [GroupChange::None; 2]);
        assert_eq!(first.group, GroupChange::Grown);
    }

    async fn group_is_exact_when_counters_are_created_at_once(engine, keys) {
        let group = group(&keys, 10);
        let names: Vec<_> = (0..40).map(|n| format!("n{n}")).collect();
        let takes: Vec<_> = names.iter().map(|name| one(window(&keys, name, 1, &group))).collect();

        let outcomes = join_all(takes.iter().map(|take| engine.consume_windows(take, Some(NOON)))).await;

        let taken = outcomes.into_iter().filter(|taken| taken.as_ref().unwrap().is_admitted).count();
        assert_eq!(taken, 10);
    }
}

#[tokio::test]
async fn group_in_redis_lives_as_long_as_its_longest_counter() {
    let keys = Keyspace::new(format!("t{}:", random()));
    let (engine, group) = (redis(), group(&keys, 10));
    let long = Window::new(keys.window("key_a", 60 * MINUTE, "a"), 5, 60 * MINUTE, 1);

    engine.consume_windows(&one(long.in_group(group.clone())), None).await.unwrap();
    engine.consume_windows(&one(window(&keys, "b", 1, &group)), None).await.unwrap();

    let ttl = lifetime_ms(&keys.group("key_a")).await;
    assert!(ttl > 60 * MINUTE - 1000 && ttl <= 120 * MINUTE, "{ttl}");
}

#[tokio::test]
async fn local_counters_forget_groups_when_their_counters_have_expired() {
    let engine = local();
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
        engine.consume_at(&one(window.in_group(Arc::new(group))), at);
    }

    let totals = engine.count_groups();

    assert_eq!((totals[&"ws_1".into()], totals[&"ws_2".into()]), (200, 700));
}
