//! Lists, which are JSON in Postgres and SQLite.

use foundation::error::Result;
use sqlparser::ast::{Expr, LambdaFunction, LambdaFunctionParameter, OneOrManyWithParens};

use super::fragment::Fragment;
use super::functions::Args;
use super::scope::Scope;
use super::translate::Translator;
use super::types::{SqlDialect, Type, Typed};
use super::{invalid, unsupported};

/// `[…, …]`.
pub fn of(engine: SqlDialect, items: Vec<Typed>) -> Result<Typed> {
    let mut ty = Type::Null;
    for item in &items {
        match ty.join(&item.ty) {
            // Of lists of lists a short query could make one without bound.
            Some(Type::Array(_)) => return unsupported("a list of lists"),
            Some(joined) if !matches!(joined, Type::Interval(_)) => ty = joined,
            _ => return invalid(format!("a list of {ty} and {}", item.ty)),
        }
    }
    let items = items.into_iter().map(|item| item.widened(&ty)).collect::<Result<Vec<_>>>()?;
    let written: Vec<_> = items.iter().map(|item| json(engine, item)).collect();
    let list = Fragment::list(", ", &written);
    let template = engine.pick(["jsonb_build_array({0})", "json_array({0})", "[{0}]"]);
    let sql = Fragment::fill(template, &[&list]);
    Ok(Typed::of(sql, Type::array(ty), &items.iter().collect::<Vec<_>>()))
}

/// A value as it goes into a list: to SQLite a list within a list is a text if it is not told.
pub fn json(engine: SqlDialect, value: &Typed) -> Fragment {
    match (engine, &value.ty) {
        (SqlDialect::Sqlite, Type::Array(_)) => Fragment::fill("json({0})", &[&value.sql]),
        _ => value.sql.clone(),
    }
}

fn element(array: &Typed) -> Result<&Type> {
    match &array.ty {
        Type::Array(element) => Ok(element),
        other => invalid(format!("an Array is needed here, not {other}")),
    }
}

/// A value that came out of a list, from the column `value` of `name`; in ClickHouse it has the name itself.
fn taken(engine: SqlDialect, ty: &Type, name: &Fragment) -> Fragment {
    match engine {
        SqlDialect::Sqlite => return Fragment::fill("{0}.value", &[name]),
        SqlDialect::ClickHouse => return name.clone(),
        SqlDialect::Postgres => {}
    }
    let whole = Fragment::word("'{}'");
    let template = match ty {
        Type::Array(_) => "{0}.value",
        Type::Text | Type::Null | Type::Interval(_) => "({0}.value #>> {1})",
        Type::Float => "CAST({0}.value #>> {1} AS DOUBLE PRECISION)",
        Type::Bool | Type::Flag => "CAST({0}.value #>> {1} AS BOOLEAN)",
        Type::Int | Type::DateTime | Type::DateTime64 | Type::Date => {
            "CAST({0}.value #>> {1} AS BIGINT)"
        }
    };
    Fragment::fill(template, &[name, &whole])
}

/// Whether a list holds a value.
pub fn has(args: &Args<'_>) -> Result<Typed> {
    let (list, value) = (&args.given[0], &args.given[1]);
    let of = element(list)?;
    if of.join(&value.ty).is_none() || matches!(of, Type::Array(_)) {
        return invalid(format!("has does not look for {} in {}", value.ty, list.ty));
    }
    refuse_sums(args.name, &[list, value])?;
    let template = args.engine.pick([
        "COALESCE({0} @> to_jsonb({1}), FALSE)",
        "({1} IN (SELECT value FROM json_each({0})))",
        "has({0}, {1})",
    ]);
    Ok(Typed::fill(template, Type::Flag, &[list, value]))
}

/// Whether a list holds any of another one, or all.
pub fn overlap(args: &Args<'_>, is_all: bool) -> Result<Typed> {
    let (list, wanted) = (&args.given[0], &args.given[1]);
    let (of, other) = (element(list)?, element(wanted)?);
    if of.join(other).is_none() || matches!(of, Type::Array(_)) || matches!(other, Type::Array(_)) {
        return invalid(format!("{} does not compare {} with {}", args.name, list.ty, wanted.ty));
    }
    let template = match (args.engine, is_all) {
        (SqlDialect::Postgres, true) => "({0} @> {1})",
        (SqlDialect::Postgres, false) => {
            "EXISTS (SELECT 1 FROM jsonb_array_elements({1}) AS wanted WHERE {0} @> wanted.value)"
        }
        (SqlDialect::ClickHouse, true) => "hasAll({0}, {1})",
        (SqlDialect::ClickHouse, false) => "hasAny({0}, {1})",
        (SqlDialect::Sqlite, true) => {
            "(NOT EXISTS (SELECT 1 FROM json_each({1}) AS wanted WHERE wanted.value NOT IN (SELECT value FROM json_each({0}))))"
        }
        (SqlDialect::Sqlite, false) => {
            "EXISTS (SELECT 1 FROM json_each({1}) AS wanted WHERE wanted.value IN (SELECT value FROM json_each({0})))"
        }
    };
    refuse_sums(args.name, &[list, wanted])?;
    Ok(Typed::fill(template, Type::Flag, &[list, wanted]))
}

/// In a query of their own, sums would be taken over its rows.
fn refuse_sums(name: &str, values: &[&Typed]) -> Result<()> {
    match values.iter().any(|value| value.aggregates || value.windows) {
        false => Ok(()),
        true => invalid(format!("{name} takes no aggregate: sum up in a query within FROM")),
    }
}

/// What [`Translator::array_join`] has collected, after FROM.
pub fn unnest(engine: SqlDialect, unnested: &[(Fragment, usize)]) -> Fragment {
    let mut sql = Fragment::default();
    for (list, number) in unnested {
        let template = engine.pick([
            " CROSS JOIN LATERAL jsonb_array_elements({0}) AS {1}(value)",
            " CROSS JOIN json_each({0}) AS {1}",
            "",
        ]);
        sql.append(&Fragment::fill(template, &[list, &Fragment::name('e', *number)]));
    }
    sql
}

impl Translator<'_> {
    /// A row for each element of a list. The same list is taken apart once, however often that is written.
    pub fn array_join<'q>(&mut self, scope: &mut Scope<'q>, list: &'q Expr) -> Result<Typed> {
        let list = self.expr(scope, list)?;
        let of = element(&list)?.clone();
        refuse_sums("arrayJoin", &[&list])?;
        if !scope.parameters.is_empty() {
            return invalid("arrayJoin cannot stand in a lambda");
        }
        let known = scope.unnested.iter().find(|(known, _)| *known == list.sql);
        let number = match known {
            Some((_, number)) => *number,
            None => {
                let number = self.number();
                scope.unnested.push((list.sql.clone(), number));
                number
            }
        };
        let sql = match self.engine {
            // It takes the same list apart once by itself.
            SqlDialect::ClickHouse => Fragment::fill("arrayJoin({0})", &[&list.sql]),
            engine @ (SqlDialect::Postgres | SqlDialect::Sqlite) => {
                taken(engine, &of, &Fragment::name('e', number))
            }
        };
        Ok(Typed::of(sql, of, &[&list]))
    }

    /// The elements of a list for which a lambda holds.
    pub fn array_filter<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        lambda: &'q Expr,
        list: &'q Expr,
    ) -> Result<Typed> {
        let Expr::Lambda(LambdaFunction { params, body, syntax: _ }) = lambda else {
            return invalid("arrayFilter takes a lambda first: x -> x != ''");
        };
        let parameter = match params {
            OneOrManyWithParens::One(parameter) => parameter,
            OneOrManyWithParens::Many(parameters) => match &parameters[..] {
                [parameter] => parameter,
                _ => return unsupported("arrayFilter over several lists"),
            },
        };
        let LambdaFunctionParameter { name, data_type: None } = parameter else {
            return unsupported("a type in a lambda");
        };
        let list = self.expr(scope, list)?;
        let of = element(&list)?.clone();
        if matches!(of, Type::Array(_)) {
            return unsupported("arrayFilter of lists of lists");
        }
        let own = self.name('e');
        let value = Typed::of(taken(self.engine, &of, &own), of, &[]);
        scope.parameters.push((&name.value, value));
        let holds = self.expr(scope, body);
        scope.parameters.pop();
        let holds = holds?.truth()?;
        refuse_sums("arrayFilter", &[&list, &holds])?;
        let template = self.engine.pick([
            "(SELECT COALESCE(jsonb_agg({1}.value ORDER BY {1}.place), jsonb_build_array()) FROM jsonb_array_elements({0}) WITH ORDINALITY AS {1}(value, place) WHERE {2})",
            "(SELECT json_group_array({1}.value ORDER BY {1}.key) FROM json_each({0}) AS {1} WHERE {2})",
            "arrayFilter({1} -> ifNull({2}, 0), {0})",
        ]);
        let sql = Fragment::fill(template, &[&list.sql, &own, &holds.sql]);
        Ok(Typed::of(sql, list.ty.clone(), &[&list, &holds]))
    }
}
