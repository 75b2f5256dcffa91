//! Lists the functions that a query may call, and translates each for every engine.
//!
//! Names match in any letter case of ASCII. A function that is not in these tables cannot be called.

use std::cmp::Ordering;
use std::fmt::Write as _;

use foundation::error::{QueryFault, Result};
use sqlparser::ast::{Expr, Function as FunctionCall};

use super::fragment::Fragment;
use super::grammar::{self, Call, Given};
use super::scope::Scope;
use super::translate::Translator;
use super::types::{SqlDialect, Type, Typed};
use super::{aggregates, arrays, casts, dates, fault, invalid, numbers, operators, shown};

/// The arguments of a function, and the context of its call.
pub struct Args<'c> {
    pub engine: SqlDialect,
    /// In Unix milliseconds.
    pub now: i64,
    /// The name as in the documentation.
    pub name: &'static str,
    pub given: &'c [Typed],
}

/// A function of values of its row.
pub struct Function {
    pub name: &'static str,
    /// The minimum and maximum number of arguments.
    least: usize,
    most: usize,
    write: fn(&Args<'_>) -> Result<Typed>,
}

const fn function(
    name: &'static str,
    least: usize,
    most: usize,
    write: fn(&Args<'_>) -> Result<Typed>,
) -> Function {
    Function { name, least, most, write }
}

/// As many arguments as a query can have.
const ANY: usize = usize::MAX;

pub static FUNCTIONS: &[Function] = &[
    function("now", 0, 1, dates::now),
    function("now64", 0, 2, dates::now64),
    function("today", 0, 1, dates::today),
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
    function("date_trunc", 2, 3, dates::date_trunc),
    function("formatDateTime", 2, 3, dates::format),
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
    function("lower", 1, 1, |args| text(args, Type::Text, ["lower({0})"; 3])),
    function("upper", 1, 1, |args| text(args, Type::Text, ["upper({0})"; 3])),
    function("trim", 1, 1, |args| {
        let clickhouse = "replaceRegexpAll({0}, '^ +| +$', '')";
        text(args, Type::Text, ["btrim({0})", "trim({0})", clickhouse])
    }),
    function("substring", 2, 3, substring),
    function("concat", 1, ANY, |args| casts::concat(args.engine, args.given)),
    function("length", 1, 1, length),
    function("startsWith", 2, 2, |args| {
        let sqlite = "(substr({0}, 1, length({1})) = {1})";
        text(args, Type::Flag, ["starts_with({0}, {1})", sqlite, "startsWith({0}, {1})"])
    }),
    function("endsWith", 2, 2, |args| {
        let sqlite = "({1} = '' OR substr({0}, - length({1})) = {1})";
        text(args, Type::Flag, ["(right({0}, length({1})) = {1})", sqlite, "endsWith({0}, {1})"])
    }),
    function("JSONExtractString", 2, ANY, json_extract_string),
    function("round", 1, 2, numbers::round),
    function("floor", 1, 2, numbers::floor),
    function("ceil", 1, 2, numbers::ceil),
    function("abs", 1, 1, numbers::abs),
    function("if", 3, 3, |args| {
        let when = args.given[0].clone().truth()?;
        operators::choose(&[when], args.given[1..].to_vec())
    }),
    function("coalesce", 1, ANY, coalesce),
    function("toString", 1, 2, |args| casts::to_text(args.engine, &args.given[0])),
    function("toInt32", 1, 1, |args| casts::to_int(args.engine, &args.given[0])),
    function("toInt64", 1, 1, |args| casts::to_int(args.engine, &args.given[0])),
    function("toFloat64", 1, 1, |args| casts::to_float(args.engine, &args.given[0])),
    function("has", 2, 2, arrays::has),
    function("hasAny", 2, 2, |args| arrays::overlap(args, false)),
    function("hasAll", 2, 2, |args| arrays::overlap(args, true)),
];

/// The functions that translate their arguments themselves.
const SPECIAL: [&str; 2] = ["arrayJoin", "arrayFilter"];

/// Returns the names of all functions that a query may call.
pub fn names() -> impl Iterator<Item = &'static str> {
    let functions = FUNCTIONS.iter().map(|function| function.name);
    functions.chain(SPECIAL).chain(aggregates::NAMES.iter().copied())
}

impl Translator<'_> {
    pub fn function<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        function: &'q FunctionCall,
    ) -> Result<Typed> {
        let call = grammar::call(function)?;
        let Some(name) = names().find(|name| name.eq_ignore_ascii_case(call.name)) else {
            let name = shown(call.name);
            return fault(QueryFault::Function, format!("there is no function {name}"));
        };
        let is = |function: &Function| function.name == name;
        let Some(known) = FUNCTIONS.iter().find(|known| is(known)) else {
            return match name {
                "arrayJoin" => self.translate_array_join(scope, plain(name, &call, 1, 1)?[0]),
                "arrayFilter" => {
                    let given = plain(name, &call, 2, 2)?;
                    self.array_filter(scope, given[0], given[1])
                }
                name => self.aggregate(scope, name, &call),
            };
        };
        let given = self.all(scope, plain(name, &call, known.least, known.most)?)?;
        write(known, &Args { engine: self.engine, now: self.asked.now, name, given: &given })
    }
}

/// Returns the arguments of a function that is not an aggregate.
fn plain<'q>(name: &str, call: &Call<'q>, least: usize, most: usize) -> Result<Vec<&'q Expr>> {
    if call.over.is_some() || call.is_distinct || !call.parameters.is_empty() {
        return invalid(format!("{name} is not an aggregate and takes only arguments"));
    }
    let given = call.given.iter().map(|given| match given {
        Given::Expr(expr) => Ok(*expr),
        Given::Star => invalid(format!("* is not an argument of {name}")),
    });
    let given = given.collect::<Result<Vec<_>>>()?;
    if given.len() < least || given.len() > most {
        let many = match least.cmp(&most) {
            Ordering::Equal => least.to_string(),
            _ if most == ANY => format!("at least {least}"),
            _ => format!("{least} to {most}"),
        };
        return invalid(format!("{name} takes {many} arguments, not {}", given.len()));
    }
    Ok(given)
}

fn write(function: &Function, args: &Args<'_>) -> Result<Typed> {
    if let Some(given) = args.given.iter().find(|given| matches!(given.ty, Type::Interval(_))) {
        return invalid(format!("{} does not take {}", function.name, given.ty));
    }
    (function.write)(args)
}

/// Calls a function that has a syntax of its own.
pub fn call(args: &Args<'_>) -> Result<Typed> {
    match FUNCTIONS.iter().find(|function| function.name == args.name) {
        Some(function) => write(function, args),
        None => fault(QueryFault::Function, format!("there is no function {}", args.name)),
    }
}

/// Translates a function whose arguments are all strings.
fn text(args: &Args<'_>, gives: Type, templates: [&'static str; 3]) -> Result<Typed> {
    for given in args.given {
        if !matches!(given.ty, Type::Text | Type::Null) {
            return invalid(format!("{} takes a String, not {}", args.name, given.ty));
        }
    }
    let given: Vec<_> = args.given.iter().collect();
    Ok(Typed::fill(args.engine.pick(templates), gives, &given))
}

/// Translates `length`. The length of a string is in bytes, as in ClickHouse.
fn length(args: &Args<'_>) -> Result<Typed> {
    let value = &args.given[0];
    let clickhouse = "toInt64(length({0}))";
    let template = match &value.ty {
        Type::Text | Type::Null => {
            let usual = "CAST(octet_length({0}) AS BIGINT)";
            args.engine.pick([usual, usual, clickhouse])
        }
        Type::Array(_) => args.engine.pick([
            "CAST(jsonb_array_length({0}) AS BIGINT)",
            "CAST(json_array_length({0}) AS BIGINT)",
            clickhouse,
        ]),
        other => return invalid(format!("length takes a String or an Array, not {other}")),
    };
    Ok(Typed::fill(template, Type::Int, &[value]))
}

fn substring(args: &Args<'_>) -> Result<Typed> {
    let value = &args.given[0];
    let whole = |given: &Typed| given.ty == Type::Int;
    if value.ty != Type::Text || !args.given[1..].iter().all(whole) {
        return invalid("substring takes a String, a start and a length");
    }
    let from = match args.engine {
        SqlDialect::ClickHouse => return Ok(characters(args)),
        SqlDialect::Sqlite => args.given[1].sql.clone(),
        // Counted from the end, and within what Postgres accepts.
        SqlDialect::Postgres => Fragment::fill(
            "CAST(GREATEST(LEAST(CASE WHEN {1} < 0 THEN length({0}) + {1} + 1 ELSE {1} END, 1000000000), -1000000000) AS INTEGER)",
            &[&value.sql, &args.given[1].sql],
        ),
    };
    let sql = match args.given.get(2) {
        None => Fragment::fill("substr({0}, {1})", &[&value.sql, &from]),
        Some(length) => {
            let template = if args.engine == SqlDialect::Sqlite {
                "substr({0}, {1}, max({2}, 0))"
            } else {
                "substr({0}, {1}, CAST(LEAST(GREATEST({2}, 0), 1000000000) AS INTEGER))"
            };
            Fragment::fill(template, &[&value.sql, &from, &length.sql])
        }
    };
    Ok(Typed::of(sql, Type::Text, &args.given.iter().collect::<Vec<_>>()))
}

/// Translates `substring` for ClickHouse. Old versions accept only numbers that are literals and not counted from the
/// end. For others the string becomes a list of characters.
fn characters(args: &Args<'_>) -> Typed {
    let parts: Vec<_> = args.given.iter().collect();
    let text = &parts[0].sql;
    let length = parts.get(2).map_or(Some(1_000_000_000), |length| length.known_int());
    if let (Some(from @ 1..), Some(length @ 0..)) = (parts[1].known_int(), length) {
        let (from, length) = (Fragment::digits(&[from]), Fragment::digits(&[length]));
        let sql = Fragment::fill("substringUTF8({0}, {1}, {2})", &[text, &from, &length]);
        return Typed::of(sql, Type::Text, &parts);
    }
    let from = Fragment::fill("CASE WHEN {0} = 0 THEN 1 ELSE {0} END", &[&parts[1].sql]);
    let sql = match parts.get(2) {
        None => Fragment::fill(
            "arrayStringConcat(arraySlice(extractAll(ifNull({0}, ''), '(?s).'), {1}))",
            &[text, &from],
        ),
        Some(length) => Fragment::fill(
            "arrayStringConcat(arraySlice(extractAll(ifNull({0}, ''), '(?s).'), {1}, CASE WHEN {2} > 0 THEN {2} ELSE 0 END))",
            &[text, &from, &length.sql],
        ),
    };
    Typed::of(sql, Type::Text, &parts)
}

/// Translates `JSONExtractString`: a string in a JSON text, by keys and by positions that are counted from 1. It is
/// empty if there is none.
fn json_extract_string(args: &Args<'_>) -> Result<Typed> {
    let value = &args.given[0];
    if value.ty != Type::Text {
        return invalid(format!("JSONExtractString takes a String, not {}", value.ty));
    }
    let (mut path, mut keys) = ("$".to_owned(), Vec::new());
    let given: Vec<_> = args.given.iter().map(|given| &given.sql).collect();
    for key in &args.given[1..] {
        match (key.known_text(), key.known_int()) {
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
            Fragment::fill(template, &[&Fragment::list(", ", given)])
        }
        SqlDialect::Sqlite => Fragment::fill(
            "CASE WHEN json_valid({0}) AND json_type({0}, {1}) = 'text' THEN json_extract({0}, {1}) ELSE '' END",
            &[&value.sql, &Fragment::text(&path)],
        ),
        SqlDialect::Postgres => {
            let keys = Fragment::text(&serde_json::json!(keys).to_string());
            let found = Fragment::fill(
                "(keyward_events.json_or_null({0}) #> ARRAY(SELECT jsonb_array_elements_text(CAST({1} AS jsonb))))",
                &[&value.sql, &keys],
            );
            Fragment::fill(
                "CASE WHEN jsonb_typeof({0}) = 'string' THEN {0} #>> ARRAY[]::text[] ELSE '' END",
                &[&found],
            )
        }
    };
    Ok(Typed::of(sql, Type::Text, &[value]))
}

fn coalesce(args: &Args<'_>) -> Result<Typed> {
    let mut ty = Type::Null;
    for given in args.given {
        match ty.join(&given.ty) {
            Some(joined) => ty = joined,
            None => return invalid(format!("coalesce cannot combine {ty} and {}", given.ty)),
        }
    }
    let given = args.given.iter().map(|given| given.clone().widened(&ty));
    let given = given.collect::<Result<Vec<_>>>()?;
    if let [only] = &given[..] {
        return Ok(only.clone());
    }
    let list = Fragment::list(", ", given.iter().map(|given| &given.sql));
    let sql = Fragment::fill("COALESCE({0})", &[&list]);
    Ok(Typed::of(sql, ty, &given.iter().collect::<Vec<_>>()))
}
