//! Credits: how they are spent, and how they come back.

use foundation::config::Deployment;
use foundation::id::KeyId;
use serde_json::{Value, json};
use store::freshness::CacheTag;

use super::valid_at_once;
use crate::on_both_stacks;
use crate::support::process::free_port;
use crate::support::scenario::{pass, plain, read, update, verify};
use crate::support::version::Version::V2;
use crate::support::{Keyward, Stack};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// From [`crate::support::NOON`], the 10th of March 2026, to the next midnight.
const TO_MIDNIGHT: i64 = 12 * HOUR;

fn cost(cost: i64) -> Value {
    json!({ "credits": { "cost": cost } })
}

fn credits(remaining: i64) -> Value {
    json!({ "credits": { "remaining": remaining } })
}

fn daily(remaining: i64, amount: i64) -> Value {
    json!({ "credits": { "remaining": remaining, "refill": { "interval": "daily", "amount": amount } } })
}

fn monthly(day: u8) -> Value {
    let refill = json!({ "interval": "monthly", "amount": 100, "refillDay": day });
    json!({ "credits": { "remaining": 1, "refill": refill } })
}

fn with_limit(remaining: i64, limit: i64) -> Value {
    let limit =
        json!({ "name": "requests", "limit": limit, "duration": 60_000, "autoApply": true });
    json!({ "credits": { "remaining": remaining }, "ratelimits": [limit] })
}

/// What is left of a key's credits.
async fn left(kw: &Keyward, key_id: &str) -> i64 {
    kw.get_key(key_id).await["credits"]["remaining"].as_i64().expect("credits")
}

/// Ends the metering of a key as another replica does it, in the moment before this one hears of it.
async fn end_metering_unheard(kw: &Keyward, key_id: &str) {
    let mut tx = kw.store().begin().await.unwrap();
    tx.set_credits(&KeyId::from(key_id), None).await.unwrap();
    tx.commit().await.unwrap();
}

/// The fields of a key, the cost of each of several verifications at once, how many are valid, and the credits left.
fn concurrent() -> [(Value, usize, i64, usize, i64); 3] {
    [
        (credits(10), 20, 1, 10, 0),
        (credits(3_050), 40, 100, 30, 50),
        (with_limit(30, 12), 20, 2, 12, 6),
    ]
}

on_both_stacks! {
    async fn credits_are_spent_and_refilled(kw) {
        let told = |credits: i64| json!({ "credits": credits });
        let is_left = |credits: i64| read(json!({ "credits.remaining": credits }));
        let standing = |credits: i64, remaining: i64| json!({
            "credits": credits, "ratelimits.0.remaining": remaining, "ratelimits.0.exceeded": false,
        });
        let mut scenarios = vec![
            ("each verification spends one and tells the rest, and a refusal spends nothing", credits(3), vec![
                plain("VALID", told(2)), plain("VALID", told(1)), plain("VALID", told(0)), plain("USAGE_EXCEEDED", told(0)),
                plain("USAGE_EXCEEDED", told(0)), is_left(0),
            ]),
            ("a refusal by credits spends no limit", with_limit(2, 10), vec![
                verify(cost(3), "USAGE_EXCEEDED", standing(2, 10)), plain("VALID", standing(1, 9)),
            ]),
            ("cost 0 only looks and passes without credits", credits(1), vec![
                verify(cost(0), "VALID", told(1)), plain("VALID", told(0)), verify(cost(0), "VALID", told(0)),
            ]),
            ("a key without credits has no end and ignores the cost", json!({}), vec![verify(
                cost(1_000_000_000_000), "VALID", json!({ "credits": null }),
            )]),
            ("the largest cost is spent to the unit", credits(1_000_000_000_002), vec![
                plain("VALID", json!({})), verify(cost(1_000_000_000_000), "VALID", told(1)), is_left(1),
            ]),
            ("the largest balance is spent to the unit", credits(i64::MAX), vec![plain("VALID", told(i64::MAX - 1))]),
            ("no other refusal spends anything", with_limit(5, 1), vec![
                verify(json!({ "permissions": "a" }), "INSUFFICIENT_PERMISSIONS", told(5)),
                verify(json!({ "ratelimits": [{ "name": "requests", "cost": 2 }] }), "RATE_LIMITED", told(5)),
                update(json!({ "enabled": false })), plain("DISABLED", told(5)), is_left(5),
            ]),
            ("a daily refill falls due at midnight UTC", daily(1, 10), vec![
                plain("VALID", json!({})), pass(TO_MIDNIGHT - 1), plain("USAGE_EXCEEDED", json!({})), pass(1),
                plain("VALID", told(9)),
            ]),
            ("refills that were missed count once", daily(0, 10), vec![pass(30 * DAY), plain("VALID", told(9))]),
            ("a refill is due whoever asks", daily(0, 10), vec![
                update(json!({ "enabled": false })), pass(DAY), plain("DISABLED", told(10)),
            ]),
            ("a monthly refill falls due on its day", monthly(12), vec![
                pass(TO_MIDNIGHT + DAY - 1), is_left(1), pass(1), is_left(100),
            ]),
            // The 10th is today, and its midnight has passed.
            ("a monthly refill comes again a month later and not before", monthly(10), vec![
                pass(TO_MIDNIGHT + 30 * DAY - 1), is_left(1), pass(1), is_left(100),
            ]),
            // The 31st of March; April has 30 days.
            ("a month without the day refills on its last", monthly(31), vec![
                pass(TO_MIDNIGHT + 20 * DAY), verify(cost(100), "VALID", json!({})), pass(30 * DAY - 1), is_left(0), pass(1),
                is_left(100),
            ]),
        ];
        scenarios.extend([5, 999, 1_000, 5_000].map(|balance| {(
            "a cost that just fits is spent and one more spends nothing", credits(balance),
            vec![verify(cost(balance + 1), "USAGE_EXCEEDED", told(balance)), verify(cost(balance), "VALID", told(0))],
        )}));
        scenarios.extend([(0, "USAGE_EXCEEDED"), (7, "VALID"), (10, "VALID"), (5_000, "VALID")].map(|(balance, code)| {(
            "a refill sets the balance and adds nothing", daily(balance, 10),
            vec![plain(code, json!({})), pass(DAY), plain("VALID", told(9))],
        )}));
        scenarios.extend([2, 2_000].map(|amount| {("a refill happens once in its period", daily(0, amount), vec![
            pass(DAY), verify(cost(amount), "VALID", json!({})), pass(HOUR), plain("USAGE_EXCEEDED", json!({})), pass(DAY - HOUR),
            verify(cost(amount), "VALID", json!({})),
        ])}));
        kw.run(V2, scenarios).await;
    }

    async fn verifications_at_once_spend_to_the_unit(kw) {
        for (fields, times, each, valid, rest) in concurrent() {
            let key = kw.create_key(fields.clone()).await;
            let found = valid_at_once(&[&kw], &key.key, times, cost(each)).await;
            assert_eq!((found, left(&kw, &key.id).await), (valid, rest), "{fields}");
        }
    }

    async fn a_key_whose_metering_ended_unheard_is_not_exhausted(kw) {
        let key = kw.create_key(credits(5)).await;
        kw.verify(&key.key).await.assert_code("VALID");

        end_metering_unheard(&kw, &key.id).await;

        kw.verify(&key.key).await.assert_code("VALID");
    }
}

#[tokio::test]
async fn a_key_whose_metering_ended_unheard_needs_no_redis() {
    let kw = Keyward::start_with(Stack::Replica, |settings| {
        if let Deployment::Replica { redis_url, .. } = &mut settings.deployment {
            *redis_url = format!("redis://127.0.0.1:{}", free_port());
        }
    })
    .await;
    let key = kw.create_key(credits(5)).await;
    kw.verify(&key.key).await.assert_code("VALID");

    end_metering_unheard(&kw, &key.id).await;

    let reply = kw.verify(&key.key).await;
    reply.assert_code("VALID");
    assert_eq!(reply.body["meta"]["degraded"], Value::Null, "{reply}");
}

#[tokio::test]
async fn verifications_at_once_on_two_replicas_spend_to_the_unit() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    for (fields, times, each, valid, rest) in concurrent() {
        let key = kw.create_key(fields.clone()).await;
        assert_eq!(valid_at_once(&[&kw, &other], &key.key, times, cost(each)).await, valid);
        assert_eq!(
            (left(&kw, &key.id).await, left(&other, &key.id).await),
            (rest, rest),
            "{fields}"
        );
    }
}

#[tokio::test]
async fn two_replicas_that_find_a_refill_due_at_once_refill_once() {
    let kw = Keyward::start(Stack::Replica).await;
    let other = kw.replica().await;
    let key = kw.create_key(daily(0, 10)).await;
    other.verify(&key.key).await.assert_code("USAGE_EXCEEDED");
    kw.clock.advance_ms(DAY);

    let valid = valid_at_once(&[&kw, &other], &key.key, 20, json!({})).await;

    assert_eq!((valid, left(&kw, &key.id).await), (10, 0));
}

#[tokio::test]
async fn a_number_that_no_purse_has_sends_a_take_to_the_bank_and_not_all() {
    let kw = Keyward::start(Stack::Replica).await;
    let key = kw.create_key(credits(1_000)).await;
    kw.verify(&key.key).await.assert_code("VALID");
    let id = KeyId::from(key.id.as_str());
    let mut tx = kw.store().begin().await.unwrap();
    let mut account = tx.lock_account(&id).await.unwrap().unwrap();
    account.credits.last_lease_number += 1;
    tx.update_balance(&id, &account.credits).await.unwrap();
    tx.record_change(CacheTag::Key(id));
    kw.app.context.commit(tx).await.unwrap();
    let before = kw.app.context.metrics.lease_top_ups.get();

    for _ in 0..20 {
        kw.verify(&key.key).await.assert_code("VALID");
    }

    // The change comes by three ways, and each may have the key read again.
    let withdrawn = kw.app.context.metrics.lease_top_ups.get() - before;
    assert!(withdrawn <= 3, "{withdrawn}");
}
