//! Lists of keys by a search and a state, the latest first.
//!
//! The latest keys are compared one by one, which finds a page of what many keys match. What few keys match is found by an
//! index, among any number of keys. What neither finds, because the text is too short for the index or because many keys
//! match it, none of them recent, is compared in steps of [`SEARCH_ROWS_MAX`] keys. So are all keys of a workspace, of which
//! those of deleted APIs are not listed.

use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId};
use foundation::model::KeySummary;
use store::{IndexedSearch, KeyCursor, KeyListFilter, Reader};

use super::details::{KeyStatus, list_statuses};
use crate::caller::Caller;
use crate::context::Context;
use crate::page::{KeyOrder, Page, Paging};
use crate::permission::Action;
use crate::{apis, refill};

/// The maximum number of keys that a search compares for one page; the next page continues after them.
pub const SEARCH_ROWS_MAX: i64 = 20_000;
/// The number of the first keys, in the order of the list, that are compared before an index is asked.
const LATEST_ROWS: i64 = 1_000;
/// The maximum number of keys that an index finds. Of more, a page is found sooner among the latest keys.
pub const INDEXED_ROWS_MAX: i64 = 2_000;

/// A key in a list.
#[derive(Debug)]
pub struct KeyListItem {
    pub key: KeySummary,
    pub api_name: String,
    pub status: KeyStatus,
}

/// Reports whether an index returns the list of these keys in either order. Other lists are searches among the latest keys.
pub fn is_sortable(search: &str, status: Option<KeyStatus>) -> bool {
    // Disabled keys are a list of their own.
    search.trim().is_empty() && matches!(status, None | Some(KeyStatus::Disabled))
}

/// Lists a page of the keys of a workspace, or of one of its APIs, latest first unless the list is sortable. A page may have fewer items than its
/// limit and still have a successor: when the search has compared its maximum, and when the status of a key differs
/// from what the database filter assumed.
pub async fn list_page(
    context: &Context,
    caller: &Caller,
    api: Option<&ApiId>,
    status: Option<KeyStatus>,
    order: KeyOrder,
    paging: &Paging,
) -> Result<Page<KeyListItem>> {
    match api {
        Some(api) => {
            caller.require_on(Action::ReadKey, api)?;
            apis::get(context, caller, api).await?;
        }
        None => caller.require(Action::ReadKey)?,
    }
    let now = context.clock.now();
    let filter = KeyListFilter {
        api_id: api.cloned(),
        search: paging.search.trim().to_owned(),
        state: status.map_or("", KeyStatus::as_str),
        start: parse_cursor(&paging.start),
        oldest_first: order == KeyOrder::OldestFirst && is_sortable(&paging.search, status),
        end: None,
        rows_max: paging.limit_with_lookahead(),
        now,
        refill_periods: refill::periods(now),
    };
    let mut reader = context.store.read_balances().await?;
    let (mut keys, resume_at) = find_rows(&mut reader, caller, filter, status).await?;
    let next = keys.get(paging.limit).map(|key| (key.created_at, key.id.clone()));
    let next = next.or(resume_at).map(|(at, id)| format!("{}.{id}", at.0));
    keys.truncate(paging.limit);
    let mut ids: Vec<_> = keys.iter().map(|key| key.api_id.clone()).collect();
    ids.sort();
    ids.dedup();
    let names = reader.load_api_names(caller.workspace_id(), &ids).await?;
    drop(reader);
    let statuses = list_statuses(context, keys.iter()).await?;
    let item = |(key, status): (KeySummary, KeyStatus)| KeyListItem {
        status,
        api_name: names
            .iter()
            .find(|(id, _)| *id == key.api_id)
            .map_or_else(String::new, |(_, name)| name.clone()),
        key,
    };
    let mut items: Vec<_> = keys.into_iter().zip(statuses).map(item).collect();
    items.retain(|row| status.is_none_or(|status| row.status == status));
    Ok(Page { items, next_start: next })
}

/// Returns the rows of a page, and where the next page resumes if not all keys were searched.
async fn find_rows(
    reader: &mut Reader,
    caller: &Caller,
    mut filter: KeyListFilter,
    status: Option<KeyStatus>,
) -> Result<(Vec<KeySummary>, Option<KeyCursor>)> {
    let workspace = caller.workspace_id();
    // An index has exactly the keys of this list. The list of a workspace lacks those of deleted APIs, of which there may be
    // any number.
    if is_sortable(&filter.search, status) && filter.api_id.is_some() {
        return Ok((reader.list_workspace_keys(workspace, &filter).await?, None));
    }
    filter.end = reader.find_key_cursor(workspace, &filter, LATEST_ROWS).await?;
    let latest = reader.list_workspace_keys(workspace, &filter).await?;
    let is_full = i64::try_from(latest.len()).is_ok_and(|found| found >= filter.rows_max);
    if is_full || filter.end.is_none() {
        return Ok((latest, None));
    }
    let search = match status {
        _ if !filter.search.is_empty() => Some(IndexedSearch::Text(&filter.search)),
        Some(KeyStatus::Expired) => Some(IndexedSearch::Expired(filter.now)),
        Some(KeyStatus::Active | KeyStatus::Disabled | KeyStatus::Exhausted) | None => None,
    };
    if let Some(search) = search
        && let Some(ids) = reader.find_searched_keys(workspace, search, INDEXED_ROWS_MAX).await?
    {
        let cursors = reader.list_key_cursors(workspace, &filter, &ids).await?;
        let ids: Vec<KeyId> = cursors.into_iter().map(|(_, id)| id).collect();
        let mut found = reader.list_keys_by_ids(workspace, &ids).await?;
        found.sort_by(|a, b| position(b).cmp(&position(a)));
        return Ok((found, None));
    }
    filter.end = reader.find_key_cursor(workspace, &filter, SEARCH_ROWS_MAX).await?;
    let found = reader.list_workspace_keys(workspace, &filter).await?;
    Ok((found, filter.end))
}

fn position(key: &KeySummary) -> (Timestamp, &KeyId) {
    (key.created_at, &key.id)
}

/// Parses a cursor. An invalid cursor starts at the beginning.
fn parse_cursor(cursor: &str) -> Option<KeyCursor> {
    let (at, id) = cursor.split_once('.')?;
    Some((Timestamp(at.parse().ok()?), KeyId::from(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_cursor_returns_none_when_cursor_is_invalid() {
        assert_eq!(parse_cursor("12.key_1"), Some((Timestamp(12), KeyId::from("key_1"))));
        for wrong in ["", "key_1", "x.key_1", ".key_1"] {
            assert_eq!(parse_cursor(wrong), None, "{wrong}");
        }
    }
}
