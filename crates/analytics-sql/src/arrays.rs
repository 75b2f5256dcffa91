//! Translates lists, which are JSON in Postgres and SQLite.

use foundation::error::Result;
use sqlparser::ast::{Expr, LambdaFunction, LambdaFunctionParameter, OneOrManyWithParens};

use super::fragment::Fragment;
use super::functions::CallArguments;
use super::scope::Scope;
use super::translate::Translator;
use super::types::{SqlDialect, Type, TypedExpr};
use super::{invalid, unsupported};

/// Translates `[…, …]`.
pub fn build_array(engine: SqlDialect, items: Vec<TypedExpr>) -> Result<TypedExpr> {
    let mut ty = Type::Null;
    for item in &items {
        match ty.common_type(&item.ty) {
            // With lists of lists, a short query could build one without bound.
            Some(Type::Array(_)) => return unsupported("a list of lists"),
            Some(joined) if !matches!(joined, Type::Interval(_)) => ty = joined,
            _ => return invalid(format!("a list cannot contain {ty} and {}", item.ty)),
        }
    }
    let items = items.into_iter().map(|item| item.widen_to(&ty)).collect::<Result<Vec<_>>>()?;
    let written: Vec<_> = items.iter().map(|item| to_list_element(engine, item)).collect();
    let list = Fragment::join(", ", &written);
    let template = engine.select(["jsonb_build_array({0})", "json_array({0})", "[{0}]"]);
    let sql = Fragment::from_template(template, &[&list]);
    Ok(TypedExpr::from_parts(sql, Type::array_of(ty), &items.iter().collect::<Vec<_>>()))
}

/// Returns a value as an element of a list. SQLite treats a list within a list as text unless it is declared as JSON.
pub fn to_list_element(engine: SqlDialect, value: &TypedExpr) -> Fragment {
    match (engine, &value.ty) {
        (SqlDialect::Sqlite, Type::Array(_)) => Fragment::from_template("json({0})", &[&value.sql]),
        _ => value.sql.clone(),
    }
}

fn list_element_type(array: &TypedExpr) -> Result<&Type> {
    match &array.ty {
        Type::Array(element) => Ok(element),
        other => invalid(format!("an Array is required here, not {other}")),
    }
}

/// Returns an element of a list, from the column `value` of `name`. In ClickHouse the element is named `name`.
fn element_value(engine: SqlDialect, ty: &Type, name: &Fragment) -> Fragment {
    match engine {
        SqlDialect::Sqlite => return Fragment::from_template("{0}.value", &[name]),
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
    Fragment::from_template(template, &[name, &whole])
}

/// Translates `has`: whether a list contains a value.
pub fn translate_has(args: &CallArguments<'_>) -> Result<TypedExpr> {
    let (list, value) = (&args.arguments[0], &args.arguments[1]);
    let element_type = list_element_type(list)?;
    if element_type.common_type(&value.ty).is_none() || matches!(element_type, Type::Array(_)) {
        return invalid(format!("has cannot search for {} in {}", value.ty, list.ty));
    }
    reject_aggregates(args.name, &[list, value])?;
    let template = args.engine.select([
        "COALESCE({0} @> to_jsonb({1}), FALSE)",
        "({1} IN (SELECT value FROM json_each({0})))",
        "has({0}, {1})",
    ]);
    Ok(TypedExpr::from_template(template, Type::Flag, &[list, value]))
}

/// Translates `hasAny` and `hasAll`: whether a list contains any or all of the elements of another.
pub fn translate_overlap(args: &CallArguments<'_>, is_all: bool) -> Result<TypedExpr> {
    let (list, other_list) = (&args.arguments[0], &args.arguments[1]);
    let (element_type, other) = (list_element_type(list)?, list_element_type(other_list)?);
    if element_type.common_type(other).is_none()
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
    reject_aggregates(args.name, &[list, other_list])?;
    Ok(TypedExpr::from_template(template, Type::Flag, &[list, other_list]))
}

/// Rejects aggregates: in a subquery they would be computed over its rows.
fn reject_aggregates(name: &str, values: &[&TypedExpr]) -> Result<()> {
    match values.iter().any(|value| value.has_aggregate || value.has_window) {
        false => Ok(()),
        true => {
            invalid(format!("{name} does not accept an aggregate; aggregate in a subquery in FROM"))
        }
    }
}

/// Returns the SQL after FROM for the lists that [`Translator::translate_array_join`] has collected.
pub fn build_unnest(engine: SqlDialect, unnested: &[(Fragment, usize)]) -> Fragment {
    let mut sql = Fragment::default();
    for (list, number) in unnested {
        let template = engine.select([
            " CROSS JOIN LATERAL jsonb_array_elements({0}) AS {1}(value)",
            " CROSS JOIN json_each({0}) AS {1}",
            "",
        ]);
        sql.append(&Fragment::from_template(
            template,
            &[list, &Fragment::generated_name('e', *number)],
        ));
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
    ) -> Result<TypedExpr> {
        let list = self.translate_expr(scope, list)?;
        let element_type = list_element_type(&list)?.clone();
        reject_aggregates("arrayJoin", &[&list])?;
        if !scope.lambda_parameters.is_empty() {
            return invalid("arrayJoin is not allowed in a lambda");
        }
        let known = scope.unnested_lists.iter().find(|(known, _)| *known == list.sql);
        let number = match known {
            Some((_, number)) => *number,
            None => {
                let number = self.new_number();
                scope.unnested_lists.push((list.sql.clone(), number));
                number
            }
        };
        let sql = match self.engine {
            // ClickHouse itself expands the same list once.
            SqlDialect::ClickHouse => Fragment::from_template("arrayJoin({0})", &[&list.sql]),
            engine @ (SqlDialect::Postgres | SqlDialect::Sqlite) => {
                element_value(engine, &element_type, &Fragment::generated_name('e', number))
            }
        };
        Ok(TypedExpr::from_parts(sql, element_type, &[&list]).ordered_by_bytes(self.engine))
    }

    /// Translates `arrayFilter`: the elements of a list for which a lambda holds.
    pub fn translate_array_filter<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        lambda: &'q Expr,
        list: &'q Expr,
    ) -> Result<TypedExpr> {
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
        let list = self.translate_expr(scope, list)?;
        let element_type = list_element_type(&list)?.clone();
        if matches!(element_type, Type::Array(_)) {
            return unsupported("arrayFilter of lists of lists");
        }
        let element_name = self.new_name('e');
        let value = TypedExpr::from_parts(
            element_value(self.engine, &element_type, &element_name),
            element_type,
            &[],
        )
        .ordered_by_bytes(self.engine);
        scope.lambda_parameters.push((&name.value, value));
        let holds = self.translate_expr(scope, body);
        scope.lambda_parameters.pop();
        let holds = holds?.into_condition()?;
        reject_aggregates("arrayFilter", &[&list, &holds])?;
        let template = self.engine.select([
            "(SELECT COALESCE(jsonb_agg({1}.value ORDER BY {1}.place), jsonb_build_array()) FROM jsonb_array_elements({0}) WITH ORDINALITY AS {1}(value, place) WHERE {2})",
            "(SELECT json_group_array({1}.value ORDER BY {1}.key) FROM json_each({0}) AS {1} WHERE {2})",
            "arrayFilter({1} -> ifNull({2}, 0), {0})",
        ]);
        let sql = Fragment::from_template(template, &[&list.sql, &element_name, &holds.sql]);
        Ok(TypedExpr::from_parts(sql, list.ty.clone(), &[&list, &holds]))
    }
}
