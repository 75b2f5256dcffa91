//! Divides the requests of a time range by outcome, by API or namespace, and by region.

use std::collections::{BTreeMap, HashMap};

use domain::analytics_access::{RegionCount, Traffic};
use domain::apis;
use foundation::error::Result;
use foundation::id::{ApiId, NamespaceId};

use super::super::format::format_grouped;
use super::super::namespace_names::NamespaceNames;
use super::super::page_request::WorkspaceRequest;
use super::comparison::Comparison;
use super::download::{Rows, escape_formula, resource_table};
use super::figures::{describe_count_change, format_share};
use super::range::TimeRange;
use super::selection::Selection;
use super::top::filter_url;
use super::traffic::OUTCOMES;

/// The number of APIs or namespaces on the page.
const ROWS_MAX: usize = 10;

/// A table of the page: how many requests belong to each outcome, API or namespace.
pub struct Breakdown {
    pub title: &'static str,
    /// The header of the first column.
    pub header: &'static str,
    pub rows: Vec<BreakdownRow>,
    /// The URL of the same, with all rows, as CSV.
    pub download_url: String,
}

impl Breakdown {
    /// Returns whether the rows have spent credits.
    pub fn has_credits(&self) -> bool {
        self.rows.iter().any(|row| row.spent_credits.is_some())
    }
}

pub struct BreakdownRow {
    pub label: String,
    /// The analytics page with only these requests, if there is a filter for them.
    pub filter_url: Option<String>,
    pub count: String,
    pub share: String,
    /// Only of an API.
    pub spent_credits: Option<String>,
    /// The difference to the period before; `None` if that is not known.
    pub change: Option<String>,
}

/// The number of requests with one value.
struct Part {
    value: String,
    label: String,
    count: i64,
    /// Only of an API.
    spent_credits: Option<i64>,
    /// The number in the period before; `None` if that is not known.
    before: Option<i64>,
}

/// Divides the requests by outcome, by API or namespace, and by region, as far as they are known by these.
pub async fn list(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    comparison: &Comparison,
    download_url: impl Fn(&str) -> String,
) -> Result<Vec<Breakdown>> {
    let mut breakdowns = vec![by_outcome(request, selection, comparison, download_url("outcomes"))];
    let url = download_url(resource_table(selection));
    breakdowns.extend(by_resource(request, selection, range, comparison, url).await?);
    let url = download_url("regions");
    breakdowns.extend(by_region(request, selection, range, comparison, url).await?);
    Ok(breakdowns)
}

/// Divides the requests by outcome, without outcomes that no request has in either period.
fn by_outcome(
    request: &WorkspaceRequest,
    selection: &Selection,
    comparison: &Comparison,
    download_url: String,
) -> Breakdown {
    let mut parts = count_outcomes(selection, comparison);
    parts.retain(|part| part.count > 0 || part.before.is_some_and(|count| count > 0));
    Breakdown {
        title: "Outcomes",
        header: "Outcome",
        rows: to_rows(request, "outcome", &parts, comparison.total.total_count()),
        download_url,
    }
}

/// Divides the requests by API or namespace. Returns `None` if the rollups of the selection are not known by API.
async fn by_resource(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    comparison: &Comparison,
    download_url: String,
) -> Result<Option<Breakdown>> {
    if !selection.is_known_by_resource() {
        return Ok(None);
    }
    let parts = count_resources(request, selection, range, comparison).await?;
    let (title, header) = match selection.is_limits() {
        true => ("Namespaces", "Namespace"),
        false => ("APIs", "API"),
    };
    let shown = &parts[..parts.len().min(ROWS_MAX)];
    let rows = to_rows(request, "only", shown, comparison.total.total_count());
    Ok(Some(Breakdown { title, header, rows, download_url }))
}

/// Divides the verifications by the region that counted them. Returns `None` without regions.
async fn by_region(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    comparison: &Comparison,
    download_url: String,
) -> Result<Option<Breakdown>> {
    if !has_regions(request, selection) {
        return Ok(None);
    }
    let parts = count_regions(request, selection, range, comparison).await?;
    let total = parts.iter().map(|part| part.count).sum();
    // No filter selects the verifications without a region.
    let url = |region: &str| (!region.is_empty()).then(|| filter_url(request, "region", region));
    let rows = parts.iter().map(|part| to_row(part, url(&part.value), total)).collect();
    Ok(Some(Breakdown { title: "Regions", header: "Region", rows, download_url }))
}

/// Returns whether the requests can be divided by region: verifications, on a server with a region.
pub fn has_regions(request: &WorkspaceRequest, selection: &Selection) -> bool {
    !selection.is_limits() && !request.page_request.app.analytics.region().is_empty()
}

/// Returns the rows of a download by region.
pub async fn tabulate_regions(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    comparison: &Comparison,
) -> Result<Rows> {
    let mut rows = vec![["region", "total", "total_before"].map(str::to_owned).to_vec()];
    for part in count_regions(request, selection, range, comparison).await? {
        let before = part.before.map_or_else(String::new, |count| count.to_string());
        rows.push(vec![part.value, part.count.to_string(), before]);
    }
    Ok(rows)
}

/// Returns the regions with verifications in either period, the one with the most first.
async fn count_regions(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    comparison: &Comparison,
) -> Result<Vec<Part>> {
    let unit = range.rollup_unit();
    let now = selection.count_by_region(request, range.period, unit).await?;
    let mut before: Option<BTreeMap<String, i64>> = None;
    if comparison.before.is_some() {
        let found = selection.count_by_region(request, range.previous, unit).await?;
        before = Some(found.into_iter().map(|it| (it.region, it.count)).collect());
    }
    let mut parts = Vec::new();
    for RegionCount { region, count } in now {
        let earlier = before.as_mut().map(|before| before.remove(&region).unwrap_or(0));
        parts.push(region_part(region, count, earlier));
    }
    // What has requests only in the period before comes last.
    let ended = before.into_iter().flatten();
    parts.extend(ended.map(|(region, count)| region_part(region, 0, Some(count))));
    Ok(parts)
}

fn region_part(region: String, count: i64, before: Option<i64>) -> Part {
    let label = if region.is_empty() { "Not recorded".to_owned() } else { region.clone() };
    Part { value: region, label, count, spent_credits: None, before }
}

/// Returns the rows of a download by outcome.
pub fn tabulate_outcomes(selection: &Selection, comparison: &Comparison) -> Rows {
    let mut rows = vec![["outcome", "total", "total_before"].map(str::to_owned).to_vec()];
    for part in count_outcomes(selection, comparison) {
        let before = part.before.map_or_else(String::new, |count| count.to_string());
        rows.push(vec![part.value, part.count.to_string(), before]);
    }
    rows
}

/// Returns the rows of a download by API or namespace.
pub async fn tabulate_resources(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    comparison: &Comparison,
) -> Result<Rows> {
    let id = if selection.is_limits() { "namespace_id" } else { "api_id" };
    let mut header = ["name", id, "total", "total_before"].map(str::to_owned).to_vec();
    header.extend((!selection.is_limits()).then(|| "spent_credits".to_owned()));
    let mut rows = vec![header];
    for part in count_resources(request, selection, range, comparison).await? {
        let before = part.before.map_or_else(String::new, |count| count.to_string());
        let name = escape_formula(&part.label);
        let mut row = vec![name, part.value, part.count.to_string(), before];
        row.extend(part.spent_credits.map(|credits| credits.to_string()));
        rows.push(row);
    }
    Ok(rows)
}

fn count_outcomes(selection: &Selection, comparison: &Comparison) -> Vec<Part> {
    let outcomes = OUTCOMES.iter().filter(|outcome| outcome.is_selected(selection.kind, ""));
    let parts = outcomes.map(|outcome| Part {
        value: outcome.value.to_owned(),
        label: outcome.label.to_owned(),
        count: outcome.count(&comparison.total),
        spent_credits: None,
        before: comparison.before.as_ref().map(|before| outcome.count(before)),
    });
    parts.collect()
}

/// Returns the APIs or namespaces with requests in either period, the one with the most requests first.
async fn count_resources(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    comparison: &Comparison,
) -> Result<Vec<Part>> {
    let (unit, has_credits) = (range.rollup_unit(), !selection.is_limits());
    let now = selection.load_traffic_by_resource(request, range.period, unit).await?;
    let mut before: Option<HashMap<String, Traffic>> = None;
    if comparison.before.is_some() {
        let found = selection.load_traffic_by_resource(request, range.previous, unit).await?;
        before = Some(found.into_iter().collect());
    }
    let mut parts = Vec::new();
    for (id, traffic) in now {
        let before = before.as_mut().map(|before| take_count(before, &id));
        parts.push(Part {
            label: id.clone(),
            value: id,
            count: traffic.total_count(),
            spent_credits: has_credits.then_some(traffic.spent_credits),
            before,
        });
    }
    // What has requests only in the period before comes last.
    let mut ended: Vec<_> = before.into_iter().flatten().collect();
    ended.sort_by_key(|(_, traffic)| std::cmp::Reverse(traffic.total_count()));
    parts.extend(ended.into_iter().map(|(id, traffic)| Part {
        label: id.clone(),
        value: id,
        count: 0,
        spent_credits: has_credits.then_some(0),
        before: Some(traffic.total_count()),
    }));
    name_resources(request, selection, &mut parts).await?;
    Ok(parts)
}

fn take_count(traffic: &mut HashMap<String, Traffic>, id: &str) -> i64 {
    traffic.remove(id).map_or(0, |traffic| traffic.total_count())
}

/// Labels APIs and namespaces by their names, as far as they are known.
async fn name_resources(
    request: &WorkspaceRequest,
    selection: &Selection,
    parts: &mut [Part],
) -> Result<()> {
    if selection.is_limits() {
        let ids = parts.iter().map(|part| NamespaceId::from(part.value.as_str())).collect();
        let names = NamespaceNames::load(request, ids).await?;
        for part in parts {
            part.label = names.label(&part.value);
        }
        return Ok(());
    }
    let ids: Vec<_> = parts.iter().map(|part| ApiId::from(part.value.as_str())).collect();
    let context = &request.page_request.app.context;
    let names = apis::load_names(context, &request.caller, &ids).await?;
    for part in parts {
        let name = names.get(&ApiId::from(part.value.as_str()));
        part.label = name.cloned().unwrap_or_else(|| part.value.clone());
    }
    Ok(())
}

fn to_rows(
    request: &WorkspaceRequest,
    field: &str,
    parts: &[Part],
    total: i64,
) -> Vec<BreakdownRow> {
    let url = |part: &Part| filter_url(request, field, &part.value);
    parts.iter().map(|part| to_row(part, Some(url(part)), total)).collect()
}

fn to_row(part: &Part, filter_url: Option<String>, total: i64) -> BreakdownRow {
    BreakdownRow {
        label: part.label.clone(),
        filter_url,
        count: format_grouped(part.count),
        share: format_share(part.count, total),
        spent_credits: part.spent_credits.map(format_grouped),
        change: part.before.map(|before| describe_count_change(part.count, before)),
    }
}
