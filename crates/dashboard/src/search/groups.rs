//! The objects of a workspace that match a search, by kind.

use domain::keys::{find_deletion, search as key_search};
use domain::page::{KeyOrder, Paging};
use domain::permission::Action;
use domain::ratelimits::{namespaces, overrides};
use domain::{apis, gateways, identities, migrations, rbac, root_keys};
use foundation::error::Error;
use foundation::id::{KeyId, RequestId};
use foundation::model::KeySummary;

use super::super::format::format_start;
use super::super::icons;
use super::super::keys::key_title;
use super::super::layout::is_allowed;
use super::super::page_request::WorkspaceRequest;
use super::super::ratelimits::format_rate;
use super::super::root_keys::root_key_title;
use super::{ResultGroup, ResultRow, read_list};

/// The number of results of each kind. Its own list has the others.
const GROUP_ROWS: usize = 5;

/// Searches the objects that the user may read.
pub async fn search(request: &WorkspaceRequest, text: &str) -> Result<Vec<ResultGroup>, Error> {
    let paging = &Paging { search: text.to_owned(), ..Paging::first_by_name(GROUP_ROWS) };
    let mut groups = vec![
        search_keys(request, paging).await?,
        search_identities(request, paging).await?,
        search_apis(request, paging).await?,
        search_namespaces(request, paging).await?,
    ];
    groups.extend(search_overrides(request, paging).await?);
    groups.extend(search_rbac(request, paging).await?);
    groups.extend(search_gateways(request, paging).await?);
    groups.extend(search_root_keys(request, paging).await?);
    groups.push(search_imports(request, paging).await?);
    groups.extend(find_request(request, text));
    Ok(groups)
}

async fn search_keys(request: &WorkspaceRequest, paging: &Paging) -> Result<ResultGroup, Error> {
    let (context, caller) = (&request.page_request.app.context, &request.caller);
    let found =
        key_search::list_page(context, caller, None, None, KeyOrder::LatestFirst, paging).await?;
    let row = |key: KeySummary| {
        let name = key_title(key.name);
        (key.id.to_string(), name, format_start(&key.start, &key.id))
    };
    let mut rows: Vec<_> = found.items.into_iter().map(|item| row(item.key)).collect();
    if rows.is_empty()
        && let Some(deletion) =
            find_deletion(context, caller, &KeyId::from(paging.search.as_str())).await?
    {
        let name = key_title(deletion.key.name);
        rows.push((deletion.key.id.to_string(), name, "Deleted".into()));
    }
    let has_more = found.next_start.is_some();
    Ok(ResultGroup::new(request, "Keys", "/keys", paging, has_more, rows.into_iter()))
}

async fn search_identities(
    request: &WorkspaceRequest,
    paging: &Paging,
) -> Result<ResultGroup, Error> {
    let context = &request.page_request.app.context;
    let found = identities::list(context, &request.caller, None, paging).await?;
    let has_more = found.next_start.is_some();
    let rows = found.items.into_iter().map(|identity| {
        let id = identity.id.to_string();
        (id.clone(), identity.external_id, id)
    });
    Ok(ResultGroup::new(request, "Identities", "/identities", paging, has_more, rows))
}

async fn search_apis(request: &WorkspaceRequest, paging: &Paging) -> Result<ResultGroup, Error> {
    let context = &request.page_request.app.context;
    let found = apis::list_for_caller(context, &request.caller, paging).await?;
    let has_more = found.next_start.is_some();
    let rows =
        found.items.into_iter().map(|api| (api.id.to_string(), api.name, api.id.to_string()));
    Ok(ResultGroup::new(request, "APIs", "/apis", paging, has_more, rows))
}

async fn search_namespaces(
    request: &WorkspaceRequest,
    paging: &Paging,
) -> Result<ResultGroup, Error> {
    let context = &request.page_request.app.context;
    let found = namespaces::list_for_caller(context, &request.caller, paging).await?;
    let has_more = found.next_start.is_some();
    let rows = found
        .items
        .into_iter()
        .map(|namespace| (namespace.id.to_string(), namespace.name, namespace.id.to_string()));
    Ok(ResultGroup::new(request, "Rate-limit namespaces", "/ratelimits", paging, has_more, rows))
}

/// Searches the overrides of the namespace whose page submits the search. Others are found on the page of their namespace.
async fn search_overrides(
    request: &WorkspaceRequest,
    paging: &Paging,
) -> Result<Option<ResultGroup>, Error> {
    let list = read_list(request).unwrap_or_default();
    let Some(namespace) = list.strip_prefix(&request.workspace_path("/ratelimits/")) else {
        return Ok(None);
    };
    let context = &request.page_request.app.context;
    let found = match overrides::list(context, &request.caller, namespace, paging).await {
        Err(Error::NotFound(_)) => return Ok(None),
        found => found?,
    };
    let rows = found.items.into_iter().map(|known| {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("q", &known.identifier)
            .finish();
        ResultRow {
            path: format!("{list}?{query}"),
            icon: "",
            detail: format_rate(known.limit, known.duration_ms),
            name: known.identifier,
        }
    });
    // Only a text that may be a full key gets here, and it must not get into a link.
    Ok(Some(ResultGroup {
        title: "Overrides",
        is_short: false,
        rows: rows.collect(),
        list_path: None,
    }))
}

async fn search_rbac(
    request: &WorkspaceRequest,
    paging: &Paging,
) -> Result<[ResultGroup; 2], Error> {
    let context = &request.page_request.app.context;
    let roles = rbac::list_role_summaries(context, &request.caller, paging).await?;
    let permissions = rbac::list_permissions(context, &request.caller, paging).await?;
    let (more_roles, more_permissions) =
        (roles.next_start.is_some(), permissions.next_start.is_some());
    let roles = roles
        .items
        .into_iter()
        .map(|role| (role.id.to_string(), role.name, role.description.unwrap_or_default()));
    let permissions = permissions.items.into_iter().map(|permission| {
        (permission.id.to_string(), permission.slug, permission.description.unwrap_or_default())
    });
    Ok([
        ResultGroup::new(request, "Roles", "/roles", paging, more_roles, roles),
        ResultGroup::new(
            request,
            "Permissions",
            "/permissions",
            paging,
            more_permissions,
            permissions,
        ),
    ])
}

async fn search_root_keys(
    request: &WorkspaceRequest,
    paging: &Paging,
) -> Result<Option<ResultGroup>, Error> {
    if !is_allowed(request, Action::ReadRootKey) {
        return Ok(None);
    }
    let context = &request.page_request.app.context;
    let found =
        root_keys::list_for_caller(context, &request.caller, false, KeyOrder::LatestFirst, paging)
            .await?;
    let has_more = found.next_start.is_some();
    let rows = found.items.into_iter().map(|stored| {
        let name = root_key_title(stored.key.name);
        (stored.key.id.to_string(), name, format!("{}…", stored.key.start))
    });
    Ok(Some(ResultGroup::new(request, "Root keys", "/root-keys", paging, has_more, rows)))
}

async fn search_gateways(
    request: &WorkspaceRequest,
    paging: &Paging,
) -> Result<Option<ResultGroup>, Error> {
    if !is_allowed(request, Action::ReadGatewayPolicy) {
        return Ok(None);
    }
    let context = &request.page_request.app.context;
    let found = gateways::list(context, &request.caller, paging).await?;
    let has_more = found.next_start.is_some();
    let rows = found.items.into_iter();
    let rows = rows.map(|policy| (policy.id.to_string(), policy.name, policy.id.to_string()));
    Ok(Some(ResultGroup::new(request, "Gateway policies", "/gateways", paging, has_more, rows)))
}

async fn search_imports(request: &WorkspaceRequest, paging: &Paging) -> Result<ResultGroup, Error> {
    let context = &request.page_request.app.context;
    let (caller, order) = (&request.caller, KeyOrder::LatestFirst);
    let found = migrations::list_for_caller(context, caller, order, paging).await?;
    let has_more = found.next_start.is_some();
    let rows = found.items.into_iter().map(|stored| {
        let id = stored.migration.id.to_string();
        (id.clone(), stored.migration.name.unwrap_or_else(|| "Unnamed".into()), id)
    });
    Ok(ResultGroup::new(request, "Imports", "/imports", paging, has_more, rows))
}

/// Returns the page that explains the request with this id. Whether there is such a request is seen there.
fn find_request(request: &WorkspaceRequest, text: &str) -> Option<ResultGroup> {
    let is_id = RequestId::parse_time(text).is_some();
    let row = ResultRow {
        path: request.workspace_path(&format!("/keys/why?request={text}")),
        icon: icons::SEARCH,
        name: "Explain this request".to_owned(),
        detail: text.to_owned(),
    };
    (is_id && is_allowed(request, Action::ReadKey)).then(|| ResultGroup {
        title: "Requests",
        is_short: false,
        rows: vec![row],
        list_path: None,
    })
}
