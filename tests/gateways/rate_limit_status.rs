//! The status of a descriptor, the headers of a response, and calls that are sent at the same time.

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use foundation::clock::DAY_MS;
use foundation::config::RatelimitHeaders;
use futures_util::future::join_all;
use serde_json::json;

use super::rate_limit::Client;
use super::rate_limit_scenarios::descriptor;
use crate::on_both_stacks;
use crate::support::{Keyward, Stack};

const MONTH: i64 = 30 * DAY_MS;

/// Renders a status as `OK 19/20 MINUTE`: its code, what remains of its limit, and the unit. Without a limit: `OK`.
pub fn render(status: &DescriptorStatus) -> String {
    let code = Code::try_from(status.code).unwrap().as_str_name();
    match &status.current_limit {
        None => code.to_owned(),
        Some(limit) => {
            let unit = Unit::try_from(limit.unit).unwrap().as_str_name();
            format!("{code} {}/{} {unit}", status.limit_remaining, limit.requests_per_unit)
        }
    }
}

pub fn is_ok(response: &RateLimitResponse) -> bool {
    response.overall_code == i32::from(Code::Ok)
}

on_both_stacks! {
    async fn status_has_the_unit_and_the_end_of_its_window(kw) {
        let mut client = Client::with_root_key(&kw, &kw.root_key).await;

        // Noon is the beginning of an hour. Windows of 30 days begin at the Unix epoch.
        let until_month = (MONTH - kw.clock.now().0 % MONTH) / 1_000;
        for (unit, seconds) in [
            ("SECOND", 1), ("MINUTE", 60), ("HOUR", 3_600), ("DAY", 43_200), ("MONTH", until_month),
        ] {
            let sent = vec![descriptor(&format!("key=1 @50/{unit}"))];
            let response = client.send("edge", 0, sent).await.unwrap();
            let status = &response.statuses[0];
            assert_eq!(render(status), format!("OK 49/50 {unit}"));
            assert_eq!(status.duration_until_reset.as_ref().unwrap().seconds, seconds, "{unit}");
        }
        kw.clock.advance_ms(2_500);
        let response = client.send("edge", 0, vec![descriptor("key=1 @50/DAY")]).await.unwrap();
        let until_reset = response.statuses[0].duration_until_reset.unwrap();
        assert_eq!((until_reset.seconds, until_reset.nanos), (43_197, 500_000_000));
        // A window of another length has no unit.
        kw.set_override("edge", "key=2", json!({ "limit": 5, "duration": 90_000 })).await;
        let response = client.send("edge", 0, vec![descriptor("key=2")]).await.unwrap();
        assert_eq!(render(&response.statuses[0]), "OK 4/5 UNKNOWN");
    }

    async fn limit_is_exact_when_calls_are_concurrent(kw) {
        let clients: Vec<_> = join_all((0..50).map(|_| Client::with_root_key(&kw, &kw.root_key))).await;
        let descriptors = || [20, 10, 30, 40, 50].map(|limit| descriptor(&format!("key={limit} @{limit}/HOUR")));

        let ask = async |mut client: Client| {
            let mut admitted = 0;
            for _ in 0..4 {
                let response = client.send("edge", 0, descriptors().to_vec()).await.unwrap();
                admitted += usize::from(is_ok(&response));
            }
            admitted
        };
        let admitted: usize = join_all(clients.into_iter().map(ask)).await.into_iter().sum();

        assert_eq!(admitted, 10);
        let mut client = Client::with_root_key(&kw, &kw.root_key).await;
        let left = client.send("edge", 0, vec![descriptor("key=50 +0 @50/HOUR")]).await.unwrap();
        assert_eq!(render(&left.statuses[0]), "OK 40/50 HOUR");
    }
}

#[tokio::test]
async fn response_has_headers_in_the_configured_format() {
    for (format, expected) in [
        (
            RatelimitHeaders::Draft,
            vec![
                ("ratelimit-policy", r#""key=b";q=3;w=60, "key=a";q=9;w=3600"#),
                ("ratelimit", r#""key=b";r=1;t=60, "key=a";r=7;t=3600"#),
            ],
        ),
        (
            RatelimitHeaders::Legacy,
            vec![
                ("x-ratelimit-limit", "3"),
                ("x-ratelimit-remaining", "1"),
                ("x-ratelimit-reset", "{end of the minute}"),
            ],
        ),
    ] {
        for stack in [Stack::Embedded, Stack::Replica] {
            let kw =
                Keyward::start_with(stack, |settings| settings.ratelimit_headers = format).await;
            let mut client = Client::with_root_key(&kw, &kw.root_key).await;
            let sent =
                vec![descriptor("key=a @9/HOUR"), descriptor("key=b @3/MINUTE"), descriptor("c=d")];

            let response = client.send("edge", 2, sent).await.unwrap();

            let end = (kw.clock.now().0 / 1_000 + 60).to_string();
            let headers = &response.response_headers_to_add;
            let found: Vec<_> =
                headers.iter().map(|header| (header.key.as_str(), header.value.as_str())).collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|(name, value)| {
                    (*name, if value.starts_with('{') { end.as_str() } else { *value })
                })
                .collect();
            assert_eq!(found, expected, "{stack:?}");
        }
    }
}
