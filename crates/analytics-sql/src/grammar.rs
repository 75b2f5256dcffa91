//! Defines the supported syntax: every part of the syntax tree is listed here, and either passed on or rejected.
//!
//! The trees are taken apart without `..`. So code does not compile when a later version of the parser adds a part,
//! until the part is handled.

use foundation::error::{QueryErrorKind, Result};
use sqlparser::ast::{
    Cte, Distinct, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint,
    JoinOperator, LimitClause, ObjectName, ObjectNamePart, Offset, OrderBy, OrderByExpr,
    OrderByKind, OrderByOptions, OrderBySort, Query, Select, SelectFlavor, SelectItem, SetExpr,
    TableAlias, TableWithJoins, WildcardAdditionalOptions, WindowSpec, WindowType, With,
};

use super::{invalid, query_fault, unsupported};

pub struct QueryParts<'q> {
    pub ctes: &'q [Cte],
    pub body: &'q SetExpr,
    pub order_by: &'q [OrderByExpr],
    pub limit: Option<&'q Expr>,
    pub offset: Option<&'q Expr>,
}

pub fn parse_query_parts(query: &Query) -> Result<QueryParts<'_>> {
    let Query {
        with,
        body,
        order_by,
        limit_clause,
        fetch,
        locks,
        for_clause,
        settings,
        format_clause,
        pipe_operators,
    } = query;
    reject_if(fetch.is_some(), "FETCH")?;
    reject_if(!locks.is_empty() || for_clause.is_some(), "FOR")?;
    reject_if(settings.is_some(), "SETTINGS")?;
    reject_if(format_clause.is_some(), "FORMAT")?;
    reject_if(!pipe_operators.is_empty(), "|>")?;
    let ctes: &[Cte] = match with {
        None => &[],
        Some(With { with_token: _, recursive, cte_tables }) => {
            reject_if(*recursive, "WITH RECURSIVE")?;
            cte_tables
        }
    };
    let (limit, offset) = match limit_clause {
        None => (None, None),
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) => {
            reject_if(!limit_by.is_empty(), "LIMIT BY")?;
            let offset = offset.as_ref().map(|Offset { value, rows: _ }| value);
            (limit.as_ref(), offset)
        }
    };
    let order_by = order_by.as_ref().map_or(Ok(&[][..]), parse_order_by_list)?;
    Ok(QueryParts { ctes, body, order_by, limit, offset })
}

fn parse_order_by_list(order_by: &OrderBy) -> Result<&[OrderByExpr]> {
    let OrderBy { kind, interpolate } = order_by;
    reject_if(interpolate.is_some(), "INTERPOLATE")?;
    match kind {
        OrderByKind::All(_) => unsupported("ORDER BY ALL"),
        OrderByKind::Expressions(expressions) => Ok(expressions),
    }
}

/// Returns what to sort by and how: `DESC`, and the position of `NULL`.
pub fn parse_order_by(by: &OrderByExpr) -> Result<(&Expr, &'static str)> {
    let OrderByExpr { expr, options: OrderByOptions { sort, nulls_first }, with_fill } = by;
    reject_if(with_fill.is_some(), "WITH FILL")?;
    let is_descending = match sort {
        None | Some(OrderBySort::Asc) => false,
        Some(OrderBySort::Desc) => true,
        Some(OrderBySort::Using(_)) => return unsupported("ORDER BY … USING"),
    };
    Ok((
        expr,
        match (is_descending, nulls_first) {
            (false, Some(true)) => " ASC NULLS FIRST",
            (false, Some(false) | None) => " ASC NULLS LAST",
            (true, Some(true)) => " DESC NULLS FIRST",
            (true, Some(false) | None) => " DESC NULLS LAST",
        },
    ))
}

pub struct SelectParts<'q> {
    pub is_distinct: bool,
    pub items: &'q [SelectItem],
    pub from: &'q [TableWithJoins],
    pub conditions: Vec<&'q Expr>,
    pub group_by: &'q [Expr],
    pub having: Option<&'q Expr>,
}

pub fn parse_select_parts(select: &Select) -> Result<SelectParts<'_>> {
    let Select {
        select_token: _,
        optimizer_hints,
        distinct,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection,
        exclude,
        into,
        from,
        lateral_views,
        prewhere,
        selection,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having,
        named_window,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    reject_if(!optimizer_hints.is_empty() || select_modifiers.is_some(), "a hint")?;
    reject_if(top.is_some(), "TOP")?;
    reject_if(exclude.is_some(), "EXCLUDE")?;
    reject_if(into.is_some(), "INTO")?;
    reject_if(!lateral_views.is_empty(), "LATERAL VIEW")?;
    reject_if(!connect_by.is_empty(), "CONNECT BY")?;
    reject_if(
        !cluster_by.is_empty() || !distribute_by.is_empty() || !sort_by.is_empty(),
        "SORT BY",
    )?;
    reject_if(!named_window.is_empty(), "WINDOW")?;
    reject_if(qualify.is_some(), "QUALIFY")?;
    reject_if(value_table_mode.is_some(), "SELECT AS")?;
    reject_if(*flavor != SelectFlavor::Standard, "FROM before SELECT")?;
    if from.is_empty() {
        return invalid("the query or one of its SELECTs has no FROM");
    }
    let is_distinct = match distinct {
        None | Some(Distinct::All) => false,
        Some(Distinct::Distinct) => true,
        Some(Distinct::On(_)) => return unsupported("DISTINCT ON"),
    };
    let group_by = match group_by {
        GroupByExpr::All(_) => return unsupported("GROUP BY ALL"),
        GroupByExpr::Expressions(expressions, modifiers) => {
            reject_if(!modifiers.is_empty(), "GROUP BY … WITH")?;
            expressions
        }
    };
    let conditions = prewhere.iter().chain(selection).collect();
    let having = having.as_ref();
    Ok(SelectParts { is_distinct, items: projection, from, conditions, group_by, having })
}

pub fn parse_cte(cte: &Cte) -> Result<(&Ident, &Query)> {
    let Cte { alias, query, from, materialized, closing_paren_token: _ } = cte;
    reject_if(from.is_some() || materialized.is_some(), "a hint for WITH")?;
    Ok((parse_table_alias(alias)?, query))
}

pub fn parse_table_alias(alias: &TableAlias) -> Result<&Ident> {
    let TableAlias { explicit: _, name, columns, at } = alias;
    reject_if(!columns.is_empty() || at.is_some(), "a column list after a table name")?;
    Ok(name)
}

pub fn validate_star(options: &WildcardAdditionalOptions) -> Result<()> {
    let WildcardAdditionalOptions {
        wildcard_token: _,
        opt_ilike,
        opt_exclude,
        opt_except,
        opt_replace,
        opt_rename,
        opt_alias,
    } = options;
    reject_if(
        opt_ilike.is_some()
            || opt_exclude.is_some()
            || opt_except.is_some()
            || opt_replace.is_some()
            || opt_rename.is_some()
            || opt_alias.is_some(),
        "a modifier after *",
    )
}

/// Returns the keywords and the condition of a join.
pub fn parse_join(join: &Join) -> Result<(&'static str, &JoinConstraint)> {
    let Join { relation: _, global, join_operator } = join;
    reject_if(*global, "GLOBAL JOIN")?;
    match join_operator {
        JoinOperator::Join(on) | JoinOperator::Inner(on) => Ok((" JOIN ", on)),
        JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => Ok((" LEFT JOIN ", on)),
        JoinOperator::Right(on) | JoinOperator::RightOuter(on) => Ok((" RIGHT JOIN ", on)),
        JoinOperator::FullOuter(on) => Ok((" FULL JOIN ", on)),
        JoinOperator::CrossJoin(on) => Ok((" CROSS JOIN ", on)),
        JoinOperator::ArrayJoin | JoinOperator::LeftArrayJoin | JoinOperator::InnerArrayJoin => {
            unsupported("ARRAY JOIN (arrayJoin(…) in its place)")
        }
        JoinOperator::Semi(_)
        | JoinOperator::LeftSemi(_)
        | JoinOperator::RightSemi(_)
        | JoinOperator::Anti(_)
        | JoinOperator::LeftAnti(_)
        | JoinOperator::RightAnti(_)
        | JoinOperator::CrossApply
        | JoinOperator::OuterApply
        | JoinOperator::AsOf { .. }
        | JoinOperator::StraightJoin(_) => unsupported("this kind of JOIN"),
    }
}

/// An argument of a function.
pub enum FunctionArgument<'q> {
    Expr(&'q Expr),
    /// `count(*)`.
    Star,
}

pub struct CallParts<'q> {
    pub name: &'q str,
    /// `quantile(0.95)(…)`.
    pub parameters: Vec<FunctionArgument<'q>>,
    pub is_distinct: bool,
    pub arguments: Vec<FunctionArgument<'q>>,
    pub over: Option<&'q WindowSpec>,
}

pub fn parse_call(function: &Function) -> Result<CallParts<'_>> {
    let Function {
        name,
        uses_odbc_syntax,
        parameters,
        args,
        within_group,
        filter,
        null_treatment,
        over,
    } = function;
    let name = parse_function_name(name)?;
    reject_if(*uses_odbc_syntax, "{fn …}")?;
    reject_if(!within_group.is_empty(), "WITHIN GROUP")?;
    reject_if(null_treatment.is_some(), "IGNORE NULLS")?;
    reject_if(filter.is_some(), "FILTER")?;
    let over = match over {
        None => None,
        Some(WindowType::WindowSpec(window)) => Some(window),
        Some(WindowType::NamedWindow(_)) => return unsupported("OVER with a name"),
    };
    let (is_distinct, given) = parse_arguments(args)?;
    let (has_distinct, parameters) = parse_arguments(parameters)?;
    reject_if(has_distinct, "DISTINCT among parameters")?;
    Ok(CallParts { name, parameters, is_distinct, arguments: given, over })
}

fn parse_function_name(name: &ObjectName) -> Result<&str> {
    match single_identifier(name) {
        Some(name) => Ok(&name.value),
        None => {
            query_fault(QueryErrorKind::Function, "a function name must be a single identifier")
        }
    }
}

fn parse_arguments(arguments: &FunctionArguments) -> Result<(bool, Vec<FunctionArgument<'_>>)> {
    match arguments {
        FunctionArguments::None => Ok((false, Vec::new())),
        FunctionArguments::Subquery(_) => unsupported("a subquery without parentheses of its own"),
        FunctionArguments::List(FunctionArgumentList { duplicate_treatment, args, clauses }) => {
            reject_if(!clauses.is_empty(), "a clause among arguments")?;
            let is_distinct = *duplicate_treatment == Some(DuplicateTreatment::Distinct);
            let given = args.iter().map(parse_argument).collect::<Result<_>>()?;
            Ok((is_distinct, given))
        }
    }
}

fn parse_argument(argument: &FunctionArg) -> Result<FunctionArgument<'_>> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(FunctionArgument::Expr(expr)),
        FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => Ok(FunctionArgument::Star),
        FunctionArg::Unnamed(
            FunctionArgExpr::QualifiedWildcard(_) | FunctionArgExpr::WildcardWithOptions(_),
        )
        | FunctionArg::Named { .. }
        | FunctionArg::ExprNamed { .. } => unsupported("this kind of argument"),
    }
}

/// Returns the identifier of a name that consists of only one.
pub fn single_identifier(name: &ObjectName) -> Option<&Ident> {
    match &name.0[..] {
        [ObjectNamePart::Identifier(name)] => Some(name),
        _ => None,
    }
}

fn reject_if(is_present: bool, what: &str) -> Result<()> {
    if is_present { unsupported(what) } else { Ok(()) }
}
