//! Questions in SQL about events: what is answered, what is refused, and that nobody sees what is not theirs. Every
//! question of the corpus is put to every engine, which hold the same events of two workspaces.

mod bounds;
mod growth;
mod isolation;
mod memory;
mod planted;

use analytics_sql::{Family, QueryContext, RowScope, SqlDialect};
use foundation::error::{Error, Result};
use foundation::model::Retention;
use planted::Planted;
use serde_json::Value;
use store::analytics_query::{self, QueryLimits};

use crate::support::NOON;

const GOOD: &str = "tests/questions/good.txt";
const ATTACKS: &str = "tests/questions/attacks.txt";

fn asked(family: Family) -> QueryContext {
    QueryContext {
        family,
        visible: RowScope { workspace_id: "ws_mine".into(), only: None },
        now: NOON.0,
        retention: Retention { raw: 90, minute: 90, hour: 90, day: 365, month: 1095 },
        rows_max: 10_000,
        inner_rows_max: None,
        delivered: planted::delivered(),
    }
}

fn bounds() -> QueryLimits {
    keyward::domain::analytics::sql_query::BOUNDS
}

/// By the first table that the text names.
fn family(text: &str) -> Family {
    match text.find("ratelimits_").zip(text.find("key_verifications_")) {
        Some((a, b)) if a < b => Family::Ratelimits,
        None if text.contains("ratelimits_") => Family::Ratelimits,
        _ => Family::Verifications,
    }
}

async fn answer(
    planted: &Planted,
    text: &str,
    asked: &QueryContext,
    bounds: &QueryLimits,
) -> Result<Value> {
    let question = analytics_sql::translate(text, planted.engine(), asked)?;
    let rows = match planted {
        Planted::Postgres { pool, .. } => {
            analytics_query::ask_postgres(pool, &question.query, bounds).await?
        }
        Planted::Sqlite { pool, .. } => {
            analytics_query::ask_sqlite(pool, &question.query, bounds).await?
        }
        Planted::ClickHouse(warehouse) => warehouse.client.ask(&question.query, bounds).await?,
    };
    let objects = rows.iter().map(|row| analytics_sql::object(&question.columns, row));
    let objects = objects.collect::<Result<Vec<_>>>()?;
    Ok(serde_json::from_str(&serde_json::to_string(&objects).unwrap()).unwrap())
}

/// Blocks of a corpus: those that begin with `#` are headings.
fn blocks(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("\n\n").map(|block| block.trim().to_owned());
    blocks.filter(|block| !block.is_empty() && !block.starts_with('#')).collect()
}

/// A question of the corpus, and what is said to it.
struct Good<'b> {
    text: &'b str,
    rows: Value,
    may_be_too_old: bool,
}

/// An engine may have rows of its own, and ClickHouse may be too old for the question.
fn expected(block: &str, engine: SqlDialect) -> Good<'_> {
    let (text, answers) = block.split_once("\n-> ").expect("a question has an answer");
    let own = match engine {
        SqlDialect::Postgres => "postgres-> ",
        SqlDialect::Sqlite => "sqlite-> ",
        SqlDialect::ClickHouse => "clickhouse-> ",
    };
    let own = answers.lines().find_map(|line| line.strip_prefix(own));
    let may_be_too_old = own == Some("too old");
    let usual = answers.lines().next().unwrap_or_default();
    let rows = own.filter(|_| !may_be_too_old).unwrap_or(usual);
    let rows = serde_json::from_str(rows).unwrap_or_else(|e| panic!("{e}: {block}"));
    Good { text, rows, may_be_too_old }
}

async fn every_good_question_is_answered(planted: Planted) {
    let mut faults = Vec::new();
    for block in blocks(GOOD) {
        let Good { text, rows: expected, may_be_too_old } = expected(&block, planted.engine());
        let told = answer(&planted, text, &asked(family(text)), &bounds()).await;
        match told {
            Ok(told) if told == expected => {}
            Err(e) if may_be_too_old && e.to_string().contains("too old for this query") => {}
            Ok(told) => faults.push(format!("{text}\n   is {told}\n  not {expected}\n\n")),
            Err(e) => {
                let sql = analytics_sql::translate(text, planted.engine(), &asked(family(text)));
                let sql = sql.map(|question| question.query.sql).unwrap_or_default();
                faults.push(format!("{text}\n   {}: {e}\n   {sql}\n\n", e.code().name()));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.concat());
}

#[tokio::test]
async fn every_good_question_is_answered_by_postgres() {
    every_good_question_is_answered(Planted::postgres().await).await;
}

#[tokio::test]
async fn every_good_question_is_answered_by_sqlite() {
    every_good_question_is_answered(Planted::sqlite().await).await;
}

#[tokio::test]
async fn every_good_question_is_answered_by_clickhouse() {
    every_good_question_is_answered(Planted::clickhouse().await).await;
}

#[test]
fn every_attack_is_refused_by_its_name() {
    let mut faults = Vec::new();
    for block in blocks(ATTACKS) {
        let (text, name) = block.split_once("\n-> ").expect("an attack has a name");
        for engine in [SqlDialect::Postgres, SqlDialect::Sqlite, SqlDialect::ClickHouse] {
            let told = match analytics_sql::translate(text, engine, &asked(family(text))) {
                Ok(question) => format!("accepted: {}", question.query.sql),
                Err(e) if e.code().name() == name => continue,
                Err(e) => format!("{}: {e}", e.code().name()),
            };
            faults.push(format!("{text}\n   not {name}\n   {told}\n\n"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.concat());
}

/// The error that a text is refused with.
fn refusal(text: &str) -> String {
    let error = analytics_sql::translate(text, SqlDialect::Postgres, &asked(Family::Verifications));
    let error = error.expect_err("it is refused");
    assert!(error.to_string().len() < 500, "{error}");
    format!("{}: {error}", error.code().name())
}

fn is_answered(text: &str) -> bool {
    analytics_sql::translate(text, SqlDialect::Postgres, &asked(Family::Verifications)).is_ok()
}

#[test]
fn a_query_has_a_greatest_length() {
    let select = "SELECT count() FROM key_verifications_v1";
    let padded = |length: usize| format!("{select}{}", " ".repeat(length - select.len()));

    assert!(is_answered(&padded(16 * 1024)));
    assert!(refusal(&padded(16 * 1024 + 1)).contains("longer than 16384 bytes"));
}

#[test]
fn a_query_selects_sixty_four_columns_in_all_its_parts() {
    let columns = |count: usize| vec!["key_id"; count].join(", ");
    let nested = |inner: usize| {
        format!("SELECT count() FROM (SELECT {} FROM key_verifications_v1) AS x", columns(inner))
    };

    assert!(is_answered(&nested(63)));
    assert!(refusal(&nested(64)).contains("more than 64 columns"));
    let stars = "SELECT count() FROM (SELECT a.*, b.*, c.*, d.*, e.* FROM key_verifications_v1 a, \
        key_verifications_v1 b, key_verifications_v1 c, key_verifications_v1 d, key_verifications_v1 e) x";
    assert!(refusal(stars).contains("more than 64 columns"));
}

#[test]
fn a_query_has_two_thousand_parts() {
    let list = |count: usize| {
        let items = vec!["1"; count].join(",");
        format!("SELECT count() FROM key_verifications_v1 WHERE spent_credits IN ({items})")
    };

    // The query, its SELECT, its table, count, IN and what is looked for are parts too.
    assert!(is_answered(&list(1_994)));
    assert!(refusal(&list(1_995)).contains("more than 2000 parts"));
}

#[test]
fn no_depth_exhausts_the_stack() {
    let select = |what: String| format!("SELECT {what} AS x FROM key_verifications_v1");
    let deep = |open: &str, close: &str, times: usize| {
        select(format!("{}1{}", open.repeat(times), close.repeat(times)))
    };

    assert!(is_answered(&deep("(", ")", 40)));
    for (open, close) in [
        ("(", ")"),
        ("abs(", ")"),
        ("-", ""),
        ("- ", ""),
        ("NOT ", ""),
        ("[", "]"),
        ("1+", ""),
        ("", "+1"),
        ("", "::Int64"),
        ("", " IS NULL"),
        ("CASE WHEN ", " THEN 1 END"),
        ("(SELECT ", " FROM key_verifications_v1)"),
        ("x -> ", ""),
        ("", "[1]"),
        ("if(1,1,", ")"),
        ("1 BETWEEN 1 AND ", ""),
        ("{'a':", "}"),
        ("INTERVAL ", " DAY"),
        ("", " IN (1)"),
        ("CAST(", " AS Int64)"),
        ("trim(", ")"),
        ("", " OR 1"),
        ("EXISTS (SELECT ", ")"),
    ] {
        let length = open.len() + close.len();
        for times in [101, 1_000, 15_000 / length] {
            refusal(&deep(open, close, times.min(15_000 / length)));
        }
    }
    let union = vec!["SELECT key_id FROM key_verifications_v1"; 350].join(" UNION ALL ");
    refusal(&union);
    let from = "SELECT key_id FROM ";
    refusal(&format!(
        "{}key_verifications_v1{}",
        format!("{from}(").repeat(500),
        ") AS x".repeat(500)
    ));
    refusal(&format!("{from}{}key_verifications_v1{}", "(".repeat(5_000), ")".repeat(5_000)));
    refusal(&format!("{from}key_verifications_v1{}", " JOIN (key_verifications_v1".repeat(500)));
    refusal(&format!("SELECT {}", "/*".repeat(8_000)));
}

/// The parser reads what is within these twice, at each level.
#[test]
fn query_that_the_parser_would_read_again_and_again_is_refused() {
    let events = "FROM key_verifications_v1";
    let position = format!("SELECT {}key_id{} {events}", "position(".repeat(40), ")".repeat(40));
    let lambdas = format!("SELECT {}1 {events}", "(x) -> ".repeat(40));

    assert!(refusal(&position).contains("there is no function position"));
    assert!(refusal(&lambdas).contains("more than 8 lambdas"));
    let few = |times: usize| {
        let filter = "length(arrayFilter(x -> x != '', tags))";
        format!("SELECT {} AS n {events}", [filter].repeat(times).join(" + "))
    };
    assert!(is_answered(&few(8)));
    assert!(refusal(&few(9)).contains("more than 8 lambdas"));
}

#[test]
fn pattern_has_at_most_256_characters() {
    let like = |length: usize| {
        let pattern = "a".repeat(length);
        format!("SELECT count() FROM key_verifications_v1 WHERE outcome LIKE '{pattern}'")
    };

    assert!(is_answered(&like(256)));
    assert!(refusal(&like(257)).contains("256 characters"));
}

#[test]
fn list_that_is_written_out_holds_no_lists() {
    assert!(refusal("SELECT [tags] FROM key_verifications_v1").contains("a list of lists"));
}

#[test]
fn names_that_stand_for_each_other_do_not_grow_without_end() {
    let names: Vec<_> = (1..60).map(|n| format!("concat(a{0}, a{0}) AS a{1}", n - 1, n)).collect();
    let text = format!("SELECT key_id AS a0, {} FROM key_verifications_v1", names.join(", "));

    assert!(refusal(&text).contains("too large"));
}

#[test]
fn a_root_key_for_some_apis_sees_those() {
    let mut asked = asked(Family::Verifications);
    asked.visible.only = Some(vec!["api_2'".into(), "api_2".into()]);

    let question = analytics_sql::translate(
        "SELECT key_id FROM key_verifications_v1",
        SqlDialect::Postgres,
        &asked,
    );

    let query = question.unwrap().query;
    assert!(!query.sql.contains("api_2"), "{}", query.sql);
    assert_eq!(query.texts.len(), 2);
}

async fn sees_only_its_apis(planted: Planted) {
    let mut only = asked(Family::Verifications);
    only.visible.only = Some(vec!["api_2".into(), "api_3".into()]);
    let mut nothing = only.clone();
    nothing.visible.only = Some(Vec::new());
    let mut limits = asked(Family::Ratelimits);
    limits.visible.only = Some(vec!["rlns_2".into()]);
    let keys = "SELECT DISTINCT key_id FROM key_verifications_v1";
    let sums = "SELECT sum(count) AS n FROM key_verifications_per_day_v1";
    let names = "SELECT identifier, total FROM ratelimits_per_day_v1";

    let seen = async |text, asked| answer(&planted, text, asked, &bounds()).await.unwrap();

    assert_eq!(seen(keys, &only).await, serde_json::json!([{ "key_id": "key_2" }]));
    assert_eq!(seen(keys, &nothing).await, serde_json::json!([]));
    assert_eq!(seen(sums, &only).await, serde_json::json!([{ "n": 2 }]));
    assert_eq!(seen(sums, &nothing).await, serde_json::json!([{ "n": 0 }]));
    assert_eq!(
        seen(names, &limits).await,
        serde_json::json!([{ "identifier": "bob", "total": 1 }])
    );
}

#[tokio::test]
async fn a_root_key_for_some_apis_sees_only_those_in_postgres() {
    sees_only_its_apis(Planted::postgres().await).await;
}

#[tokio::test]
async fn a_root_key_for_some_apis_sees_only_those_in_sqlite() {
    sees_only_its_apis(Planted::sqlite().await).await;
}

#[tokio::test]
async fn a_root_key_for_some_apis_sees_only_those_in_clickhouse() {
    sees_only_its_apis(Planted::clickhouse().await).await;
}

async fn tells_nothing_of_itself(planted: Planted) {
    for text in [
        "SELECT toInt64(1e300) AS x FROM key_verifications_v1",
        "SELECT spent_credits * 9223372036854775807 AS x FROM key_verifications_v1",
        "SELECT sum(9223372036854775807) AS x FROM key_verifications_v1",
        "SELECT JSONExtractString('not json', 'a') AS x FROM key_verifications_v1",
        "SELECT count() AS x FROM key_verifications_v1 WHERE outcome = (SELECT outcome FROM key_verifications_v1)",
        "SELECT DISTINCT key_id FROM key_verifications_v1 ORDER BY outcome",
        "SELECT time + toIntervalMonth(spent_credits * 100000000000) AS x FROM key_verifications_per_day_v1",
    ] {
        match answer(&planted, text, &asked(Family::Verifications), &bounds()).await {
            Ok(_) => {}
            Err(Error::AnalyticsQuery(_, told)) => {
                for word in ["SELECT", "CAST", "json", "verification_series", "ws_mine", "$"] {
                    assert!(!told.contains(word), "{text}: {told}");
                }
            }
            Err(other) => panic!("{text}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_failure_of_postgres_tells_nothing_of_the_query() {
    tells_nothing_of_itself(Planted::postgres().await).await;
}

#[tokio::test]
async fn a_failure_of_sqlite_tells_nothing_of_the_query() {
    tells_nothing_of_itself(Planted::sqlite().await).await;
}

#[tokio::test]
async fn a_failure_of_clickhouse_tells_nothing_of_the_query() {
    tells_nothing_of_itself(Planted::clickhouse().await).await;
}

#[tokio::test]
async fn sums_are_the_same_wherever_clickhouse_stops_summing_up_hours() {
    let planted = Planted::clickhouse().await;
    for text in [
        "SELECT * FROM key_verifications_per_hour_v1 ORDER BY time, key_id, outcome",
        "SELECT * FROM key_verifications_per_day_v1 ORDER BY time, key_id, outcome",
        "SELECT * FROM key_verifications_per_month_v1 ORDER BY time, key_id, outcome",
        "SELECT * FROM ratelimits_per_hour_v1 ORDER BY time, identifier, passed",
        "SELECT * FROM ratelimits_per_month_v1 ORDER BY time, identifier, passed",
    ] {
        let mut asked = asked(family(text));
        let now = answer(&planted, text, &asked, &bounds()).await.unwrap();
        for summed_until in [0, asked.delivered.summed_until + 24 * 3_600_000] {
            asked.delivered.summed_until = summed_until;
            assert_eq!(answer(&planted, text, &asked, &bounds()).await.unwrap(), now, "{text}");
        }
    }
}
