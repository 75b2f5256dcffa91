//! Downloads what the analytics page shows as CSV.

use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::IntoResponse as _;
use domain::analytics_access::{IdentifierOrder, RollupGroup, minutes_retained_since};
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::KeyId;

use super::super::PageResult;
use super::super::key_names::KeyNames;
use super::super::page_request::WorkspaceRequest;
use super::comparison::Comparison;
use super::range::TimeRange;
use super::selection::Selection;
use super::top::Ranking;
use super::traffic::{OUTCOMES, OutcomeStyle, PERCENTILES, TrafficSeries};
use super::{breakdown, identifiers, top};

/// The maximum number of keys, identities or identifiers in a download.
const ROWS_MAX: usize = 10_000;

pub type Rows = Vec<Vec<String>>;

/// Sends the traffic over time, or by outcome, API or namespace, or the keys, identities or identifiers with the most
/// requests.
pub async fn download(request: WorkspaceRequest) -> PageResult {
    let query = &request.page_request.query;
    let (range, fault) = TimeRange::from_form(query, request.page_request.app.context.clock.now());
    if let Some(fault) = fault {
        return Err(Error::invalid("range", fault).into());
    }
    let (selection, fault) = Selection::from_form(query);
    if let Some(fault) = fault {
        return Err(Error::invalid("region", fault).into());
    }
    let retained_since =
        minutes_retained_since(&request.page_request.app.analytics, selection.kind);
    let range = range.with_minutes_since(retained_since);
    let table = query.text("table");
    let rows = load_rows(&request, &selection, &range, table).await?;
    let what = if selection.is_limits() { "limit-checks" } else { "verifications" };
    let table = if table.is_empty() { "time" } else { table };
    let period = range.period.format().replace(':', "").replace(' ', "-");
    let name = format!("attachment; filename=\"{what}-by-{table}-{period}.csv\"");
    let name = HeaderValue::from_str(&name).map_err(|e| Error::Internal(e.to_string()))?;
    let csv_type = HeaderValue::from_static("text/csv; charset=utf-8");
    let headers = [(CONTENT_TYPE, csv_type), (CONTENT_DISPOSITION, name)];
    Ok((headers, encode_csv(&rows)?).into_response())
}

async fn load_rows(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    table: &str,
) -> Result<Rows> {
    let (outcome, ranking) =
        (request.page_request.query.text("outcome"), Ranking::from_query(request));
    let has_regions = breakdown::has_regions(request, selection);
    Ok(match table {
        "" | "time" => {
            let series = TrafficSeries::load(request, selection, range).await?;
            tabulate_series(&series, selection, outcome)
        }
        "outcomes" => {
            let comparison = Comparison::load(request, selection, range).await?;
            breakdown::tabulate_outcomes(selection, &comparison)
        }
        _ if table == resource_table(selection) && selection.is_known_by_resource() => {
            let comparison = Comparison::load(request, selection, range).await?;
            breakdown::tabulate_resources(request, selection, range, &comparison).await?
        }
        "regions" if has_regions => {
            let comparison = Comparison::load(request, selection, range).await?;
            breakdown::tabulate_regions(request, selection, range, &comparison).await?
        }
        "identifiers" if selection.is_limits() => {
            let order = IdentifierOrder::Requests;
            identifiers::tabulate(request, selection, range, order, ROWS_MAX).await?
        }
        "rejected-identifiers" if selection.is_limits() => {
            let order = IdentifierOrder::Rejected;
            identifiers::tabulate(request, selection, range, order, ROWS_MAX).await?
        }
        "keys" if !selection.is_limits() => {
            let keys = top::list_keys(request, selection, range, ranking, ROWS_MAX).await?;
            let ids = keys.iter().map(|group| KeyId::from(group.key_id.clone()));
            let names = KeyNames::load(request, ids.collect()).await?;
            tabulate_groups(&["key_id", "key_name"], &keys, |group| {
                let name = names.name(&KeyId::from(group.key_id.clone())).unwrap_or_default();
                vec![group.key_id.clone(), name.to_owned()]
            })
        }
        "identities" if !selection.is_limits() => {
            let found = top::list_identities(request, selection, range, ranking, ROWS_MAX).await?;
            tabulate_groups(&["external_id", "identity_id"], &found, |group| {
                vec![group.external_id.clone(), group.identity_id.clone()]
            })
        }
        "tags" if !selection.is_limits() => {
            let found = top::list_tags(request, selection, range, ranking, ROWS_MAX).await?;
            tabulate_groups(&["tag"], &found, |group| group.tags.clone())
        }
        _ => return Err(Error::invalid("table", describe_tables(selection, has_regions))),
    })
}

/// Returns the name of the table by API or namespace.
pub fn resource_table(selection: &Selection) -> &'static str {
    if selection.is_limits() { "namespaces" } else { "apis" }
}

/// Says which tables a selection has.
fn describe_tables(selection: &Selection, has_regions: bool) -> String {
    let tables = match (selection.is_limits(), selection.is_known_by_resource()) {
        (true, _) => "outcomes, namespaces, identifiers or rejected-identifiers",
        (false, true) if has_regions => "outcomes, apis, regions, keys, identities or tags",
        (false, true) => "outcomes, apis, keys, identities or tags",
        (false, false) if has_regions => "outcomes, regions, keys, identities or tags",
        (false, false) => "outcomes, keys, identities or tags",
    };
    let mut text = format!("table must be time, {tables}");
    if !selection.is_known_by_resource() {
        text.push_str(" if a key, an identity, a tag or a region is selected");
    }
    text
}

/// Returns a row for each unit of time, with the selected outcomes.
fn tabulate_series(series: &TrafficSeries, selection: &Selection, only: &str) -> Rows {
    let outcomes = || OUTCOMES.iter().filter(|it| it.is_selected(selection.kind, only));
    let has_credits = !selection.is_limits();
    let mut header = vec!["start".to_owned(), "total".to_owned()];
    header.extend(outcomes().map(OutcomeStyle::column_name));
    if has_credits {
        header.push("spent_credits".into());
    }
    header.push("mean_latency_us".into());
    header.extend(PERCENTILES.map(|percentile| format!("{}_latency_us", percentile.name)));
    let mut rows = vec![header];
    for (start, traffic) in series.slices() {
        let mut row = vec![format_start(*start), traffic.total_count().to_string()];
        row.extend(outcomes().map(|outcome| outcome.count(traffic).to_string()));
        if has_credits {
            row.push(traffic.spent_credits.to_string());
        }
        let percentiles = PERCENTILES.map(|percentile| percentile.of(traffic));
        let known = [traffic.latencies.mean_us()].into_iter().chain(percentiles);
        row.extend(known.map(|us| us.map_or_else(String::new, |us| us.to_string())));
        rows.push(row);
    }
    rows
}

/// Returns a row for each key or identity.
fn tabulate_groups(
    names: &[&str],
    groups: &[RollupGroup],
    to_texts: impl Fn(&RollupGroup) -> Vec<String>,
) -> Rows {
    let numbers = ["total", "rejected", "spent_credits"];
    let mut rows = vec![names.iter().chain(&numbers).map(|&name| name.to_owned()).collect()];
    rows.extend(groups.iter().map(|group| {
        let counts = &group.counts;
        let numbers = [counts.total, counts.total - counts.valid, group.spent_credits];
        let texts = to_texts(group).into_iter().map(|text| escape_formula(&text));
        texts.chain(numbers.map(|number| number.to_string())).collect()
    }));
    rows
}

/// Returns the rows as CSV.
pub fn encode_csv(rows: &Rows) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.write_record(row).map_err(|e| Error::Internal(e.to_string()))?;
    }
    writer.into_inner().map_err(|e| Error::Internal(e.to_string()))
}

fn format_start(at: Timestamp) -> String {
    let stamp = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Puts an apostrophe before a text that a spreadsheet would run as a formula.
pub fn escape_formula(text: &str) -> String {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{text}"),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formula_begins_with_apostrophe() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"] {
            assert_eq!(escape_formula(text), format!("'{text}"));
        }
        for text in ["", "user_1", "a=1", "'=1", " =1"] {
            assert_eq!(escape_formula(text), text);
        }
    }

    #[test]
    fn csv_quotes_separators_and_line_breaks() {
        let rows = vec![vec!["a,b".to_owned(), "\"c\"\n".to_owned()]];

        assert_eq!(encode_csv(&rows).expect("CSV"), b"\"a,b\",\"\"\"c\"\"\n\"\n");
    }
}
