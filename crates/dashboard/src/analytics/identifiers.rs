//! The identifiers with the most limit checks, on the analytics page and on that of a namespace.

use domain::analytics_access::{self, IdentifierOrder, IdentifierQuery, IdentifierRow};
use domain::permission::Action;
use foundation::error::Result;
use foundation::id::NamespaceId;
use foundation::model::Namespace;
use futures_util::future::try_join;

use super::super::format::format_grouped;
use super::super::namespace_names::NamespaceNames;
use super::super::page_request::WorkspaceRequest;
use super::download::{Rows, escape_formula};
use super::range::TimeRange;
use super::selection::Selection;
use super::top::TOP_MAX;

/// The range of the lists on the page of a namespace.
const SECTION_RANGE: &str = "day";

/// A list of identifiers.
pub struct IdentifierList {
    pub title: &'static str,
    pub rows: Vec<IdentifierTableRow>,
    /// Whether the rows may belong to several namespaces.
    pub has_namespaces: bool,
    /// The URL of the longer list as CSV.
    pub download_url: String,
}

/// An identifier as displayed.
pub struct IdentifierTableRow {
    /// Version 1 of the API allows the empty text.
    pub identifier: String,
    /// The name of the namespace, or its id if it does not exist any more.
    pub namespace: String,
    /// The path of the namespace's page; `None` if it does not exist any more.
    pub namespace_path: Option<String>,
    /// The path of the form of its override; `None` if the user may not set one, or if there can be none for exactly this
    /// identifier.
    pub override_path: Option<String>,
    /// The path of its checks in the log; `None` for the empty text, which is no filter.
    pub log_path: Option<String>,
    pub total: String,
    pub rejected: String,
}

/// The section of a namespace's page.
pub struct IdentifierSection {
    /// `None`: the events cannot be read.
    pub lists: Option<[IdentifierList; 2]>,
    /// The same in the analytics page.
    pub analytics_url: String,
}

impl IdentifierSection {
    /// Loads the lists of a namespace. Events are stored separately, so they may be unavailable while the rest of the page
    /// is available.
    pub async fn load(request: &WorkspaceRequest, namespace: &Namespace) -> Self {
        let range = TimeRange::named(SECTION_RANGE, request.page_request.app.context.clock.now());
        let fields = format!("of=limits&only={}&range={SECTION_RANGE}", namespace.id);
        let download =
            |table: &str| request.workspace_path(&format!("/analytics.csv?{fields}&table={table}"));
        let id = Some(namespace.id.as_str());
        let lists = match list_tables(request, id, &range, download).await {
            Ok(lists) => Some(lists),
            Err(error) => {
                tracing::warn!(error = %error, "failed to read the top identifiers: {error}");
                None
            }
        };
        Self { lists, analytics_url: request.workspace_path(&format!("/analytics?{fields}")) }
    }
}

/// Returns the identifiers with the most requests, and those with the most rejected requests.
pub async fn list_tables(
    request: &WorkspaceRequest,
    namespace: Option<&str>,
    range: &TimeRange,
    download_url: impl Fn(&str) -> String,
) -> Result<[IdentifierList; 2]> {
    let (requested, rejected) = try_join(
        list(request, namespace, range, IdentifierOrder::Requests, TOP_MAX),
        list(request, namespace, range, IdentifierOrder::Rejected, TOP_MAX),
    )
    .await?;
    let rows = requested.iter().chain(&rejected);
    let ids = rows.map(|row| NamespaceId::from(row.namespace_id.as_str())).collect();
    let names = NamespaceNames::load(request, ids).await?;
    let table = |title, rows: Vec<IdentifierRow>, order| IdentifierList {
        title,
        rows: rows.into_iter().map(|row| IdentifierTableRow::new(request, row, &names)).collect(),
        has_namespaces: namespace.is_none(),
        download_url: download_url(table_name(order)),
    };
    Ok([
        table("Top identifiers", requested, IdentifierOrder::Requests),
        table("Most rejected identifiers", rejected, IdentifierOrder::Rejected),
    ])
}

/// Returns the rows of a download in this order.
pub async fn tabulate(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    order: IdentifierOrder,
    limit: usize,
) -> Result<Rows> {
    let names = ["identifier", "namespace_id", "total", "rejected"];
    let mut rows = vec![names.map(str::to_owned).to_vec()];
    let found = list(request, selection.resource(), range, order, limit).await?;
    rows.extend(found.into_iter().map(|row| {
        let numbers = [row.total, row.rejected].map(|number| number.to_string());
        let texts = [escape_formula(&row.identifier), row.namespace_id];
        texts.into_iter().chain(numbers).collect()
    }));
    Ok(rows)
}

async fn list(
    request: &WorkspaceRequest,
    namespace: Option<&str>,
    range: &TimeRange,
    order: IdentifierOrder,
    limit: usize,
) -> Result<Vec<IdentifierRow>> {
    let query = IdentifierQuery {
        namespace_id: namespace,
        unit: range.rollup_unit(),
        from_time: range.period.from,
        until_time: range.period.until,
        order,
        limit,
    };
    let analytics = &request.page_request.app.analytics;
    analytics_access::list_top_identifiers(analytics, &request.caller, &query).await
}

/// Returns the name of the table in a download.
fn table_name(order: IdentifierOrder) -> &'static str {
    match order {
        IdentifierOrder::Requests => "identifiers",
        IdentifierOrder::Rejected => "rejected-identifiers",
    }
}

/// Returns the path of the checks of an identifier in the log, in the time range of the page.
fn log_path(request: &WorkspaceRequest, namespace: &str, identifier: &str) -> Option<String> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("of", "limits").append_pair("only", namespace);
    query.append_pair("identifier", identifier);
    for field in ["range", "from", "until"] {
        let value = request.page_request.query.text(field);
        if !value.is_empty() {
            query.append_pair(field, value);
        }
    }
    (!identifier.is_empty()).then(|| request.workspace_path(&format!("/logs?{}", query.finish())))
}

impl IdentifierTableRow {
    fn new(request: &WorkspaceRequest, row: IdentifierRow, names: &NamespaceNames) -> Self {
        let id = row.namespace_id;
        let (name, namespace) = (names.name(&id), names.label(&id));
        let path = request.workspace_path(&format!("/ratelimits/{id}"));
        let mut query = form_urlencoded::Serializer::new(String::new());
        let query = query.append_pair("for", &row.identifier).finish();
        // An override for a text with a * is a pattern, which would apply to other identifiers too.
        let is_exact = !row.identifier.is_empty() && !row.identifier.contains('*');
        let may_set = name.is_some() && request.caller.is_allowed_on(Action::SetOverride, &id);
        Self {
            override_path: (is_exact && may_set).then(|| format!("{path}/override?{query}")),
            namespace_path: name.is_some().then_some(path),
            log_path: log_path(request, &id, &row.identifier),
            namespace,
            identifier: row.identifier,
            total: format_grouped(row.total),
            rejected: format_grouped(row.rejected),
        }
    }
}
