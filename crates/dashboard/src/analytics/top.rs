//! The keys, identities and tags with the most verifications.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::iter::repeat;

use domain::analytics_access::{RollupGroup, RollupGrouping, RollupOrder, TagGrouping};
use foundation::error::{Error, Result};
use foundation::id::KeyId;
use foundation::model::{EventKind, VerificationCode};
use futures_util::future::try_join4;

use super::super::format::format_grouped;
use super::super::key_names::KeyNames;
use super::super::page_request::WorkspaceRequest;
use super::figures::Figure;
use super::range::TimeRange;
use super::selection::{Selection, order_by, traffic_of_group};
use super::traffic::{OUTCOMES, OutcomeStyle};

/// The number of keys, identities or tags on the page.
pub const TOP_MAX: usize = 10;
/// The number of combinations of keys, identities and tags up to which one query loads all of them, and the lists and the number of
/// active keys follow from it. Of more, the database finds those of the page, with a query for each. The tags are then those of as
/// many combinations of tags, the most frequent ones.
const GROUPS_MAX: usize = 10_000;

/// The query parameter of the column that the lists are sorted by.
const SORT_FIELD: &str = "sort";

/// A list of keys, identities or tags on the page.
pub struct TopList {
    pub title: &'static str,
    /// The header of the first column.
    pub header: &'static str,
    /// The selected outcome; its number of requests is a column.
    pub outcome: Option<&'static str>,
    /// The other columns of numbers.
    pub heads: Vec<RankingHead>,
    pub rows: Vec<TopConsumer>,
    /// The URL of the longer list as CSV.
    pub download_url: String,
}

/// A key, identity or tag of a list.
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

/// What the lists show the most of.
#[derive(Clone, Copy)]
pub struct Ranking {
    /// The selected outcome. `None`: all.
    outcome: Option<&'static OutcomeStyle>,
    measure: Measure,
}

/// The column that the lists are sorted by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// The requests with the selected outcome, or all.
    Requests,
    Rejected,
    SpentCredits,
}

/// The head of a column that sorts the lists.
pub struct RankingHead {
    pub label: &'static str,
    /// The page that is sorted by it.
    pub url: String,
    pub is_current: bool,
}

impl Ranking {
    /// Reads the outcome and the column from the query.
    pub fn from_query(request: &WorkspaceRequest) -> Self {
        let query = &request.page_request.query;
        let measure = match query.text(SORT_FIELD) {
            "rejected" => Measure::Rejected,
            "credits" => Measure::SpentCredits,
            _ => Measure::Requests,
        };
        let outcome = query.text("outcome");
        let mut outcomes = OUTCOMES.iter().filter(|style| style.kind == EventKind::Verifications);
        Self { outcome: outcomes.find(|style| style.value == outcome), measure }
    }

    /// Returns the value of the query parameter, unless it is the default.
    pub fn field_value(self) -> Option<&'static str> {
        match self.measure {
            Measure::Requests => None,
            Measure::Rejected => Some("rejected"),
            Measure::SpentCredits => Some("credits"),
        }
    }

    /// Returns the heads of the columns.
    pub fn heads(self, request: &WorkspaceRequest) -> Vec<RankingHead> {
        let columns = [
            ("Requests", Measure::Requests),
            ("Rejected", Measure::Rejected),
            ("Credits spent", Measure::SpentCredits),
        ];
        let head = |(label, measure)| {
            let mut fields = request.page_request.query.query_without(&[SORT_FIELD, "notice"]);
            if let Some(value) = (Self { measure, ..self }).field_value() {
                fields.append_pair(SORT_FIELD, value);
            }
            let url = request.workspace_path(&format!("/analytics?{}", fields.finish()));
            RankingHead { label, url, is_current: measure == self.measure }
        };
        columns.into_iter().map(head).collect()
    }

    /// Returns the order, and the outcome that groups must have.
    fn to_order(self) -> (RollupOrder, Option<VerificationCode>) {
        let order = match self.measure {
            Measure::Requests => order_by(self.outcome.map_or("", |style| style.value)),
            Measure::Rejected => RollupOrder::Rejected,
            Measure::SpentCredits => RollupOrder::SpentCredits,
        };
        (order, self.outcome.and_then(|style| VerificationCode::parse(style.value)))
    }

    /// Returns the number of requests with the selected outcome.
    fn count(self, group: &RollupGroup) -> i64 {
        self.outcome.map_or(group.counts.total, |style| style.count(&traffic_of_group(group)))
    }

    /// Returns the groups with requests of the selected outcome.
    fn select(self, mut groups: Vec<RollupGroup>) -> Vec<RollupGroup> {
        groups.retain(|group| self.count(group) > 0);
        groups
    }

    /// Returns the first groups, those with the most first.
    fn first(self, groups: Vec<RollupGroup>, max: usize) -> Vec<RollupGroup> {
        let mut groups = self.select(groups);
        groups.sort_by_key(|group| {
            Reverse(match self.measure {
                Measure::Requests => self.count(group),
                Measure::Rejected => group.counts.total - group.counts.valid,
                Measure::SpentCredits => group.spent_credits,
            })
        });
        groups.truncate(max);
        groups
    }
}

/// Returns the first keys of a ranking.
pub async fn list_keys(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    ranking: Ranking,
    max: usize,
) -> Result<Vec<RollupGroup>> {
    let grouping = RollupGrouping { is_by_key: true, ..RollupGrouping::default() };
    let groups = selection.list_top(request, range, grouping, ranking.to_order(), max).await?;
    Ok(ranking.select(groups))
}

/// Returns the first identities of a ranking. Verifications of keys without an identity are left out.
pub async fn list_identities(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    ranking: Ranking,
    max: usize,
) -> Result<Vec<RollupGroup>> {
    let grouping = RollupGrouping { is_by_identity: true, ..RollupGrouping::default() };
    // One group has no identity.
    let max_with_it = max.saturating_add(1);
    let groups =
        selection.list_top(request, range, grouping, ranking.to_order(), max_with_it).await?;
    let mut groups = ranking.select(groups);
    groups.retain(|group| !group.identity_id.is_empty());
    groups.truncate(max);
    Ok(groups)
}

/// Returns the first tags of a ranking. A verification with several tags counts for each of them.
pub async fn list_tags(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    ranking: Ranking,
    max: usize,
) -> Result<Vec<RollupGroup>> {
    let grouping = RollupGrouping { by_tags: TagGrouping::Each, ..RollupGrouping::default() };
    let order = (RollupOrder::Total, None);
    let groups = selection.list_top(request, range, grouping, order, GROUPS_MAX).await?;
    Ok(ranking.first(groups, max))
}

/// The keys, identities and tags of the page.
pub struct TopConsumers {
    pub lists: Vec<TopList>,
    /// The number of keys with at least one verification.
    pub active_keys: Figure,
}

/// The keys, identities and tags with the most verifications, and the number of keys with at least one.
pub struct TopGroups {
    keys: Vec<RollupGroup>,
    identities: Vec<RollupGroup>,
    tags: Vec<RollupGroup>,
    active_keys: i64,
}

impl TopGroups {
    pub async fn load(
        request: &WorkspaceRequest,
        selection: &Selection,
        range: &TimeRange,
    ) -> Result<Self> {
        let ranking = Ranking::from_query(request);
        let grouping =
            RollupGrouping { is_by_key: true, is_by_identity: true, by_tags: TagGrouping::Set };
        let order = (RollupOrder::Total, None);
        match selection.list_top(request, range, grouping, order, GROUPS_MAX + 1).await {
            Ok(groups) if groups.len() <= GROUPS_MAX => return Ok(Self::of_all(&groups, ranking)),
            // Invalid: the tags of all groups are too long.
            Ok(_) | Err(Error::Invalid(_)) => {}
            Err(e) => return Err(e),
        }
        let (keys, identities, tags, active_keys) = try_join4(
            list_keys(request, selection, range, ranking, TOP_MAX),
            list_identities(request, selection, range, ranking, TOP_MAX),
            list_tags(request, selection, range, ranking, TOP_MAX),
            selection.count_keys(request, range.period, range.rollup_unit()),
        )
        .await?;
        Ok(Self { keys, identities, tags, active_keys })
    }

    /// Adds up the verifications of all keys, identities and tags.
    fn of_all(groups: &[RollupGroup], ranking: Ranking) -> Self {
        let keys = merge(groups.iter().map(|group| (group.key_id.as_str(), group)));
        let with_identity = groups.iter().filter(|group| !group.identity_id.is_empty());
        let identities =
            merge(with_identity.map(|group| ((&*group.identity_id, &*group.external_id), group)));
        let mut tags = merge(groups.iter().flat_map(by_each_tag));
        for (tag, group) in &mut tags {
            group.tags = vec![(*tag).to_owned()];
        }
        Self {
            active_keys: i64::try_from(keys.len()).unwrap_or(i64::MAX),
            keys: ranking.first(keys.into_values().collect(), TOP_MAX),
            identities: ranking.first(identities.into_values().collect(), TOP_MAX),
            tags: ranking.first(tags.into_values().collect(), TOP_MAX),
        }
    }
}

/// Returns a group once for each of its tags.
fn by_each_tag(group: &RollupGroup) -> impl Iterator<Item = (&str, &RollupGroup)> {
    group.tags.iter().map(String::as_str).zip(repeat(group))
}

/// Merges the groups with the same id.
fn merge<'g, Id: Ord>(
    groups: impl Iterator<Item = (Id, &'g RollupGroup)>,
) -> BTreeMap<Id, RollupGroup> {
    let mut merged: BTreeMap<Id, RollupGroup> = BTreeMap::new();
    for (id, group) in groups {
        match merged.entry(id) {
            Entry::Vacant(entry) => drop(entry.insert(group.clone())),
            Entry::Occupied(mut entry) => {
                let sum = entry.get_mut();
                sum.counts.merge(&group.counts);
                sum.spent_credits = sum.spent_credits.saturating_add(group.spent_credits);
            }
        }
    }
    merged
}

/// Returns the keys and identities of the page, the tags, if any verification has some, and the number of active keys, compared with
/// the period before if that is known.
pub async fn list_consumers(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    groups: TopGroups,
    has_before: bool,
    download_url: impl Fn(&str) -> String,
) -> Result<TopConsumers> {
    let ranking = Ranking::from_query(request);
    let keys_before = match has_before {
        true => Some(selection.count_keys(request, range.previous, range.rollup_unit()).await?),
        false => None,
    };
    let TopGroups { keys, identities, tags, active_keys } = groups;
    let ids = keys.iter().map(|group| KeyId::from(group.key_id.clone()));
    let names = KeyNames::load(request, ids.collect()).await?;
    let keys = keys.iter().map(|group| {
        let id = KeyId::from(group.key_id.clone());
        let label = names.label(&id);
        TopConsumer {
            id: (label != id.as_str()).then(|| group.key_id.clone()),
            path: Some(request.workspace_path(&format!("/keys/{id}"))),
            filter_url: filter_url(request, "key", &group.key_id),
            ..TopConsumer::new(label, group, ranking)
        }
    });
    let identities = identities.iter().map(|group| TopConsumer {
        path: Some(request.workspace_path(&format!("/identities/{}", group.identity_id))),
        filter_url: filter_url(request, "identity", &group.external_id),
        ..TopConsumer::new(group.external_id.clone(), group, ranking)
    });
    let tags = tags.iter().map(|group| {
        let tag = group.tags.concat();
        TopConsumer {
            filter_url: filter_url(request, "tag", &tag),
            ..TopConsumer::new(tag, group, ranking)
        }
    });
    let list = |title, header, table: &str, rows| TopList {
        title,
        header,
        outcome: ranking.outcome.map(|style| style.label),
        heads: ranking.heads(request),
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
    fn new(label: String, group: &RollupGroup, ranking: Ranking) -> Self {
        Self {
            label,
            id: None,
            path: None,
            filter_url: String::new(),
            with_outcome: ranking.outcome.map(|_| format_grouped(ranking.count(group))),
            total: format_grouped(group.counts.total),
            rejected: format_grouped(group.counts.total - group.counts.valid),
            spent_credits: format_grouped(group.spent_credits),
        }
    }
}
