//! Scenarios in which units are given back, or counted although the call is refused.

use super::*;

fn counting_refused() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "a call that is refused counts where refused calls count, which closes a quota",
            namespace: json!({ "countRefused": true }),
            overrides: vec![("tokens=*", 100, MONTH), ("calls=*", 10, MONTH)],
            steps: vec![
                call(&["tokens=1 +0"], &["OK 100/100 MONTH"]),
                call(&["tokens=1 +60", "calls=1"], &["OK 40/100 MONTH", "OK 9/10 MONTH"]),
                call(&["tokens=1 +90", "calls=1"], &["OVER_LIMIT 0/100 MONTH", "OK 8/10 MONTH"]),
                call(&["tokens=1 +0", "calls=1"], &["OVER_LIMIT 0/100 MONTH", "OK 7/10 MONTH"]),
                call(&["tokens=2 +150"], &["OVER_LIMIT 0/100 MONTH"]),
                call(&["tokens=2 +0"], &["OVER_LIMIT 0/100 MONTH"]),
                call(&["tokens=2 -50"], &["OK 0/100 MONTH"]),
                call(&["tokens=2 +0"], &["OK 0/100 MONTH"]),
            ],
        },
        Scenario {
            name: "in shadow mode refused calls count where refused calls count",
            namespace: json!({ "mode": "shadow", "countRefused": true }),
            overrides: vec![("key=*", 2, MONTH)],
            steps: vec![
                call(&["key=1 +3"], &["OK 0/2 MONTH"]),
                call(&["key=1 -2"], &["OK 1/2 MONTH"]),
            ],
        },
    ]
}

fn giving_back() -> Vec<Scenario> {
    vec![
        scenario(
            "a quota of tokens is taken at most and then what was not needed given back",
            vec![("tokens=*", 1_000, MONTH)],
            vec![
                call(&["tokens=1 +600"], &["OK 400/1000 MONTH"]),
                call(&["tokens=1 +600"], &["OVER_LIMIT 0/1000 MONTH"]),
                call(&["tokens=1 -450"], &["OK 850/1000 MONTH"]),
                call(&["tokens=1 +600"], &["OK 250/1000 MONTH"]),
            ],
        ),
        scenario(
            "no more is given back than was taken",
            vec![("key=*", 10, MONTH)],
            vec![
                call(&["key=1 +10"], &["OK 0/10 MONTH"]),
                call(&["key=1"], &["OVER_LIMIT 0/10 MONTH"]),
                call(&["key=1 -4"], &["OK 4/10 MONTH"]),
                call(&["key=1 +0"], &["OK 4/10 MONTH"]),
                call(&["key=1 +5"], &["OVER_LIMIT 0/10 MONTH"]),
                call(&["key=1 -1000"], &["OK 10/10 MONTH"]),
                call(&["key=1 +11"], &["OVER_LIMIT 0/10 MONTH"]),
                call(&["key=1 +10"], &["OK 0/10 MONTH"]),
                call(&["key=2 -5"], &["OK 10/10 MONTH"]),
                call(&["key=2"], &["OK 9/10 MONTH"]),
            ],
        ),
        scenario(
            "units of the call are given back",
            vec![("key=*", 10, MONTH)],
            vec![
                call_with(6, &["key=1"], &["OK 4/10 MONTH"]),
                call_with(3, &["key=1 -"], &["OK 7/10 MONTH"]),
                // An absent number stands for 1.
                call(&["key=1 -"], &["OK 8/10 MONTH"]),
                call(&["key=1 -0"], &["OK 8/10 MONTH"]),
            ],
        ),
        scenario(
            "no limit refuses units that are given back",
            vec![("key=*", 10, MONTH)],
            vec![
                call(&["key=1 +8"], &["OK 2/10 MONTH"]),
                call(&["key=1 -1 @0/MONTH"], &["OK 0/0 MONTH"]),
                call(&["key=1 -1 @5/MONTH"], &["OK 0/5 MONTH"]),
                call(&["key=1 +0 @5/MONTH"], &["OVER_LIMIT 0/5 MONTH"]),
                call(&["key=1 -3 @5/MONTH"], &["OK 2/5 MONTH"]),
                call(&["other=1 -3"], &["OK"]),
            ],
        ),
        scenario(
            "what is given back does not depend on what is taken",
            vec![("key=*", 10, MONTH)],
            vec![
                call(&["key=1 +8", "key=2 +10"], &["OK 2/10 MONTH", "OK 0/10 MONTH"]),
                call(&["key=1 -3", "key=2"], &["OK 5/10 MONTH", "OVER_LIMIT 0/10 MONTH"]),
                call(&["key=1 -3 @1/MONTH", "key=3"], &["OK 0/1 MONTH", "OK 9/10 MONTH"]),
                call(&["key=1 +0"], &["OK 8/10 MONTH"]),
            ],
        ),
    ]
}

#[tokio::test]
async fn units_of_refused_calls_count_where_the_policy_says_so() {
    assert_answers_in_real_time(counting_refused).await;
}

#[tokio::test]
async fn units_are_given_back() {
    assert_answers_in_real_time(giving_back).await;
}

/// Redis adjusts counts by its own time.
async fn assert_answers_in_real_time(scenarios: fn() -> Vec<Scenario>) {
    for stack in [Stack::Embedded, Stack::Replica] {
        let kw = Keyward::start_in_real_time(stack).await;
        assert_answers(&kw, scenarios()).await;
    }
}
