//! The overrides that replace the limit and the duration of a check.

use serde_json::json;

use super::MINUTE;
use crate::on_both_stacks;
use crate::support::NOON;

on_both_stacks! {
    async fn an_override_replaces_limit_and_duration(kw) {
        kw.check_limit("email.send", "other", json!({})).await.data();
        let id = kw.set_override("email.send", "user_1", json!({ "limit": 3, "duration": 2 * MINUTE })).await;

        let reply = kw.check_limit("email.send", "user_1", json!({})).await;

        let reset = (NOON.0 / (2 * MINUTE) + 1) * 2 * MINUTE;
        assert_eq!(*reply.data(), json!({ "success": true, "limit": 3, "remaining": 2, "reset": reset, "overrideId": id }));
        assert_eq!(kw.check_limit("email.send", "other", json!({})).await.data()["limit"], 10);
    }

    async fn an_override_of_0_always_denies(kw) {
        kw.check_limit("email.send", "other", json!({})).await.data();
        let id = kw.set_override("email.send", "user_1", json!({ "limit": 0 })).await;

        for cost in [0, 1] {
            assert_eq!(
                *kw.check_limit("email.send", "user_1", json!({ "cost": cost })).await.data(),
                json!({ "success": false, "limit": 0, "remaining": 0, "reset": NOON.0 + MINUTE, "overrideId": id }),
            );
        }
    }

    async fn the_exact_override_precedes_patterns_and_of_these_the_longest_counts(kw) {
        kw.check_limit("email.send", "somebody", json!({})).await.data();
        for (limit, identifier) in [
            (1, "*"),
            (2, "user_*"),
            (3, "*_vip"),
            (4, "user_*_vip"),
            (5, "user_1_vip"),
            (6, "u*r_*"),
            (7, "us*r_"),
        ] {
            kw.set_override("email.send", identifier, json!({ "limit": limit })).await;
            kw.clock.advance_ms(1);
        }

        for (identifier, limit) in [
            ("user_1_vip", 5),
            ("user_2_vip", 4),
            ("a_vip", 3),
            ("user_1", 2),
            ("uber_1", 6),
            ("User_1", 1),
            // Nothing that applies: a star stands for what is in one line.
            ("user_\n_vip", 10),
            ("user_vip", 2),
            ("user_*", 2),
            ("usr_", 7),
        ] {
            assert_eq!(kw.check_limit("email.send", identifier, json!({})).await.data()["limit"], limit, "{identifier:?}");
        }
    }

    async fn of_two_patterns_as_long_the_older_one_counts(kw) {
        kw.check_limit("email.send", "somebody", json!({})).await.data();
        for (limit, identifier) in [(1, "ab*"), (2, "*cd"), (3, "a*d")] {
            kw.set_override("email.send", identifier, json!({ "limit": limit })).await;
            kw.clock.advance_ms(1);
        }
        kw.set_override("email.send", "ab*", json!({ "limit": 4 })).await;

        assert_eq!(kw.check_limit("email.send", "abcd", json!({})).await.data()["limit"], 4);
        assert_eq!(kw.check_limit("email.send", "a-cd", json!({})).await.data()["limit"], 2);
    }

    async fn what_a_pattern_matches_is_counted_one_by_one(kw) {
        kw.check_limit("email.send", "somebody", json!({})).await.data();
        kw.set_override("email.send", "user_*", json!({ "limit": 1 })).await;

        for identifier in ["user_1", "user_2"] {
            let first = kw.check_limit("email.send", identifier, json!({})).await;
            let second = kw.check_limit("email.send", identifier, json!({})).await;

            assert_eq!((&first.data()["success"], &second.data()["success"]), (&json!(true), &json!(false)));
        }
    }

    async fn an_override_ends_with_its_last_moment(kw) {
        kw.check_limit("email.send", "user_1", json!({})).await.data();
        kw.set_override("email.send", "*", json!({ "limit": 4 })).await;
        kw.set_override("email.send", "user_1", json!({ "limit": 3, "expires": NOON.0 + 10 })).await;
        let limit = async || kw.check_limit("email.send", "user_1", json!({})).await.data()["limit"].clone();

        kw.clock.advance_ms(10);
        assert_eq!(limit().await, 3);
        kw.clock.advance_ms(1);
        assert_eq!(limit().await, 4);
    }
}
