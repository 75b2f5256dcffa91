//! The lists of top keys, identities and tags of more combinations of these than one query loads.

use crate::on_both_stacks;
use crate::support::Stack;

use super::super::{Browser, between, workspace_path};

/// The number of combinations that one query loads.
const GROUPS_MAX: i64 = 10_000;

const LATENCIES: &str = "latency_us, latency_le_100us, latency_le_500us, latency_le_1ms, latency_le_5ms, latency_le_25ms, \
    latency_le_100ms";

on_both_stacks! {
    async fn lists_are_the_same_below_and_beyond_the_number_that_one_query_loads(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        kw.write_events().await;
        let id = match kw.stack {
            Stack::Embedded => "unhex(printf('%032d', i))",
            Stack::Replica => "decode(lpad(CAST(i AS TEXT), 32, '0'), 'hex')",
        };
        let now = kw.app.context.clock.now().0;
        // Each key has as many verifications as its number.
        let insert = async |first: i64, last: i64| {
            let numbers =
                format!("WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})");
            let series = format!(
                "{numbers} INSERT INTO verification_series
                    (id, workspace_id, api_id, key_id, identity_id, external_id, outcome, tags, seen_at)
                SELECT {id}, 'ws_default', 'api_1', 'key_' || i, 'id_' || i, 'user_' || i, 'VALID',
                    CASE WHEN i < 3 THEN '[\"eu\",\"free\"]' WHEN i = 3 THEN '[\"eu\"]' ELSE '[]' END, {now} FROM n"
            );
            kw.change_events(String::leak(series)).await;
            for (unit, length) in [("hour", 3_600_000), ("day", 86_400_000)] {
                let time = now / length * length;
                let rollups = format!(
                    "{numbers} INSERT INTO verifications_per_{unit} (series, time, count, spent_credits, {LATENCIES})
                    SELECT {id}, {time}, i, 0, 0, 0, 0, 0, 0, 0, 0 FROM n"
                );
                kw.change_events(String::leak(rollups)).await;
            }
        };
        let mut assert_lists = async |keys: i64| {
            let page = owner.get(&workspace_path("/analytics?range=week")).await.text;
            let shown = format!("10,{:03}", keys - 10_000);
            assert_eq!(between(&page, "<dt>Active keys</dt><dd>", "</dd>"), shown);
            let first_row = |title: &str| {
                let list = between(&page, &format!("<h2>{title}</h2>"), "</section>");
                between(between(list, "<th scope=\"row\">", "</tr>"), ">", "</a>").to_owned()
            };
            assert_eq!(first_row("Top keys"), format!("key_{keys}"));
            assert_eq!(first_row("Top identities"), format!("user_{keys}"));
            let tags = between(&page, "<h2>Top tags</h2>", "</section>");
            let rows: Vec<_> = tags.split("<th scope=\"row\">").skip(1).collect();
            let numbers = rows.iter().map(|row| between(row, "<td class=\"number\">", "</td>"));
            assert_eq!(numbers.collect::<Vec<_>>(), ["6", "3"], "{tags}");
            assert!(rows[0].contains(">eu</a>") && rows[1].contains(">free</a>"), "{tags}");
        };

        insert(1, GROUPS_MAX).await;
        assert_lists(GROUPS_MAX).await;
        insert(GROUPS_MAX + 1, GROUPS_MAX + 1).await;
        assert_lists(GROUPS_MAX + 1).await;
    }
}
