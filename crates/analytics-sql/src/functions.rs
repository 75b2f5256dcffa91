//! Lists the functions that a query may call, and translates each for every engine.
//!
//! Names match in any letter case of ASCII. A function that is not in these tables cannot be called.

use std::cmp::Ordering;
use std::fmt::Write as _;

use foundation::error::{QueryErrorKind, Result};
use sqlparser::ast::{Expr, Function as FunctionCall};

use super::fragment::Fragment;
use super::grammar::{self, CallParts, FunctionArgument};
use super::scope::Scope;
use super::translate::Translator;
use super::types::{SqlDialect, Type, TypedExpr};
use super::{aggregates, arrays, casts, dates, excerpt, invalid, numbers, operators, query_fault};

/// The arguments of a function, and the context of its call.
pub struct CallArguments<'c> {
    pub engine: SqlDialect,
    /// In Unix milliseconds.
    pub now: i64,
    /// The name as in the documentation.
    pub name: &'static str,
    pub arguments: &'c [TypedExpr],
}

/// A function of values of its row.
pub struct ScalarFunction {
    pub name: &'static str,
    /// The minimum and maximum number of arguments.
    arguments_min: usize,
    arguments_max: usize,
    translate: fn(&CallArguments<'_>) -> Result<TypedExpr>,
}

const fn function(
    name: &'static str,
    least: usize,
    most: usize,
    write: fn(&CallArguments<'_>) -> Result<TypedExpr>,
) -> ScalarFunction {
    ScalarFunction { name, arguments_min: least, arguments_max: most, translate: write }
}

/// As many arguments as a query can have.
const ARGUMENTS_UNLIMITED: usize = usize::MAX;

pub static FUNCTIONS: &[ScalarFunction] = &[
    function("now", 0, 1, dates::translate_now),
    function("now64", 0, 2, dates::translate_now64),
    function("today", 0, 1, dates::translate_today),
    function("toDate", 1, 2, dates::to_date),
    function("toDateTime", 1, 2, dates::to_date_time),
    function("toDateTime64", 1, 3, dates::to_date_time64),
    function("toStartOfMinute", 1, 2, dates::to_start_of),
    function("toStartOfHour", 1, 2, dates::to_start_of),
    function("toStartOfDay", 1, 2, dates::to_start_of),
    function("toStartOfWeek", 1, 3, dates::to_start_of_week),
    function("toStartOfMonth", 1, 2, dates::to_start_of),
    function("toStartOfQuarter", 1, 2, dates::to_start_of),
    function("toStartOfYear", 1, 2, dates::to_start_of),
    function("date_trunc", 2, 3, dates::translate_date_trunc),
    function("formatDateTime", 2, 3, dates::format_date_time),
    function("fromUnixTimestamp64Milli", 1, 2, dates::from_unix_ms),
    function("toUnixTimestamp64Milli", 1, 1, dates::to_unix_ms),
    function("toUnixTimestamp", 1, 2, dates::to_unix_seconds),
    function("toIntervalNanosecond", 1, 1, dates::to_interval),
    function("toIntervalMicrosecond", 1, 1, dates::to_interval),
    function("toIntervalMillisecond", 1, 1, dates::to_interval),
    function("toIntervalSecond", 1, 1, dates::to_interval),
    function("toIntervalMinute", 1, 1, dates::to_interval),
    function("toIntervalHour", 1, 1, dates::to_interval),
    function("toIntervalDay", 1, 1, dates::to_interval),
    function("toIntervalWeek", 1, 1, dates::to_interval),
    function("toIntervalMonth", 1, 1, dates::to_interval),
    function("toIntervalQuarter", 1, 1, dates::to_interval),
    function("toIntervalYear", 1, 1, dates::to_interval),
    function("lower", 1, 1, |args| translate_text_function(args, Type::Text, ["lower({0})"; 3])),
    function("upper", 1, 1, |args| translate_text_function(args, Type::Text, ["upper({0})"; 3])),
    function("trim", 1, 1, |args| {
        let clickhouse = "replaceRegexpAll({0}, '^ +| +$', '')";
        translate_text_function(args, Type::Text, ["btrim({0})", "trim({0})", clickhouse])
    }),
    function("substring", 2, 3, translate_substring),
    function("concat", 1, ARGUMENTS_UNLIMITED, |args| {
        casts::translate_concat(args.engine, args.arguments)
    }),
    function("length", 1, 1, translate_length),
    function("startsWith", 2, 2, |args| {
        let sqlite = "(substr({0}, 1, length({1})) = {1})";
        translate_text_function(
            args,
            Type::Flag,
            ["starts_with({0}, {1})", sqlite, "startsWith({0}, {1})"],
        )
    }),
    function("endsWith", 2, 2, |args| {
        let sqlite = "({1} = '' OR substr({0}, - length({1})) = {1})";
        translate_text_function(
            args,
            Type::Flag,
            ["(right({0}, length({1})) = {1})", sqlite, "endsWith({0}, {1})"],
        )
    }),
    function("JSONExtractString", 2, ARGUMENTS_UNLIMITED, translate_json_extract_string),
    function("round", 1, 2, numbers::translate_round),
    function("floor", 1, 2, numbers::translate_floor),
    function("ceil", 1, 2, numbers::translate_ceil),
    function("abs", 1, 1, numbers::translate_abs),
    function("if", 3, 3, |args| {
        let when = args.arguments[0].clone().into_condition()?;
        operators::build_case(&[when], args.arguments[1..].to_vec())
    }),
    function("coalesce", 1, ARGUMENTS_UNLIMITED, translate_coalesce),
    function("toString", 1, 2, |args| casts::to_text(args.engine, &args.arguments[0])),
    function("toInt32", 1, 1, |args| casts::to_int(args.engine, &args.arguments[0])),
    function("toInt64", 1, 1, |args| casts::to_int(args.engine, &args.arguments[0])),
    function("toFloat64", 1, 1, |args| casts::to_float(args.engine, &args.arguments[0])),
    function("has", 2, 2, arrays::translate_has),
    function("hasAny", 2, 2, |args| arrays::translate_overlap(args, false)),
    function("hasAll", 2, 2, |args| arrays::translate_overlap(args, true)),
];

/// The functions that translate their arguments themselves.
const SELF_TRANSLATED: [&str; 2] = ["arrayJoin", "arrayFilter"];

/// Returns the names of all functions that a query may call.
pub fn list_names() -> impl Iterator<Item = &'static str> {
    let functions = FUNCTIONS.iter().map(|function| function.name);
    functions.chain(SELF_TRANSLATED).chain(aggregates::AGGREGATE_NAMES.iter().copied())
}

impl Translator<'_> {
    pub fn translate_function<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        function: &'q FunctionCall,
    ) -> Result<TypedExpr> {
        let call = grammar::parse_call(function)?;
        let Some(name) = list_names().find(|name| name.eq_ignore_ascii_case(call.name)) else {
            let name = excerpt(call.name);
            return query_fault(QueryErrorKind::Function, format!("there is no function {name}"));
        };
        let is = |function: &ScalarFunction| function.name == name;
        let Some(known) = FUNCTIONS.iter().find(|known| is(known)) else {
            return match name {
                "arrayJoin" => {
                    self.translate_array_join(scope, plain_arguments(name, &call, 1, 1)?[0])
                }
                "arrayFilter" => {
                    let given = plain_arguments(name, &call, 2, 2)?;
                    self.translate_array_filter(scope, given[0], given[1])
                }
                name => self.translate_aggregate(scope, name, &call),
            };
        };
        let given = self.translate_all(
            scope,
            plain_arguments(name, &call, known.arguments_min, known.arguments_max)?,
        )?;
        translate_call(
            known,
            &CallArguments {
                engine: self.engine,
                now: self.context.now_ms,
                name,
                arguments: &given,
            },
        )
    }
}

/// Returns the arguments of a function that is not an aggregate.
fn plain_arguments<'q>(
    name: &str,
    call: &CallParts<'q>,
    least: usize,
    most: usize,
) -> Result<Vec<&'q Expr>> {
    if call.over.is_some() || call.is_distinct || !call.parameters.is_empty() {
        return invalid(format!("{name} is not an aggregate and takes only arguments"));
    }
    let given = call.arguments.iter().map(|given| match given {
        FunctionArgument::Expr(expr) => Ok(*expr),
        FunctionArgument::Star => invalid(format!("* is not an argument of {name}")),
    });
    let given = given.collect::<Result<Vec<_>>>()?;
    if given.len() < least || given.len() > most {
        let many = match least.cmp(&most) {
            Ordering::Equal => least.to_string(),
            _ if most == ARGUMENTS_UNLIMITED => format!("at least {least}"),
            _ => format!("{least} to {most}"),
        };
        return invalid(format!("{name} takes {many} arguments, not {}", given.len()));
    }
    Ok(given)
}

fn translate_call(function: &ScalarFunction, args: &CallArguments<'_>) -> Result<TypedExpr> {
    if let Some(given) = args.arguments.iter().find(|given| matches!(given.ty, Type::Interval(_))) {
        return invalid(format!("{} does not take {}", function.name, given.ty));
    }
    (function.translate)(args)
}

/// Calls a function that has a syntax of its own.
pub fn call_by_name(args: &CallArguments<'_>) -> Result<TypedExpr> {
    match FUNCTIONS.iter().find(|function| function.name == args.name) {
        Some(function) => translate_call(function, args),
        None => {
            query_fault(QueryErrorKind::Function, format!("there is no function {}", args.name))
        }
    }
}

/// Translates a function whose arguments are all strings.
fn translate_text_function(
    args: &CallArguments<'_>,
    gives: Type,
    templates: [&'static str; 3],
) -> Result<TypedExpr> {
    for given in args.arguments {
        if !matches!(given.ty, Type::Text | Type::Null) {
            return invalid(format!("{} takes a String, not {}", args.name, given.ty));
        }
    }
    let given: Vec<_> = args.arguments.iter().collect();
    Ok(TypedExpr::from_template(args.engine.select(templates), gives, &given))
}

/// Translates `length`. The length of a string is in bytes, as in ClickHouse.
fn translate_length(args: &CallArguments<'_>) -> Result<TypedExpr> {
    let value = &args.arguments[0];
    let clickhouse = "toInt64(length({0}))";
    let template = match &value.ty {
        Type::Text | Type::Null => {
            let usual = "CAST(octet_length({0}) AS BIGINT)";
            args.engine.select([usual, usual, clickhouse])
        }
        Type::Array(_) => args.engine.select([
            "CAST(jsonb_array_length({0}) AS BIGINT)",
            "CAST(json_array_length({0}) AS BIGINT)",
            clickhouse,
        ]),
        other => return invalid(format!("length takes a String or an Array, not {other}")),
    };
    Ok(TypedExpr::from_template(template, Type::Int, &[value]))
}

fn translate_substring(args: &CallArguments<'_>) -> Result<TypedExpr> {
    let value = &args.arguments[0];
    let whole = |given: &TypedExpr| given.ty == Type::Int;
    if value.ty != Type::Text || !args.arguments[1..].iter().all(whole) {
        return invalid("substring takes a String, a start and a length");
    }
    let from = match args.engine {
        SqlDialect::ClickHouse => return Ok(translate_clickhouse_substring(args)),
        SqlDialect::Sqlite => args.arguments[1].sql.clone(),
        // Counted from the end, and within what Postgres accepts.
        SqlDialect::Postgres => Fragment::from_template(
            "CAST(GREATEST(LEAST(CASE WHEN {1} < 0 THEN length({0}) + {1} + 1 ELSE {1} END, 1000000000), -1000000000) AS INTEGER)",
            &[&value.sql, &args.arguments[1].sql],
        ),
    };
    // LEAST and GREATEST of Postgres leave out NULL.
    let is_postgres = args.engine == SqlDialect::Postgres;
    let sql = match args.arguments.get(2) {
        None if is_postgres => Fragment::from_template(
            "CASE WHEN {2} IS NOT NULL THEN substr({0}, {1}) END",
            &[&value.sql, &from, &args.arguments[1].sql],
        ),
        None => Fragment::from_template("substr({0}, {1})", &[&value.sql, &from]),
        Some(length) if is_postgres => Fragment::from_template(
            "CASE WHEN {3} IS NOT NULL AND {2} IS NOT NULL THEN substr({0}, {1}, CAST(LEAST(GREATEST({2}, 0), 1000000000) AS INTEGER)) END",
            &[&value.sql, &from, &length.sql, &args.arguments[1].sql],
        ),
        Some(length) => {
            let template = "substr({0}, {1}, max({2}, 0))";
            Fragment::from_template(template, &[&value.sql, &from, &length.sql])
        }
    };
    Ok(TypedExpr::from_parts(sql, Type::Text, &args.arguments.iter().collect::<Vec<_>>()))
}

/// Translates `substring` for ClickHouse. Old versions accept only numbers that are literals and not counted from the
/// end. For others the string becomes a list of characters.
fn translate_clickhouse_substring(args: &CallArguments<'_>) -> TypedExpr {
    let parts: Vec<_> = args.arguments.iter().collect();
    let text = &parts[0].sql;
    let length = parts.get(2).map_or(Some(1_000_000_000), |length| length.constant_int());
    if let (Some(from @ 1..), Some(length @ 0..)) = (parts[1].constant_int(), length) {
        let (from, length) = (Fragment::digits(&[from]), Fragment::digits(&[length]));
        let sql = Fragment::from_template("substringUTF8({0}, {1}, {2})", &[text, &from, &length]);
        return TypedExpr::from_parts(sql, Type::Text, &parts);
    }
    let from = Fragment::from_template("CASE WHEN {0} = 0 THEN 1 ELSE {0} END", &[&parts[1].sql]);
    let sql = match parts.get(2) {
        None => Fragment::from_template(
            "arrayStringConcat(arraySlice(extractAll(ifNull({0}, ''), '(?s).'), {1}))",
            &[text, &from],
        ),
        Some(length) => Fragment::from_template(
            "arrayStringConcat(arraySlice(extractAll(ifNull({0}, ''), '(?s).'), {1}, CASE WHEN {2} > 0 THEN {2} ELSE 0 END))",
            &[text, &from, &length.sql],
        ),
    };
    TypedExpr::from_parts(sql, Type::Text, &parts)
}

/// Translates `JSONExtractString`: a string in a JSON text, by keys and by positions that are counted from 1. It is
/// empty if there is none.
fn translate_json_extract_string(args: &CallArguments<'_>) -> Result<TypedExpr> {
    let value = &args.arguments[0];
    if value.ty != Type::Text {
        return invalid(format!("JSONExtractString takes a String, not {}", value.ty));
    }
    let (mut path, mut keys) = ("$".to_owned(), Vec::new());
    let given: Vec<_> = args.arguments.iter().map(|given| &given.sql).collect();
    for key in &args.arguments[1..] {
        match (key.constant_text(), key.constant_int()) {
            (Some(key), _) if !key.contains(['"', '\\']) => {
                let _ = write!(path, ".\"{key}\"");
                keys.push(key.to_owned());
            }
            (None, Some(position)) if position > 0 => {
                let _ = write!(path, "[{}]", position - 1);
                keys.push((position - 1).to_string());
            }
            _ => {
                return invalid(
                    "JSONExtractString takes keys without quotes, and positions from 1",
                );
            }
        }
    }
    let sql = match args.engine {
        SqlDialect::ClickHouse => {
            // New versions also convert a number to a string.
            let template =
                "CASE WHEN JSONType({0}) = 'String' THEN JSONExtractString({0}) ELSE '' END";
            Fragment::from_template(template, &[&Fragment::join(", ", given)])
        }
        SqlDialect::Sqlite => Fragment::from_template(
            "CASE WHEN json_valid({0}) AND json_type({0}, {1}) = 'text' THEN json_extract({0}, {1}) ELSE '' END",
            &[&value.sql, &Fragment::text(&path)],
        ),
        SqlDialect::Postgres => {
            let keys = Fragment::text(&serde_json::json!(keys).to_string());
            let found = Fragment::from_template(
                "(keyward_events.json_or_null({0}) #> ARRAY(SELECT jsonb_array_elements_text(CAST({1} AS jsonb))))",
                &[&value.sql, &keys],
            );
            Fragment::from_template(
                "CASE WHEN jsonb_typeof({0}) = 'string' THEN {0} #>> ARRAY[]::text[] ELSE '' END",
                &[&found],
            )
        }
    };
    Ok(TypedExpr::from_parts(sql, Type::Text, &[value]).ordered_by_bytes(args.engine))
}

fn translate_coalesce(args: &CallArguments<'_>) -> Result<TypedExpr> {
    let mut ty = Type::Null;
    for given in args.arguments {
        match ty.common_type(&given.ty) {
            Some(joined) => ty = joined,
            None => return invalid(format!("coalesce cannot combine {ty} and {}", given.ty)),
        }
    }
    let given = args.arguments.iter().map(|given| given.clone().widen_to(&ty));
    let given = given.collect::<Result<Vec<_>>>()?;
    if let [only] = &given[..] {
        return Ok(only.clone());
    }
    let list = Fragment::join(", ", given.iter().map(|given| &given.sql));
    let sql = Fragment::from_template("COALESCE({0})", &[&list]);
    Ok(TypedExpr::from_parts(sql, ty, &given.iter().collect::<Vec<_>>()))
}
