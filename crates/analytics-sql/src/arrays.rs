//! Translates lists, which are JSON in Postgres and SQLite.

use foundation::error::Result;
use sqlparser::ast::{Expr, LambdaFunction, LambdaFunctionParameter, OneOrManyWithParens};

use super::fragment::Fragment;
use super::functions::Args;
use super::scope::Scope;
use super::translate::Translator;
use super::types::{SqlDialect, Type, Typed};
use super::{invalid, unsupported};

/// Translates `[…, …]`.
pub fn of(engine: SqlDialect, items: Vec<Typed>) -> Result<Typed> {
    let mut ty = Type::Null;
    for item in &items {
        match ty.join(&item.ty) {
            // With lists of lists, a short query could build one without bound.
            Some(Type::Array(_)) => return unsupported("a list of lists"),
            Some(joined) if !matches!(joined, Type::Interval(_)) => ty = joined,
            _ => return invalid(format!("a list cannot contain {ty} and {}", item.ty)),
        }
    }
    let items = items.into_iter().map(|item| item.widened(&ty)).collect::<Result<Vec<_>>>()?;
    let written: Vec<_> = items.iter().map(|item| json(engine, item)).collect();
    let list = Fragment::list(", ", &written);
    let template = engine.pick(["jsonb_build_array({0})", "json_array({0})", "[{0}]"]);
    let sql = Fragment::fill(template, &[&list]);
    Ok(Typed::of(sql, Type::array(ty), &items.iter().collect::<Vec<_>>()))
}

/// Returns a value as an element of a list. SQLite treats a list within a list as text unless it is declared as JSON.
pub fn json(engine: SqlDialect, value: &Typed) -> Fragment {
    match (engine, &value.ty) {
        (SqlDialect::Sqlite, Type::Array(_)) => Fragment::fill("json({0})", &[&value.sql]),
        _ => value.sql.clone(),
    }
}

fn element(array: &Typed) -> Result<&Type> {
    match &array.ty {
        Type::Array(element) => Ok(element),
        other => invalid(format!("an Array is required here, not {other}")),
    }
}

/// Returns an element of a list, from the column `value` of `name`. In ClickHouse the element is named `name`.
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

/// Translates `has`: whether a list contains a value.
pub fn has(args: &Args<'_>) -> Result<Typed> {
    let (list, value) = (&args.given[0], &args.given[1]);
    let element_type = element(list)?;
    if element_type.join(&value.ty).is_none() || matches!(element_type, Type::Array(_)) {
        return invalid(format!("has cannot search for {} in {}", value.ty, list.ty));
    }
    refuse_sums(args.name, &[list, value])?;
    let template = args.engine.pick([
        "COALESCE({0} @> to_jsonb({1}), FALSE)",
        "({1} IN (SELECT value FROM json_each({0})))",
        "has({0}, {1})",
    ]);
    Ok(Typed::fill(template, Type::Flag, &[list, value]))
}

/// Translates `hasAny` and `hasAll`: whether a list contains any or all of the elements of another.
pub fn overlap(args: &Args<'_>, is_all: bool) -> Result<Typed> {
    let (list, other_list) = (&args.given[0], &args.given[1]);
    let (element_type, other) = (element(list)?, element(other_list)?);
    if element_type.join(other).is_none()
        || matches!(element_type, Type::Array(_))
        || matches!(other, Type::Array(_))
    {
        return invalid(format!("{} cannot compare {} with {}", args.name, list.ty, other_list.ty));
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
    refuse_sums(args.name, &[list, other_list])?;
    Ok(Typed::fill(template, Type::Flag, &[list, other_list]))
}

/// Rejects aggregates: in a subquery they would be computed over its rows.
fn refuse_sums(name: &str, values: &[&Typed]) -> Result<()> {
    match values.iter().any(|value| value.aggregates || value.windows) {
        false => Ok(()),
        true => {
            invalid(format!("{name} does not accept an aggregate; aggregate in a subquery in FROM"))
        }
    }
}

/// Returns the SQL after FROM for the lists that [`Translator::translate_array_join`] has collected.
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
    /// Translates `arrayJoin`: a row for each element of a list. The same list is expanded once, however often it
    /// occurs.
    pub fn translate_array_join<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        list: &'q Expr,
    ) -> Result<Typed> {
        let list = self.expr(scope, list)?;
        let element_type = element(&list)?.clone();
        refuse_sums("arrayJoin", &[&list])?;
        if !scope.parameters.is_empty() {
            return invalid("arrayJoin is not allowed in a lambda");
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
            // ClickHouse itself expands the same list once.
            SqlDialect::ClickHouse => Fragment::fill("arrayJoin({0})", &[&list.sql]),
            engine @ (SqlDialect::Postgres | SqlDialect::Sqlite) => {
                taken(engine, &element_type, &Fragment::name('e', number))
            }
        };
        Ok(Typed::of(sql, element_type, &[&list]))
    }

    /// Translates `arrayFilter`: the elements of a list for which a lambda holds.
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
        let element_type = element(&list)?.clone();
        if matches!(element_type, Type::Array(_)) {
            return unsupported("arrayFilter of lists of lists");
        }
        let element_name = self.name('e');
        let value = Typed::of(taken(self.engine, &element_type, &element_name), element_type, &[]);
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
        let sql = Fragment::fill(template, &[&list.sql, &element_name, &holds.sql]);
        Ok(Typed::of(sql, list.ty.clone(), &[&list, &holds]))
    }
}
