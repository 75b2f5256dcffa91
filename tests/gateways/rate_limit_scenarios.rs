//! What the rate-limit service answers call by call, in the cases that operators of such a service know: quotas, values without
//! a limit of their own, nested descriptors, units that are looked at, taken and given back.

mod adjusting;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use foundation::clock::DAY_MS;
use serde_json::{Value, json};

use super::rate_limit::Client;
use super::rate_limit_status::{is_ok, render};
use crate::on_both_stacks;
use crate::support::{Keyward, Stack};

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 3_600_000;
const MONTH: i64 = 30 * DAY_MS;

/// Calls in one namespace, one after the other.
struct Scenario {
    name: &'static str,
    /// What the policy says of the namespace.
    namespace: Value,
    /// The identifier or pattern of each override, its limit and its duration.
    overrides: Vec<(&'static str, i64, i64)>,
    steps: Vec<Step>,
}

fn scenario(
    name: &'static str,
    overrides: Vec<(&'static str, i64, i64)>,
    steps: Vec<Step>,
) -> Scenario {
    Scenario { name, namespace: json!({}), overrides, steps }
}

enum Step {
    /// A call with its `hits_addend` and its descriptors, and the status of each; see [`descriptor`] and [`render`].
    Call(u32, Vec<String>, Vec<String>),
    Pass(i64),
}

use Step::Pass;

fn call(descriptors: &[&str], statuses: &[&str]) -> Step {
    call_with(0, descriptors, statuses)
}

fn call_with(hits_addend: u32, descriptors: &[&str], statuses: &[&str]) -> Step {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Step::Call(hits_addend, owned(descriptors), owned(statuses))
}

/// Parses a descriptor: its entries as `key=value|key=value`, then after spaces `+5` units to take, `-5` units to give back, `-`
/// to give back those of the call, and `@20/MINUTE` a limit of its own.
pub fn descriptor(text: &str) -> RateLimitDescriptor {
    let mut words = text.split(' ');
    let to_entry = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap();
        Entry { key: key.to_owned(), value: value.to_owned() }
    };
    let entries = words.next().unwrap().split('|').map(to_entry).collect();
    let mut descriptor = RateLimitDescriptor { entries, ..RateLimitDescriptor::default() };
    for word in words {
        let (kind, rest) = word.split_at(1);
        if kind == "@" {
            let (limit, unit) = rest.split_once('/').unwrap();
            let unit = RateLimitUnit::from_str_name(unit).unwrap().into();
            let requests_per_unit = limit.parse().unwrap();
            descriptor.limit = Some(RateLimitOverride { requests_per_unit, unit });
            continue;
        }
        descriptor.is_negative_hits = kind == "-";
        descriptor.hits_addend = rest.parse().ok().map(|value| UInt64Value { value });
    }
    descriptor
}

async fn assert_answers(kw: &Keyward, scenarios: Vec<Scenario>) {
    let name = |at: usize| format!("scenario-{at}");
    let namespace = |(at, scenario): (usize, &Scenario)| {
        let mut namespace = scenario.namespace.clone();
        namespace["namespace"] = json!(name(at));
        namespace
    };
    let namespaces: Vec<_> = scenarios.iter().enumerate().map(namespace).collect();
    let mut client = Client::with_policy(kw, json!(namespaces)).await;
    for (at, scenario) in scenarios.into_iter().enumerate() {
        for (identifier, limit, duration) in scenario.overrides {
            let fields = json!({ "limit": limit, "duration": duration });
            kw.set_override(&name(at), identifier, fields).await;
        }
        for (step, expected) in scenario.steps.into_iter().enumerate() {
            let what = format!("{}, step {step}", scenario.name);
            let (hits_addend, descriptors, statuses) = match expected {
                Step::Call(hits_addend, descriptors, statuses) => {
                    (hits_addend, descriptors, statuses)
                }
                Pass(ms) => {
                    kw.clock.advance_ms(ms);
                    continue;
                }
            };
            let sent: Vec<_> = descriptors.iter().map(|text| descriptor(text)).collect();
            let response = client.send(&name(at), hits_addend, sent.clone()).await.unwrap();
            let found: Vec<_> = response.statuses.iter().map(render).collect();
            assert_eq!(found, statuses, "{what}: {descriptors:?}");
            let is_any_over = statuses.iter().any(|status| status.starts_with("OVER_LIMIT"));
            assert_eq!(is_ok(&response), !is_any_over, "{what}: {descriptors:?}");
            let has_retry_after = |response: &RateLimitResponse| {
                response.response_headers_to_add.iter().any(|header| header.key == "retry-after")
            };
            // Whoever takes more than a limit has, or anything of a limit of 0, waits in vain.
            let is_hopeless = sent.iter().zip(&response.statuses).any(|(sent, status)| {
                let units = sent.hits_addend.map_or(u64::from(hits_addend), |hits| hits.value);
                let limit = status.current_limit.as_ref().map(|limit| limit.requests_per_unit);
                let is_too_little = limit.is_some_and(|limit| u64::from(limit) < units.max(1));
                render(status).starts_with("OVER_LIMIT") && is_too_little
            });
            assert_eq!(has_retry_after(&response), is_any_over && !is_hopeless, "{what}");
        }
    }
}

/// Which limit applies to a descriptor.
fn matching() -> Vec<Scenario> {
    vec![
        scenario(
            "a descriptor without a limit is not counted",
            vec![],
            vec![
                call(&["hello=world"], &["OK"]),
                call_with(1000, &["hello=world", "hello=you"], &["OK", "OK"]),
            ],
        ),
        scenario(
            "an entry with any value has a limit for each value",
            vec![("key2=*", 2, MINUTE)],
            vec![
                call(&["key2=a"], &["OK 1/2 MINUTE"]),
                call(&["key2=b"], &["OK 1/2 MINUTE"]),
                call(&["key2=a"], &["OK 0/2 MINUTE"]),
                call(&["key2=a"], &["OVER_LIMIT 0/2 MINUTE"]),
                call(&["key2=b"], &["OK 0/2 MINUTE"]),
                call(&["key3=a"], &["OK"]),
            ],
        ),
        scenario(
            "a limit for one value wins over that for any value, and 0 refuses it",
            vec![
                ("address=*", 10, SECOND),
                ("address=50.0.0.5", 0, SECOND),
                ("address=50.0.0.6", 2, SECOND),
            ],
            vec![
                call(&["address=50.0.0.1"], &["OK 9/10 SECOND"]),
                call(&["address=50.0.0.5"], &["OVER_LIMIT 0/0 SECOND"]),
                call(&["address=50.0.0.5 +0"], &["OVER_LIMIT 0/0 SECOND"]),
                call(&["address=50.0.0.6"], &["OK 1/2 SECOND"]),
            ],
        ),
        scenario(
            "nested entries have a limit of their own",
            vec![("message=marketing|number=*", 5, DAY_MS), ("number=*", 100, DAY_MS)],
            vec![
                call(&["message=marketing|number=1", "number=1"], &["OK 4/5 DAY", "OK 99/100 DAY"]),
                call(&["message=marketing|number=2", "number=2"], &["OK 4/5 DAY", "OK 99/100 DAY"]),
                call(&["message=marketing"], &["OK"]),
                call(&["message=other|number=1", "number=1"], &["OK", "OK 98/100 DAY"]),
            ],
        ),
        scenario(
            "the longest pattern applies, which may contain several entries",
            vec![("foo=*", 2, MINUTE), ("foo=*|bar=*", 3, MINUTE), ("foo=*|bar=banned", 0, MINUTE)],
            vec![
                call(&["foo=1"], &["OK 1/2 MINUTE"]),
                call(&["foo=1|bar=2"], &["OK 2/3 MINUTE"]),
                call(&["foo=1|bar=banned"], &["OVER_LIMIT 0/0 MINUTE"]),
                // A star stands for further entries, too.
                call(&["foo=1|other=2"], &["OK 1/2 MINUTE"]),
            ],
        ),
        scenario(
            "a part of a value is a pattern",
            vec![("file=files/*", 10, HOUR)],
            vec![
                call(&["file=files/a.pdf"], &["OK 9/10 HOUR"]),
                call(&["file=files/b.csv"], &["OK 9/10 HOUR"]),
                call(&["file=other/a.pdf"], &["OK"]),
            ],
        ),
        scenario(
            "keys and values are case-sensitive",
            vec![("key=Value", 2, HOUR)],
            vec![
                call(&["key=Value"], &["OK 1/2 HOUR"]),
                call(&["key=value", "Key=Value"], &["OK", "OK"]),
            ],
        ),
        scenario(
            "a limit of the descriptor wins over every other",
            vec![("key=*", 10, HOUR)],
            vec![
                call(&["key=1 @3/MINUTE"], &["OK 2/3 MINUTE"]),
                call(&["key=1"], &["OK 9/10 HOUR"]),
                call(&["key=1 @0/MINUTE"], &["OVER_LIMIT 0/0 MINUTE"]),
                call(&["key=1 @3/MINUTE"], &["OK 1/3 MINUTE"]),
            ],
        ),
        Scenario {
            name: "the limit of the policy applies to what has no other",
            namespace: json!({ "defaultLimit": { "limit": 4, "duration": MINUTE } }),
            overrides: vec![("plan=pro|*", 1_000, MINUTE)],
            steps: vec![
                call(&["user=1"], &["OK 3/4 MINUTE"]),
                call(&["plan=pro|user=1"], &["OK 999/1000 MINUTE"]),
                call(&["user=1 @9/DAY"], &["OK 8/9 DAY"]),
                call(&["user=1"], &["OK 2/4 MINUTE"]),
            ],
        },
    ]
}

/// Which limit applies to values that clients choose.
fn matching_any_value() -> Vec<Scenario> {
    // More characters than an identifier may have, of which the first values take all.
    let [long, other] = ["a", "b"].map(|letter| letter.repeat(600));
    let of = |first: &str, second: &str| format!("foo={first}|bar={second}");
    vec![
        scenario(
            "a long value does not hide the entries after it",
            vec![("foo=*|bar=*", 3, MINUTE), ("foo=*|bar=banned", 0, MINUTE)],
            vec![
                call(&[&of(&long, "2")], &["OK 2/3 MINUTE"]),
                call(&[&of(&long, "2")], &["OK 1/3 MINUTE"]),
                call(&[&of(&other, "2")], &["OK 2/3 MINUTE"]),
                call(&[&of(&long, &other)], &["OK 2/3 MINUTE"]),
                call(&[&of(&long, "banned")], &["OVER_LIMIT 0/0 MINUTE"]),
                call(&[&of("1", &long)], &["OK 2/3 MINUTE"]),
                call(&[&format!("foo={long}")], &["OK"]),
            ],
        ),
        scenario(
            "a star stands for a value with a newline, too",
            vec![("user=*", 2, MINUTE), ("user=*|path=/a*", 1, MINUTE)],
            vec![
                call(&["user=a\nb"], &["OK 1/2 MINUTE"]),
                call(&["user=a\nb"], &["OK 0/2 MINUTE"]),
                call(&["user=a\nb"], &["OVER_LIMIT 0/2 MINUTE"]),
                call(&["user=ab"], &["OK 1/2 MINUTE"]),
                call(&["user=\n|path=/a\n"], &["OK 0/1 MINUTE"]),
            ],
        ),
    ]
}

/// How calls are counted.
fn counting() -> Vec<Scenario> {
    let countdown = (0..25).map(|at| match at {
        0..20 => call(&["key2=1"], &[&format!("OK {}/20 MINUTE", 19 - at)]),
        _ => call(&["key2=1"], &["OVER_LIMIT 0/20 MINUTE"]),
    });
    let both = |at: i32| match at {
        0..10 => [format!("OK {}/20 MINUTE", 19 - at), format!("OK {}/10 HOUR", 9 - at)],
        // The first one is not taken either.
        _ => ["OK 10/20 MINUTE".to_owned(), "OVER_LIMIT 0/10 HOUR".to_owned()],
    };
    let both = (0..15).map(|at| {
        let [first, second] = both(at);
        call(&["key2=1", "key3=1"], &[&first, &second])
    });
    vec![
        scenario("calls up to the limit pass", vec![("key2=*", 20, MINUTE)], countdown.collect()),
        scenario(
            "a descriptor that is refused is a reason to take none",
            vec![("key2=*", 20, MINUTE), ("key3=*", 10, HOUR)],
            both.collect(),
        ),
        scenario(
            "the same descriptor twice counts twice",
            vec![("key=*", 3, MINUTE)],
            vec![
                call(&["key=1", "key=1"], &["OK 2/3 MINUTE", "OK 1/3 MINUTE"]),
                call(&["key=1 +0"], &["OK 1/3 MINUTE"]),
            ],
        ),
    ]
}

/// What a call takes, and for how long it counts.
fn taking() -> Vec<Scenario> {
    vec![
        scenario(
            "units are those of the descriptor, or else of the call",
            vec![("key=*", 100, MINUTE)],
            vec![
                call_with(5, &["key=a", "key=b +20"], &["OK 95/100 MINUTE", "OK 80/100 MINUTE"]),
                call_with(96, &["key=a"], &["OVER_LIMIT 0/100 MINUTE"]),
                call_with(95, &["key=a"], &["OK 0/100 MINUTE"]),
                call(&["key=b"], &["OK 79/100 MINUTE"]),
            ],
        ),
        scenario(
            "0 units are a look",
            vec![("key=*", 2, MINUTE)],
            vec![
                call(&["key=1 +0"], &["OK 2/2 MINUTE"]),
                call_with(7, &["key=1 +0"], &["OK 2/2 MINUTE"]),
                call(&["key=1 +2"], &["OK 0/2 MINUTE"]),
                call(&["key=1 +0"], &["OK 0/2 MINUTE"]),
                call(&["key=1 +0", "key=2"], &["OK 0/2 MINUTE", "OK 1/2 MINUTE"]),
            ],
        ),
        scenario(
            "a window slides",
            vec![("key=*", 10, MINUTE)],
            vec![
                call(&["key=1 +10"], &["OK 0/10 MINUTE"]),
                Pass(MINUTE),
                call(&["key=1"], &["OVER_LIMIT 0/10 MINUTE"]),
                // Half of the last window still counts.
                Pass(MINUTE / 2),
                call(&["key=1 +5"], &["OK 0/10 MINUTE"]),
                Pass(2 * MINUTE),
                call(&["key=1 +10"], &["OK 0/10 MINUTE"]),
            ],
        ),
        Scenario {
            name: "in shadow mode everything is admitted, and what is refused is not taken",
            namespace: json!({ "mode": "shadow" }),
            overrides: vec![("key=*", 2, MINUTE)],
            steps: vec![
                call(&["key=1 +3", "key=2"], &["OK 0/2 MINUTE", "OK 2/2 MINUTE"]),
                call(&["key=1 +2"], &["OK 0/2 MINUTE"]),
                call(&["key=1"], &["OK 0/2 MINUTE"]),
            ],
        },
    ]
}

on_both_stacks! {
    async fn limit_is_the_most_specific_one(kw) {
        assert_answers(&kw, matching()).await;
    }

    async fn limit_is_found_whatever_a_value_is(kw) {
        assert_answers(&kw, matching_any_value()).await;
    }

    async fn calls_are_counted_up_to_the_limit(kw) {
        assert_answers(&kw, counting()).await;
    }

    async fn units_are_taken_as_the_call_says(kw) {
        assert_answers(&kw, taking()).await;
    }
}
