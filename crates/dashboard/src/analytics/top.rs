//! The keys, identities and tags with the most verifications.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use domain::analytics_access::{RollupGroup, RollupGrouping, TagGrouping};
use foundation::error::Result;
use foundation::id::KeyId;
use foundation::model::EventKind;
use futures_util::FutureExt as _;
use futures_util::future::{OptionFuture, try_join3};

use super::super::format::format_grouped;
use super::super::key_names::KeyNames;
use super::super::page_request::WorkspaceRequest;
use super::figures::Figure;
use super::range::TimeRange;
use super::selection::{Selection, traffic_of_group};
use super::traffic::{OUTCOMES, OutcomeStyle};

/// The number of keys, identities or tags on the page.
pub const TOP_MAX: usize = 10;
/// The number of pairs of keys and identities up to which one query loads all of them, and the lists and the number of active
/// keys follow from it. Of more, the database finds those of the page, with a query for each. The tags are those of as many
/// combinations of tags, the most frequent ones.
const GROUPS_MAX: usize = 10_000;

/// A list of keys, identities or tags on the page.
pub struct TopList {
    pub title: &'static str,
    /// The header of the first column.
    pub header: &'static str,
    /// The selected outcome; its number of requests is a column.
    pub outcome: Option<&'static str>,
    pub rows: Vec<TopConsumer>,
    /// The URL of the longer list as CSV.
    pub download_url: String,
}

/// A key, identity or tag with the most verifications.
pub struct TopConsumer {
    /// The key's name, else its start or its id; or the identity's external id; or the tag.
    pub label: String,
    /// The key's id, if the label is another one.
    pub id: Option<String>,
    /// The path of its page; `None` for a tag.
    pub path: Option<String>,
    /// The analytics page with only its verifications.
    pub filter_url: String,
    /// The number with the selected outcome.
    pub with_outcome: Option<String>,
    pub total: String,
    pub rejected: String,
    pub spent_credits: String,
}

/// Returns the keys with the most verifications: of one outcome, or of all if it is empty.
pub async fn list_keys(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    outcome: &str,
    max: usize,
) -> Result<Vec<RollupGroup>> {
    let grouping = RollupGrouping { is_by_key: true, ..RollupGrouping::default() };
    let mut groups = selection.list_top(request, range, grouping, outcome, max).await?;
    let outcome = find_outcome(outcome);
    groups.retain(|group| count(group, outcome) > 0);
    Ok(groups)
}

/// Returns the identities with the most verifications: of one outcome, or of all if it is empty. Verifications of keys without an
/// identity are left out.
pub async fn list_identities(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    outcome: &str,
    max: usize,
) -> Result<Vec<RollupGroup>> {
    let grouping = RollupGrouping { is_by_identity: true, ..RollupGrouping::default() };
    // One group has no identity.
    let max_with_it = max.saturating_add(1);
    let mut groups = selection.list_top(request, range, grouping, outcome, max_with_it).await?;
    let outcome = find_outcome(outcome);
    groups.retain(|group| !group.identity_id.is_empty() && count(group, outcome) > 0);
    groups.truncate(max);
    Ok(groups)
}

/// Returns the tags with the most verifications: of one outcome, or of all if it is empty. A verification with several tags counts
/// for each of them.
pub async fn list_tags(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    outcome: &str,
    max: usize,
) -> Result<Vec<RollupGroup>> {
    let grouping = RollupGrouping { by_tags: TagGrouping::Each, ..RollupGrouping::default() };
    let groups = selection.list_top(request, range, grouping, "", GROUPS_MAX).await?;
    Ok(first_by_count(groups, find_outcome(outcome), max))
}

/// The keys, identities and tags of the page.
pub struct TopConsumers {
    pub lists: Vec<TopList>,
    /// The number of keys with at least one verification.
    pub active_keys: Figure,
}

/// The keys and identities with the most verifications, and the number of keys with at least one.
struct TopGroups {
    keys: Vec<RollupGroup>,
    identities: Vec<RollupGroup>,
    active_keys: i64,
}

impl TopGroups {
    async fn load(
        request: &WorkspaceRequest,
        selection: &Selection,
        range: &TimeRange,
        outcome: &str,
    ) -> Result<Self> {
        let grouping =
            RollupGrouping { is_by_key: true, is_by_identity: true, ..RollupGrouping::default() };
        let groups = selection.list_top(request, range, grouping, "", GROUPS_MAX + 1).await?;
        if groups.len() <= GROUPS_MAX {
            return Ok(Self::of_all(&groups, find_outcome(outcome)));
        }
        Ok(Self {
            keys: list_keys(request, selection, range, outcome, TOP_MAX).await?,
            identities: list_identities(request, selection, range, outcome, TOP_MAX).await?,
            active_keys: selection.count_keys(request, range.period, range.rollup_unit()).await?,
        })
    }

    /// Adds up the verifications of all keys and identities.
    fn of_all(groups: &[RollupGroup], outcome: Option<&OutcomeStyle>) -> Self {
        let keys = merge_by(groups, |group| (&group.key_id, ""));
        let mut identities = merge_by(groups, |group| (&group.identity_id, &group.external_id));
        identities.retain(|group| !group.identity_id.is_empty());
        let active_keys = i64::try_from(keys.len()).unwrap_or(i64::MAX);
        let [keys, identities] =
            [keys, identities].map(|groups| first_by_count(groups, outcome, TOP_MAX));
        Self { keys, identities, active_keys }
    }
}

/// Returns the first groups with verifications of an outcome, or of all, those with the most first.
fn first_by_count(
    mut groups: Vec<RollupGroup>,
    outcome: Option<&OutcomeStyle>,
    max: usize,
) -> Vec<RollupGroup> {
    groups.retain(|group| count(group, outcome) > 0);
    groups.sort_by_key(|group| Reverse(count(group, outcome)));
    groups.truncate(max);
    groups
}

/// Returns the outcome that a filter selects; `None` if it selects all.
fn find_outcome(value: &str) -> Option<&'static OutcomeStyle> {
    let mut outcomes = OUTCOMES.iter().filter(|style| style.kind == EventKind::Verifications);
    outcomes.find(|style| style.value == value)
}

/// Returns the number of verifications of a group: of an outcome, or of all.
fn count(group: &RollupGroup, outcome: Option<&OutcomeStyle>) -> i64 {
    outcome.map_or(group.counts.total, |style| style.count(&traffic_of_group(group)))
}

/// Merges the groups of the same ids, in the order of these.
fn merge_by(
    groups: &[RollupGroup],
    ids_of: impl Fn(&RollupGroup) -> (&str, &str),
) -> Vec<RollupGroup> {
    let mut merged: BTreeMap<(&str, &str), RollupGroup> = BTreeMap::new();
    for group in groups {
        match merged.entry(ids_of(group)) {
            Entry::Vacant(entry) => drop(entry.insert(group.clone())),
            Entry::Occupied(mut entry) => {
                let sum = entry.get_mut();
                sum.counts.merge(&group.counts);
                sum.spent_credits = sum.spent_credits.saturating_add(group.spent_credits);
            }
        }
    }
    merged.into_values().collect()
}

/// Returns the keys and identities of the page, the tags, if any verification has some, and the number of active keys, compared with
/// the period before if that is known.
pub async fn list_consumers(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    has_before: bool,
    download_url: impl Fn(&str) -> String,
) -> Result<TopConsumers> {
    let outcome = request.page_request.query.text("outcome");
    let count_before = || selection.count_keys(request, range.previous, range.rollup_unit());
    let (consumers, tags, keys_before) = try_join3(
        TopGroups::load(request, selection, range, outcome),
        list_tags(request, selection, range, outcome, TOP_MAX),
        OptionFuture::from(has_before.then(count_before)).map(Option::transpose),
    )
    .await?;
    let TopGroups { keys, identities, active_keys } = consumers;
    let outcome = find_outcome(outcome);
    let ids = keys.iter().map(|group| KeyId::from(group.key_id.clone()));
    let names = KeyNames::load(request, ids.collect()).await?;
    let keys = keys.iter().map(|group| {
        let id = KeyId::from(group.key_id.clone());
        let label = names.label(&id);
        TopConsumer {
            id: (label != id.as_str()).then(|| group.key_id.clone()),
            path: Some(request.workspace_path(&format!("/keys/{id}"))),
            filter_url: filter_url(request, "key", &group.key_id),
            ..TopConsumer::new(label, group, outcome)
        }
    });
    let identities = identities.iter().map(|group| TopConsumer {
        path: Some(request.workspace_path(&format!("/identities/{}", group.identity_id))),
        filter_url: filter_url(request, "identity", &group.external_id),
        ..TopConsumer::new(group.external_id.clone(), group, outcome)
    });
    let tags = tags.iter().map(|group| {
        let tag = group.tags.concat();
        TopConsumer {
            filter_url: filter_url(request, "tag", &tag),
            ..TopConsumer::new(tag, group, outcome)
        }
    });
    let list = |title, header, table: &str, rows| TopList {
        title,
        header,
        outcome: outcome.map(|style| style.label),
        rows,
        download_url: download_url(table),
    };
    let mut lists = vec![
        list("Top keys", "Key", "keys", keys.collect()),
        list("Top identities", "Identity", "identities", identities.collect()),
    ];
    if tags.len() > 0 {
        lists.push(list("Top tags", "Tag", "tags", tags.collect()));
    }
    let active_keys = Figure::count("Active keys", active_keys, keys_before);
    Ok(TopConsumers { lists, active_keys })
}

/// Returns the URL of the analytics page with the current filters and one more.
pub fn filter_url(request: &WorkspaceRequest, field: &str, value: &str) -> String {
    let mut fields = request.page_request.query.query_without(&[field, "notice"]);
    request.workspace_path(&format!("/analytics?{}", fields.append_pair(field, value).finish()))
}

impl TopConsumer {
    fn new(label: String, group: &RollupGroup, outcome: Option<&OutcomeStyle>) -> Self {
        Self {
            label,
            id: None,
            path: None,
            filter_url: String::new(),
            with_outcome: outcome.map(|_| format_grouped(count(group, outcome))),
            total: format_grouped(group.counts.total),
            rejected: format_grouped(group.counts.total - group.counts.valid),
            spent_credits: format_grouped(group.spent_credits),
        }
    }
}
