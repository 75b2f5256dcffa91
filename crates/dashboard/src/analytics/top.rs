//! The keys and identities with the most verifications.

use domain::analytics_access::{RollupGroup, RollupGrouping};
use foundation::error::Result;

use super::super::format::format_grouped;
use super::super::page_request::WorkspaceRequest;
use super::range::TimeRange;
use super::selection::Selection;

/// The number of keys or identities on the page.
pub const TOP_MAX: usize = 10;

/// A list of keys or identities on the page.
pub struct TopList {
    pub title: &'static str,
    /// The header of the first column.
    pub header: &'static str,
    pub rows: Vec<TopConsumer>,
    /// The URL of the longer list as CSV.
    pub download_url: String,
}

/// A key or identity with the most verifications.
pub struct TopConsumer {
    /// The key's id, or the identity's external id.
    pub id: String,
    /// The path of its page.
    pub path: String,
    pub total: String,
    pub rejected: String,
    pub spent_credits: String,
}

/// Returns the keys with the most verifications.
pub async fn list_keys(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    max: usize,
) -> Result<Vec<RollupGroup>> {
    let grouping = RollupGrouping { is_by_key: true, ..RollupGrouping::default() };
    selection.list_top(request, range, grouping, max).await
}

/// Returns the identities with the most verifications. Verifications of keys without an identity are left out.
pub async fn list_identities(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    max: usize,
) -> Result<Vec<RollupGroup>> {
    let grouping = RollupGrouping { is_by_identity: true, ..RollupGrouping::default() };
    // One group has no identity.
    let mut groups = selection.list_top(request, range, grouping, max.saturating_add(1)).await?;
    groups.retain(|group| !group.identity_id.is_empty());
    groups.truncate(max);
    Ok(groups)
}

/// Returns the lists of the page.
pub async fn list_consumers(
    request: &WorkspaceRequest,
    selection: &Selection,
    range: &TimeRange,
    download_url: impl Fn(&str) -> String,
) -> Result<[TopList; 2]> {
    let keys = list_keys(request, selection, range, TOP_MAX).await?;
    let keys = keys.iter().map(|group| {
        let path = request.workspace_path(&format!("/keys/{}", group.key_id));
        TopConsumer::new(group.key_id.clone(), path, group)
    });
    let identities = list_identities(request, selection, range, TOP_MAX).await?;
    let identities = identities.iter().map(|group| {
        let path = request.workspace_path(&format!("/identities/{}", group.identity_id));
        TopConsumer::new(group.external_id.clone(), path, group)
    });
    let (keys, identities) = (keys.collect(), identities.collect());
    let list = |title, header, rows, table| {
        let download_url = download_url(table);
        TopList { title, header, rows, download_url }
    };
    Ok([
        list("Top keys", "Key", keys, "keys"),
        list("Top identities", "Identity", identities, "identities"),
    ])
}

impl TopConsumer {
    fn new(id: String, path: String, group: &RollupGroup) -> Self {
        Self {
            id,
            path,
            total: format_grouped(group.counts.total),
            rejected: format_grouped(group.counts.total - group.counts.valid),
            spent_credits: format_grouped(group.spent_credits),
        }
    }
}
