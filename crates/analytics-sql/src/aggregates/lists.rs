//! Translates aggregates that return lists, for Postgres or SQLite.

use super::super::LISTS_MAX_BYTES;
use super::super::arrays::to_list_element;
use super::super::fragment::Fragment;
use super::super::types::{SqlDialect, Type, TypedExpr};
use super::AggregateSql;

const _: () = assert!(LISTS_MAX_BYTES == 4_194_304, "the SQL below contains this number");

pub fn build_list(engine: SqlDialect, is_distinct: bool, value: &TypedExpr) -> AggregateSql {
    let template = match (engine, is_distinct) {
        // Limited as in `list_condition`, but by what remains of the values.
        (SqlDialect::Postgres, true) => "keyward_events.distinct_list(DISTINCT to_jsonb({0}))",
        (SqlDialect::Postgres, false) => "jsonb_agg({0})",
        (SqlDialect::Sqlite | SqlDialect::ClickHouse, true) => "json_group_array(DISTINCT {0})",
        (SqlDialect::Sqlite | SqlDialect::ClickHouse, false) => "json_group_array({0})",
    };
    let finish = match (engine, is_distinct) {
        (SqlDialect::Postgres, false) => "COALESCE({0}, jsonb_build_array())",
        (SqlDialect::Postgres | SqlDialect::ClickHouse, _) => "{0}",
        // SQLite has no function that fails, but fails if a value is longer than any may be. It computes equal
        // aggregates once.
        (SqlDialect::Sqlite, _) => {
            "CASE WHEN octet_length({0}) <= 4194304 THEN {0} ELSE zeroblob(9223372036854775807) END"
        }
    };
    let sql = Fragment::from_template(template, &[&to_list_element(engine, value)]);
    AggregateSql::new(sql, finish, Type::array_of(value.ty.clone()))
}

/// Returns the condition for a value to be added to a list. Postgres has no limit of its own for lists.
pub fn list_condition(engine: SqlDialect, is_distinct: bool, value: &TypedExpr) -> Fragment {
    let template = match (engine, is_distinct) {
        (SqlDialect::Postgres, false) => {
            "({0} IS NOT NULL AND keyward_events.count_listed(to_jsonb({0})))"
        }
        _ => "({0} IS NOT NULL)",
    };
    Fragment::from_template(template, &[&value.sql])
}
