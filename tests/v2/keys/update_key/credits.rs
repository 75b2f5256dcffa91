//! What becomes of a balance and its refill.

use futures_util::future::{join, join_all};
use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::{Keyward, Stack};

const HOUR: i64 = 3_600_000;

fn daily(amount: i64) -> Value {
    json!({ "interval": "daily", "amount": amount })
}

on_both_stacks! {
    async fn a_key_becomes_metered_and_unlimited_again(kw) {
        let key = kw.create_key(json!({})).await;

        kw.update_key(&key.id, json!({ "credits": { "remaining": 2 } })).await.data();
        let metered = kw.verify(&key.key).await;
        kw.update_key(&key.id, json!({ "credits": null })).await.data();
        let unlimited = kw.verify(&key.key).await;

        metered.assert_code("VALID");
        assert_eq!(metered.data()["credits"], 1);
        unlimited.assert_code("VALID");
        assert_eq!(unlimited.data().get("credits"), None);
        assert_eq!(kw.get_key(&key.id).await.get("credits"), None);
    }

    async fn null_clears_the_refill_with_the_balance(kw) {
        for cleared in [json!(null), json!({ "remaining": null })] {
            let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": daily(9) } })).await;

            kw.update_key(&key.id, json!({ "credits": cleared })).await.data();
            let unlimited = kw.get_key(&key.id).await;
            kw.update_key(&key.id, json!({ "credits": { "remaining": 3 } })).await.data();
            let metered = kw.get_key(&key.id).await;

            assert_eq!(unlimited.get("credits"), None);
            assert_eq!(metered["credits"], json!({ "remaining": 3 }));
        }
    }

    async fn a_balance_is_set_and_the_refill_stays(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": daily(9) } })).await;

        kw.update_key(&key.id, json!({ "credits": { "remaining": 3 } })).await.data();

        let told = kw.get_key(&key.id).await;
        assert_eq!(told["credits"], json!({ "remaining": 3, "refill": daily(9) }));
    }

    async fn a_refill_is_set_and_the_balance_stays(kw) {
        let monthly = json!({ "interval": "monthly", "amount": 50, "refillDay": 15 });
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;

        kw.update_key(&key.id, json!({ "credits": { "refill": daily(9) } })).await.data();
        let with_daily = kw.get_key(&key.id).await;
        kw.update_key(&key.id, json!({ "credits": { "refill": monthly } })).await.data();
        let with_monthly = kw.get_key(&key.id).await;

        assert_eq!(with_daily["credits"], json!({ "remaining": 5, "refill": daily(9) }));
        assert_eq!(with_monthly["credits"], json!({ "remaining": 5, "refill": monthly }));
    }

    async fn a_refill_is_cleared_and_the_balance_stays(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": daily(9) } })).await;

        kw.update_key(&key.id, json!({ "credits": { "refill": null } })).await.data();
        kw.clock.advance_ms(24 * HOUR);

        assert_eq!(kw.get_key(&key.id).await["credits"], json!({ "remaining": 5 }));
    }

    async fn balance_and_refill_are_set_together(kw) {
        let key = kw.create_key(json!({})).await;
        let credits = json!({ "remaining": 3, "refill": daily(9) });

        kw.update_key(&key.id, json!({ "credits": credits })).await.data();

        assert_eq!(kw.get_key(&key.id).await["credits"], credits);
    }

    async fn credits_without_a_field_change_nothing(kw) {
        let metered = kw.create_key(json!({ "credits": { "remaining": 5, "refill": daily(9) } })).await;
        let unlimited = kw.create_key(json!({})).await;

        for key in [&metered, &unlimited] {
            kw.update_key(&key.id, json!({ "credits": {} })).await.data();
        }

        let told = kw.get_key(&metered.id).await;
        assert_eq!(told["credits"], json!({ "remaining": 5, "refill": daily(9) }));
        assert_eq!(kw.get_key(&unlimited.id).await.get("credits"), None);
    }

    async fn a_refill_that_makes_no_sense_is_refused_and_nothing_changes(kw) {
        let metered = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;
        let unlimited = kw.create_key(json!({})).await;
        let refill = "/properties/credits/properties/refill";
        let day = "/properties/credits/properties/refill/properties/refillDay";
        for (key, credits, location) in [
            (&metered, json!({ "refill": { "interval": "monthly", "amount": 1 } }), day),
            (
                &metered,
                json!({ "refill": { "interval": "daily", "amount": 1, "refillDay": 1 } }),
                day,
            ),
            (&metered, json!({ "remaining": null, "refill": daily(1) }), refill),
            (&unlimited, json!({ "refill": daily(1) }), refill),
        ] {
            let change = json!({ "name": "for billing", "credits": credits });

            kw.update_key(&key.id, change).await.assert_field_error(location);
        }
        assert_eq!(kw.get_key(&metered.id).await["credits"], json!({ "remaining": 5 }));
        for key in [metered, unlimited] {
            assert_eq!(kw.get_key(&key.id).await.get("name"), None);
        }
    }

    async fn a_balance_that_is_set_is_exactly_what_can_be_spent(kw) {
        for (before, set) in [(5, 2), (5_000, 2), (2, 5_000), (5_000, 3_000)] {
            let key = kw.create_key(json!({ "credits": { "remaining": before } })).await;
            kw.verify(&key.key).await.assert_code("VALID");

            kw.update_key(&key.id, json!({ "credits": { "remaining": set } })).await.data();

            let over = kw.verify_with(&key.key, json!({ "credits": { "cost": set + 1 } })).await;
            let at = kw.verify_with(&key.key, json!({ "credits": { "cost": set } })).await;
            over.assert_code("USAGE_EXCEEDED");
            assert_eq!(over.data()["credits"], set);
            at.assert_code("VALID");
            assert_eq!(at.data()["credits"], 0);
        }
    }

    async fn a_change_of_the_refill_keeps_what_is_left(kw) {
        for balance in [5, 5_000] {
            let key = kw.create_key(json!({ "credits": { "remaining": balance } })).await;
            kw.verify(&key.key).await.assert_code("VALID");

            kw.update_key(&key.id, json!({ "credits": { "refill": daily(9) } })).await.data();

            let told = kw.get_key(&key.id).await;
            assert_eq!(told["credits"]["remaining"], balance - 1);
        }
    }

    async fn a_change_of_the_refill_among_verifications_loses_no_credit(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5_000 } })).await;

        let change = |amount: i64| json!({ "credits": { "refill": daily(amount) } });
        let (verified, changed) = join(
            join_all((0..20).map(|_| kw.verify(&key.key))),
            join_all((1..=4).map(|amount| kw.update_key(&key.id, change(amount)))),
        )
        .await;

        for reply in verified {
            reply.assert_code("VALID");
        }
        for reply in changed {
            reply.data();
        }
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 4_980);
    }

    async fn a_change_without_credits_keeps_what_is_left(kw) {
        for balance in [5, 5_000] {
            let key = kw.create_key(json!({ "credits": { "remaining": balance } })).await;
            kw.verify(&key.key).await.assert_code("VALID");

            kw.update_key(&key.id, json!({ "name": "for billing" })).await.data();

            assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], balance - 1);
            assert_eq!(kw.verify(&key.key).await.data()["credits"], balance - 2);
        }
    }

    async fn a_refused_change_keeps_what_is_left(kw) {
        let may_not_create = kw.create_root_key(["api.*.update_key"]).await;
        for balance in [5, 5_000] {
            let key = kw.create_key(json!({ "credits": { "remaining": balance } })).await;
            kw.verify(&key.key).await.assert_code("VALID");
            let roles = json!({ "credits": { "remaining": 1 }, "roles": ["nobody"] });
            let permissions = json!({
                "keyId": key.id, "credits": { "refill": daily(9) }, "permissions": ["nothing"],
            });

            kw.update_key(&key.id, roles).await.assert_error(404, "role_not_found");
            let reply = kw.v2_as(&may_not_create, "keys.updateKey", permissions).await;

            reply.assert_error(403, "insufficient_permissions");
            assert_eq!(kw.get_key(&key.id).await["credits"], json!({ "remaining": balance - 1 }));
        }
    }

    async fn an_exhausted_key_whose_uses_are_restored_verifies_again(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 0 } })).await;
        kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");

        kw.update_key(&key.id, json!({ "credits": { "remaining": 1 } })).await.data();

        kw.verify(&key.key).await.assert_code("VALID");
        kw.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
    }

    async fn a_balance_that_is_set_when_a_refill_is_due_is_not_refilled_over(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5, "refill": daily(9) } })).await;
        kw.clock.advance_ms(12 * HOUR);

        kw.update_key(&key.id, json!({ "credits": { "remaining": 3 } })).await.data();

        assert_eq!(kw.verify(&key.key).await.data()["credits"], 2);
        kw.clock.advance_ms(24 * HOUR);
        assert_eq!(kw.verify(&key.key).await.data()["credits"], 8);
    }

    async fn a_new_refill_falls_due_in_the_next_period(kw) {
        let key = kw.create_key(json!({ "credits": { "remaining": 5 } })).await;

        kw.update_key(&key.id, json!({ "credits": { "refill": daily(9) } })).await.data();

        kw.clock.advance_ms(12 * HOUR - 1);
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 5);
        kw.clock.advance_ms(1);
        assert_eq!(kw.get_key(&key.id).await["credits"]["remaining"], 9);
    }
}

#[tokio::test]
async fn a_balance_that_one_replica_sets_binds_the_other_at_once() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    for (before, set) in [(5, 2), (5_000, 2), (2, 5_000)] {
        let key = kw.create_key(json!({ "credits": { "remaining": before } })).await;
        other.verify(&key.key).await.assert_code("VALID");

        kw.update_key(&key.id, json!({ "credits": { "remaining": set } })).await.data();

        let cost = |cost: i64| json!({ "credits": { "cost": cost } });
        other.verify_with(&key.key, cost(set + 1)).await.assert_code("USAGE_EXCEEDED");
        other.verify_with(&key.key, cost(set)).await.assert_code("VALID");
    }
}
