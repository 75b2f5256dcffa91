use analytics::writer;
use serde_json::{Value, json};

use crate::support::{Keyward, NOON, Reply, Stack};
use crate::{on_both_stacks, on_every_event_store};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// The beginning of the day of `NOON`, and of its month.
const MIDNIGHT: i64 = NOON.0 - 12 * HOUR;
const MARCH: i64 = 1_772_323_200_000;

async fn get(kw: &Keyward, query: &str) -> Reply {
    kw.v1_get("analytics.getVerifications", query).await
}

/// What an API's verifications came to, of all time.
async fn rows(kw: &Keyward, api: &str, query: &str) -> Vec<Value> {
    let end = NOON.0 + 400 * DAY;
    let reply = get(kw, &format!("apiId={api}&start=0&end={end}&{query}")).await;
    reply.v1_body().as_array().expect("a list").clone()
}

fn sums(of: &Value) -> Value {
    let mut sums = json!({
        "valid": 0, "notFound": 0, "forbidden": 0, "usageExceeded": 0, "rateLimited": 0,
        "unauthorized": 0, "disabled": 0, "insufficientPermissions": 0, "expired": 0, "total": 0
    });
    for (field, value) in of.as_object().unwrap() {
        sums[field] = value.clone();
    }
    sums
}

on_every_event_store! {
    async fn every_outcome_is_counted_for_itself(kw) {
        let api = kw.create_api().await;
        let limit = json!({ "name": "default", "limit": 1, "duration": 60_000, "autoApply": true });
        let key = kw.create_key_in(&api, json!({ "ratelimits": [limit] })).await;
        let metered = kw.create_key_in(&api, json!({ "credits": { "remaining": 1 } })).await;
        let disabled = kw.create_key_in(&api, json!({ "enabled": false })).await;
        let expired = kw.create_key_in(&api, json!({ "expires": 1 })).await;
        let other = kw.create_key(json!({})).await;
        for shown in [&key, &key, &metered, &metered, &metered, &disabled, &expired, &other] {
            kw.verify(&shown.key).await.data();
        }
        let body = json!({ "authorization": { "permissions": "a" } });
        kw.verify_v1(&key.key, body).await.assert_v1_code("INSUFFICIENT_PERMISSIONS");
        kw.verify_v1(&key.key, json!({ "apiId": "api_other" })).await.assert_v1_code("FORBIDDEN");
        kw.write_events().await;

        let told = rows(&kw, &api, "").await;

        let due = json!({
            "valid": 2, "rateLimited": 1, "usageExceeded": 2, "disabled": 1, "expired": 1,
            "insufficientPermissions": 1, "forbidden": 1, "total": 9
        });
        assert_eq!(told, [sums(&due)]);
    }

    async fn what_is_summed_up_and_what_is_not_yet_is_told_together(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        writer::roll_up(&kw.app.analytics).await.unwrap();
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;

        for group in ["", "groupBy=hour&limit=1&orderBy=total&order=desc", "groupBy=key"] {
            assert_eq!(rows(&kw, &api, group).await[0]["total"], 2, "{group}");
        }
    }

    async fn an_api_of_which_no_key_was_used_has_one_row_of_zeros(kw) {
        let api = kw.create_api().await;
        kw.write_events().await;
        assert_eq!(rows(&kw, &api, "").await, [sums(&json!({}))]);
        assert_eq!(rows(&kw, &api, "groupBy=key").await, [json!(null); 0]);
    }

    async fn every_slice_of_time_is_told_whether_something_happened_or_not(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.clock.advance_ms(30_000);
        kw.verify(&key.key).await.assert_code("VALID");
        kw.clock.advance_ms(2 * HOUR);
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;

        let (start, end) = (NOON.0 - HOUR / 2, NOON.0 + 3 * HOUR + HOUR / 2);
        let query = format!("apiId={api}&start={start}&end={end}&groupBy=hour");
        let told = get(&kw, &query).await.v1_body().clone();

        let slice = |hour: i64, total: i64| {
            sums(&json!({ "time": NOON.0 + hour * HOUR, "valid": total, "total": total }))
        };
        assert_eq!(told, json!([slice(-1, 0), slice(0, 1), slice(1, 0), slice(2, 1)]));
    }

    async fn a_slice_that_holds_the_end_is_told_where_something_happened_in_it(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;

        let times = async |start: i64, end: i64, unit: &str| -> Vec<i64> {
            let query = format!("apiId={api}&start={start}&end={end}&groupBy={unit}");
            let reply = get(&kw, &query).await;
            reply.v1_body().as_array().unwrap().iter().map(|row| row["time"].as_i64().unwrap()).collect()
        };

        assert_eq!(times(NOON.0 - HOUR, NOON.0, "hour").await, [NOON.0 - HOUR, NOON.0]);
        assert_eq!(times(NOON.0 - 2 * HOUR, NOON.0 - 1, "hour").await, [NOON.0 - 2 * HOUR]);
        // An hour that began before the start is left out, a day and a month are not.
        let (hour, day) = (times(NOON.0 + 1, NOON.0 + 2, "hour"), times(NOON.0, NOON.0 + 1, "day"));
        assert_eq!((hour.await, day.await), (vec![], vec![MIDNIGHT]));
        assert_eq!(times(NOON.0, NOON.0 + 1, "month").await, [MARCH]);
        assert_eq!(times(NOON.0, NOON.0 + 1, "hour,day,month").await, [MARCH]);
    }

    async fn thirty_hours_in_which_nothing_happened_are_thirty_rows(kw) {
        let api = kw.create_api().await;
        kw.write_events().await;
        let query = format!("apiId={api}&start={}&end={}&groupBy=hour", NOON.0 - 30 * HOUR, NOON.0);
        assert_eq!(get(&kw, &query).await.v1_body().as_array().unwrap().len(), 30);
    }

    async fn get_verifications_fills_slices_at_the_requested_end(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        let end = NOON.0 + HOUR;
        let slices = async |order: &str| -> Vec<(Value, Value)> {
            let reply = get(&kw, &format!("apiId={api}&start=0&end={end}&groupBy=hour&{order}")).await;
            let rows = reply.v1_body().as_array().unwrap().iter();
            rows.map(|row| (row["time"].clone(), row["total"].clone())).collect()
        };
        let last_day: Vec<_> =
            (0..24).map(|hour| (json!(NOON.0 - hour * HOUR), json!(i64::from(hour == 0)))).collect();

        assert_eq!(slices("order=desc&limit=24").await, last_day);
        assert_eq!(slices("orderBy=time&limit=2").await, [(json!(0), json!(0)), (json!(HOUR), json!(0))]);
        assert_eq!(slices("orderBy=total&order=desc&limit=2").await, [last_day[0].clone(), (json!(0), json!(0))]);
    }

    async fn keys_and_identities_are_told_for_themselves(kw) {
        let api = kw.create_api().await;
        let ann = kw.create_key_in(&api, json!({ "externalId": "ann" })).await;
        let second = kw.create_key_in(&api, json!({ "externalId": "ann" })).await;
        let nobody = kw.create_key_in(&api, json!({})).await;
        for (key, times) in [(&ann, 1), (&second, 2), (&nobody, 4)] {
            for _ in 0..times {
                kw.verify(&key.key).await.assert_code("VALID");
            }
        }
        kw.write_events().await;

        let by_key = rows(&kw, &api, "groupBy=key&orderBy=total&order=desc").await;
        let by_identity = rows(&kw, &api, "groupBy=identity&orderBy=total").await;
        let busiest = rows(&kw, &api, "groupBy=key&orderBy=total&order=desc&limit=2").await;
        let top = rows(&kw, &api, "groupBy=key,identity&orderBy=valid&order=desc&limit=2").await;

        let keys: Vec<_> = by_key.iter().map(|row| (row["keyId"].clone(), row["total"].clone())).collect();
        assert_eq!(keys, [(json!(nobody.id), json!(4)), (json!(second.id), json!(2)), (json!(ann.id), json!(1))]);
        assert_eq!(busiest, by_key[..2]);
        assert_eq!(by_identity[0]["identity"]["externalId"], "ann");
        assert_eq!(by_identity[0]["total"], 3);
        assert_eq!((by_identity[1].get("identity"), &by_identity[1]["total"]), (None, &json!(4)));
        assert_eq!(top.len(), 2);
        assert_eq!((&top[1]["keyId"], &top[1]["identity"]["externalId"]), (&json!(second.id), &json!("ann")));
    }

    async fn tags_are_told_each_or_together(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        for tags in [json!(["a", "b"]), json!(["b", "a", "a"]), json!(["b"]), json!([])] {
            kw.v2("keys.verifyKey", json!({ "key": key.key, "tags": tags })).await.assert_code("VALID");
        }
        kw.write_events().await;
        let told = |rows: Vec<Value>, field: &str| -> Vec<(Value, Value)> {
            rows.iter().map(|row| (row[field].clone(), row["total"].clone())).collect()
        };

        assert_eq!(told(rows(&kw, &api, "groupBy=tag").await, "tag"), [(json!("a"), json!(2)), (json!("b"), json!(3))]);
        let top = rows(&kw, &api, "groupBy=tag&orderBy=total&order=desc&limit=1").await;
        assert_eq!(told(top, "tag"), [(json!("b"), json!(3))]);
        assert_eq!(
            told(rows(&kw, &api, "groupBy=tags").await, "tags"),
            [(json!([]), json!(1)), (json!(["a", "b"]), json!(2)), (json!(["b"]), json!(1))],
        );

        assert_eq!(rows(&kw, &api, "tag=b").await[0]["total"], 3);
        assert_eq!(rows(&kw, &api, "tag=a&tag=b").await[0]["total"], 2);
        assert_eq!(rows(&kw, &api, "tag=a,b").await[0]["total"], 2);
        assert_eq!(rows(&kw, &api, "tag=c").await[0]["total"], 0);
    }

    async fn what_is_asked_for_by_key_or_user_is_of_these_alone(kw) {
        let api = kw.create_api().await;
        let ann = kw.create_key_in(&api, json!({ "externalId": "ann" })).await;
        let bob = kw.create_key_in(&api, json!({ "externalId": "bob" })).await;
        let eve = kw.create_key_in(&api, json!({})).await;
        for key in [&ann, &bob, &bob, &eve, &eve, &eve] {
            kw.verify(&key.key).await.assert_code("VALID");
        }
        kw.write_events().await;

        let total = async |query: &str| rows(&kw, &api, query).await[0]["total"].clone();

        assert_eq!(total("externalId=bob").await, 2);
        assert_eq!(total(&format!("keyId={}", eve.id)).await, 3);
        assert_eq!(total(&format!("keyId={}&keyId={}", eve.id, ann.id)).await, 4);
        assert_eq!(total(&format!("keyId={},{}", eve.id, ann.id)).await, 4);
        assert_eq!(total(&format!("keyId={}&externalId=bob", eve.id)).await, 0);
        get(&kw, &format!("apiId={api}&start=0&externalId=nobody")).await.assert_v1_error(404, "NOT_FOUND");
    }

    async fn nothing_of_another_workspace_is_told(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        let stranger = kw.create_other_workspace().await;

        let query = format!("apiId={api}&start=0");
        kw.v1_get_as(&stranger, "analytics.getVerifications", &query).await.assert_v1_error(404, "NOT_FOUND");
    }

    async fn a_root_key_may_be_bound_to_one_api(kw) {
        let (api, other) = (kw.create_api().await, kw.create_api().await);
        let key = kw.create_key_in(&api, json!({})).await;
        kw.verify(&key.key).await.assert_code("VALID");
        kw.write_events().await;
        let root_key = kw.create_root_key([&format!("api.{api}.read_api")]).await;

        let of = async |api: &str| {
            let query = format!("apiId={api}&start=0");
            kw.v1_get_as(&root_key, "analytics.getVerifications", &query).await
        };

        assert_eq!(of(&api).await.v1_body()[0]["total"], 1);
        of(&other).await.assert_v1_error(403, "INSUFFICIENT_PERMISSIONS");
    }

    async fn an_end_that_is_not_after_the_start_is_refused(kw) {
        let api = kw.create_api().await;
        kw.write_events().await;

        let ask = async |query: &str| get(&kw, &format!("apiId={api}&{query}")).await;

        ask("start=5&end=6").await.v1_body();
        for query in ["start=5&end=5", "start=6&end=5", &format!("start={}", NOON.0)] {
            assert_eq!(ask(query).await.assert_v1_error(400, "BAD_REQUEST"), "start must be before end");
        }
        assert_eq!(
            ask("start=1&groupBy=tag&groupBy=tags").await.assert_v1_error(400, "BAD_REQUEST"),
            "groupBy must not contain both tag and tags",
        );
        ask("groupBy=hour").await.assert_v1_error(400, "BAD_REQUEST");
        ask("start=1&groupBy=year").await.assert_v1_error(400, "BAD_REQUEST");
    }
}

on_both_stacks! {
    async fn get_verifications_returns_400_when_too_many_slices_are_empty(kw) {
        let api = kw.create_api().await;
        kw.write_events().await;
        let ask = async |hours: i64, limit: &str| {
            get(&kw, &format!("apiId={api}&start=0&end={}&groupBy=hour{limit}", hours * HOUR)).await
        };
        let (all, first) = (ask(100_000, "").await, ask(100_001, "&limit=1").await);

        assert_eq!(all.v1_body().as_array().unwrap().len(), 100_000);
        assert_eq!(first.v1_body().as_array().unwrap().len(), 1);
        for limit in ["", "&limit=100001"] {
            ask(100_001, limit).await.assert_v1_error_about(400, "BAD_REQUEST", &["more than 100000 rows"]);
        }
    }

    async fn tags_of_more_than_32_mib_are_not_loaded(kw) {
        let api = kw.create_api().await;
        let key = kw.create_key_in(&api, json!({})).await;
        for tag in 10..42 {
            kw.v2("keys.verifyKey", json!({ "key": key.key, "tags": [tag.to_string()] })).await.assert_code("VALID");
        }
        kw.write_events().await;
        let query = format!("apiId={api}&start=0&end={}&groupBy=tags", NOON.0 + DAY);

        // 1 MiB each, with what surrounds them in a JSON list.
        kw.change_events(match kw.stack {
            Stack::Replica => "UPDATE verification_series SET tags = SUBSTR(tags, 1, 4) || repeat('0', 1048570) || '\"]'",
            Stack::Embedded => "UPDATE verification_series SET tags = SUBSTR(tags, 1, 4) || hex(zeroblob(524285)) || '\"]'",
        })
        .await;
        let fitting = get(&kw, &query).await;
        kw.change_events("UPDATE verification_series SET tags = REPLACE(tags, '[', '[ ')").await;
        let refused = get(&kw, &query).await;

        fitting.v1_body();
        refused.assert_v1_error_about(400, "BAD_REQUEST", &["more than 100000 rows or too many tags"]);
    }
}
