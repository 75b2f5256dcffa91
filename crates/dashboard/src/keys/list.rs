//! The list of keys.

use askama::Template;
use domain::keys::details::KeyStatus;
use domain::keys::find_deletion;
use domain::keys::search;
use domain::permission::Action;
use foundation::clock::Timestamp;
use foundation::id::{ApiId, KeyId};

use super::super::failure::Failure;
use super::super::form::Form;
use super::super::format::{TimeLabel, format_start};
use super::super::layout::{Layout, Section, is_allowed};
use super::super::list_frame::ListFrame;
use super::super::page_request::WorkspaceRequest;
use super::super::pagination::{PAGE_ROWS, paging_from_query};
use super::super::sort_link::{Direction, SortLink};
use super::super::status_badge::StatusBadge;
use super::super::{PageResult, render_page};
use super::{
    ApiOptions, KeyAccess, SelectOption, key_path, key_title, load_api_options, may_be_full_key,
    status_label,
};

#[derive(Template)]
#[template(path = "keys/list.html")]
pub struct KeyListPage {
    layout: Layout,
    pub list: ListFrame,
    /// The query of the list, for the way back from other pages.
    filter: String,
    pub rows: Vec<KeyTableRow>,
    /// Whether the page has fewer rows than a full page.
    is_short: bool,
    api: String,
    apis: ApiOptions,
    states: Vec<SelectOption>,
    is_searched: bool,
    may: KeyAccess,
    /// The page of the deleted key with the id that was searched.
    deleted_path: Option<String>,
    /// Whether the text may be a full key that does not belong to this workspace.
    pub is_unknown: bool,
}

pub struct KeyTableRow {
    id: KeyId,
    name: String,
    start: String,
    api_id: ApiId,
    api_name: String,
    status: StatusBadge,
    is_disabled: bool,
    external_id: String,
    created: TimeLabel,
    last_used: Option<TimeLabel>,
}

impl KeyListPage {
    /// Returns whether the text is the id of a deleted key.
    pub fn is_deleted(&self) -> bool {
        self.deleted_path.is_some()
    }
}

impl KeyTableRow {
    fn new(row: search::KeyListItem, now: Timestamp) -> Self {
        let key = row.key;
        Self {
            name: key_title(key.name),
            start: format_start(&key.start, &key.id),
            id: key.id,
            api_id: key.api_id,
            api_name: row.api_name,
            status: row.status.into(),
            is_disabled: !key.is_enabled,
            external_id: key.owner_id.unwrap_or_default(),
            created: TimeLabel::new(key.created_at, now),
            last_used: key.last_used_at.map(|at| TimeLabel::new(at, now)),
        }
    }

    /// Returns whether the name, the external ID or the ID contains a text, in capitals or not.
    pub fn contains(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let fields = [self.name.as_str(), self.external_id.as_str(), self.id.as_str()];
        fields.iter().any(|field| field.to_lowercase().contains(&text))
    }
}

/// Builds the page of the search in the query of the request.
pub async fn build_page(request: &WorkspaceRequest) -> Result<KeyListPage, Failure> {
    let app = &request.page_request.app;
    let query = &request.page_request.query;
    let api = query.text("api");
    let state = KeyStatus::parse(query.text("state"));
    let paging = paging_from_query(request);
    let of = (!api.is_empty()).then(|| ApiId::from(api));
    let sort = search::is_sortable(&paging.search, state)
        .then(|| SortLink::new(request, &request.workspace_path("/keys"), Direction::Descending));
    let order = sort.as_ref().map(SortLink::key_order).unwrap_or_default();
    let found =
        search::list_page(&app.context, &request.caller, of.as_ref(), state, order, &paging)
            .await?;
    let list = ListFrame::new(request, "/keys", found.next_start.as_deref()).with_sort(sort);
    let deleted = match found.items.is_empty() && !list.search.is_empty() {
        true => {
            find_deletion(&app.context, &request.caller, &KeyId::from(list.search.trim())).await?
        }
        false => None,
    };
    let now = app.context.clock.now();
    let choice = |known: KeyStatus| SelectOption {
        value: known.as_str().to_owned(),
        label: status_label(known).to_owned(),
        is_selected: state == Some(known),
    };
    Ok(KeyListPage {
        layout: Layout::for_workspace(request, Section::Keys, "Keys").await?,
        is_short: found.items.len() < PAGE_ROWS,
        rows: found.items.into_iter().map(|row| KeyTableRow::new(row, now)).collect(),
        api: api.to_owned(),
        apis: load_api_options(request, api).await?,
        states: KeyStatus::ALL.map(choice).into_iter().collect(),
        filter: filter_query(query),
        is_searched: !list.search.is_empty() || !api.is_empty() || state.is_some(),
        list,
        may: KeyAccess {
            create: is_allowed(request, Action::CreateKey),
            update: is_allowed(request, Action::UpdateKey),
            delete: is_allowed(request, Action::DeleteKey),
        },
        deleted_path: deleted.map(|deleted| key_path(request, &deleted.key.id, "")),
        is_unknown: false,
    })
}

/// Returns the query that leads back to a page of the list, with its `?`; empty if it has none. The token of a form and a text
/// that may be a full key are left out: they must not get into a URL.
pub fn filter_query(query: &Form) -> String {
    let without: &[&str] = match may_be_full_key(query.text("q").trim()) {
        true => &["csrf", "notice", "q"],
        false => &["csrf", "notice"],
    };
    match query.query_without(without).finish() {
        query if query.is_empty() => query,
        query => format!("?{query}"),
    }
}

pub async fn list(request: WorkspaceRequest) -> PageResult {
    render_page(&build_page(&request).await?)
}
