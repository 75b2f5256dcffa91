//! Tests the bounds of the text of a query, which the compiler enforces.

use analytics_sql::{Family, SqlDialect};

use super::query_context;

/// Returns the error that rejects a text.
fn rejection(text: &str) -> String {
    let error =
        analytics_sql::compile(text, SqlDialect::Postgres, &query_context(Family::Verifications));
    let error = error.expect_err("the query is rejected");
    assert!(error.to_string().len() < 500, "{error}");
    format!("{}: {error}", error.code().name())
}

fn is_accepted(text: &str) -> bool {
    analytics_sql::compile(text, SqlDialect::Postgres, &query_context(Family::Verifications))
        .is_ok()
}

#[test]
fn compiler_rejects_query_above_16_kib() {
    let select = "SELECT count() FROM key_verifications_v1";
    let padded = |length: usize| format!("{select}{}", " ".repeat(length - select.len()));

    assert!(is_accepted(&padded(16 * 1024)));
    assert!(rejection(&padded(16 * 1024 + 1)).contains("longer than 16384 bytes"));
}

#[test]
fn compiler_rejects_query_with_more_than_64_columns() {
    let columns = |count: usize| vec!["key_id"; count].join(", ");
    let nested = |inner: usize| {
        format!("SELECT count() FROM (SELECT {} FROM key_verifications_v1) AS x", columns(inner))
    };

    assert!(is_accepted(&nested(63)));
    assert!(rejection(&nested(64)).contains("more than 64 columns"));
    let stars = "SELECT count() FROM (SELECT a.*, b.*, c.*, d.*, e.* FROM key_verifications_v1 a, \
        key_verifications_v1 b, key_verifications_v1 c, key_verifications_v1 d, key_verifications_v1 e) x";
    assert!(rejection(stars).contains("more than 64 columns"));
}

#[test]
fn compiler_rejects_query_with_more_than_2000_parts() {
    let list = |count: usize| {
        let items = vec!["1"; count].join(",");
        format!("SELECT count() FROM key_verifications_v1 WHERE spent_credits IN ({items})")
    };

    // The query, its SELECT, its table, count, IN and the value that is looked up are parts too.
    assert!(is_accepted(&list(1_994)));
    assert!(rejection(&list(1_995)).contains("more than 2000 parts"));
}

#[test]
fn compiler_does_not_overflow_the_stack_when_query_is_deep() {
    let select = |what: String| format!("SELECT {what} AS x FROM key_verifications_v1");
    let deep = |open: &str, close: &str, times: usize| {
        select(format!("{}1{}", open.repeat(times), close.repeat(times)))
    };

    assert!(is_accepted(&deep("(", ")", 40)));
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
            rejection(&deep(open, close, times.min(15_000 / length)));
        }
    }
    let union = vec!["SELECT key_id FROM key_verifications_v1"; 350].join(" UNION ALL ");
    rejection(&union);
    let from = "SELECT key_id FROM ";
    rejection(&format!(
        "{}key_verifications_v1{}",
        format!("{from}(").repeat(500),
        ") AS x".repeat(500)
    ));
    rejection(&format!("{from}{}key_verifications_v1{}", "(".repeat(5_000), ")".repeat(5_000)));
    rejection(&format!("{from}key_verifications_v1{}", " JOIN (key_verifications_v1".repeat(500)));
    rejection(&format!("SELECT {}", "/*".repeat(8_000)));
}

/// The parser reads the contents of these twice, at each level.
#[test]
fn compiler_rejects_query_that_the_parser_would_read_exponentially() {
    let events = "FROM key_verifications_v1";
    let position = format!("SELECT {}key_id{} {events}", "position(".repeat(40), ")".repeat(40));
    let lambdas = format!("SELECT {}1 {events}", "(x) -> ".repeat(40));

    assert!(rejection(&position).contains("there is no function position"));
    assert!(rejection(&lambdas).contains("more than 8 lambdas"));
    let update =
        (0..40).fold("a".to_owned(), |inner, _| format!("a IN(update((SELECT {inner}),1))"));
    assert!(rejection(&format!("SELECT {update} {events}")).contains("only SELECT is supported"));
    for word in ["update", "INSERT", "delete", "Merge", "from"] {
        let nested = format!("SELECT (SELECT 1) IN ({word} (SELECT 1)) {events}");
        assert!(rejection(&nested).contains("only SELECT is supported"), "{word}");
    }
    let few = |times: usize| {
        let filter = "length(arrayFilter(x -> x != '', tags))";
        format!("SELECT {} AS n {events}", [filter].repeat(times).join(" + "))
    };
    assert!(is_accepted(&few(8)));
    assert!(rejection(&few(9)).contains("more than 8 lambdas"));
}

#[test]
fn compiler_rejects_query_that_sorts_more_than_16_times() {
    for sorted in [
        "count(DISTINCT key_id)",
        "uniq(key_id)",
        "uniqExact(key_id)",
        "quantile(0.5)(latency)",
        "length(groupUniqArray(key_id))",
        "row_number() OVER (ORDER BY time)",
    ] {
        let query = |times: usize| {
            format!("SELECT {} AS n FROM key_verifications_v1", [sorted].repeat(times).join(" + "))
        };

        assert!(is_accepted(&query(16)), "{sorted}");
        assert!(rejection(&query(17)).contains("more than 16 windows"), "{sorted}");
    }
    let plain = ["count()"].repeat(60).join(" + ");
    assert!(is_accepted(&format!("SELECT {plain} AS n FROM key_verifications_v1")));
}

#[test]
fn compiler_rejects_query_that_reads_tables_more_than_16_times() {
    let from = "FROM key_verifications_v1";
    let joined = |times: usize| {
        let tables: Vec<_> = (0..times).map(|n| format!("key_verifications_v1 t{n}")).collect();
        format!("SELECT count() AS n FROM {}", tables.join(", "))
    };
    let combined = |times: usize| vec![format!("SELECT key_id {from}"); times].join(" UNION ALL ");
    // The outer FROM and the alias itself read the table, too.
    let repeated = |times: usize| {
        let sum = ["m"].repeat(times - 2).join(" + ");
        format!("SELECT (SELECT max(latency) {from}) AS m, {sum} AS n {from}")
    };
    let nested = |levels: usize| {
        let (open, close) = ("substring(".repeat(levels), ", -1)".repeat(levels));
        format!("SELECT {open}(SELECT max(key_id) {from}){close} AS n {from}")
    };

    for query in [&joined as &dyn Fn(usize) -> String, &combined, &repeated] {
        assert!(is_accepted(&query(16)), "{}", query(16));
        assert!(rejection(&query(17)).contains("more than 16 times"), "{}", query(17));
    }
    // Each level repeats its text in Postgres.
    assert!(is_accepted(&nested(3)));
    assert!(rejection(&nested(4)).contains("more than 16 times"));
    // A query of WITH is read once.
    let uses: Vec<_> = (0..17).map(|n| format!("w AS t{n}")).collect();
    let with = format!("WITH w AS (SELECT key_id {from}) SELECT count() FROM {}", uses.join(", "));
    assert!(is_accepted(&with));
}

#[test]
fn compiler_rejects_query_whose_aliases_need_much_memory() {
    let doubled = |levels: usize, uses: usize| {
        let names: Vec<_> = (0..=levels).map(|level| format!("a{level}")).collect();
        let columns =
            names.windows(2).map(|pair| format!("concat({0}, {0}) AS {1}", pair[0], pair[1]));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let grouped = [names.join(", ").as_str(), names[levels].as_str()].repeat(uses).join(", ");
        format!(
            "SELECT key_id AS a0, {columns}, count() AS n FROM key_verifications_v1 GROUP BY {grouped}"
        )
    };

    assert!(is_accepted(&doubled(6, 1)));
    assert!(rejection(&doubled(11, 150)).contains("too large after its aliases are expanded"));
}

#[test]
fn compiler_rejects_pattern_above_256_characters() {
    let like = |length: usize| {
        let pattern = "a".repeat(length);
        format!("SELECT count() FROM key_verifications_v1 WHERE outcome LIKE '{pattern}'")
    };

    assert!(is_accepted(&like(256)));
    assert!(rejection(&like(257)).contains("256 characters"));
}

#[test]
fn compiler_rejects_nested_list_literals() {
    assert!(rejection("SELECT [tags] FROM key_verifications_v1").contains("a list of lists"));
}

#[test]
fn compiler_rejects_aliases_that_expand_without_end() {
    let names: Vec<_> = (1..60).map(|n| format!("concat(a{0}, a{0}) AS a{1}", n - 1, n)).collect();
    let text = format!("SELECT key_id AS a0, {} FROM key_verifications_v1", names.join(", "));

    assert!(rejection(&text).contains("too large"));
}
