//! Selecting the permissions of a root key: by template, on all resources of a type, or on specific APIs and
//! namespaces.
//!
//! The form carries the whole selection, so each step (a template, a search, another API) is a GET that renders the
//! page again, and the server stores no state.

use domain::page::Paging;
use domain::permission::{self, Action};
use domain::ratelimits::namespaces;
use domain::{apis, users};
use foundation::clock::DAY_MS;
use foundation::error::{Error, Result};
use foundation::id::ApiId;
use foundation::model::MemberRole;

use super::super::form::Form;
use super::super::format::{capitalize, humanize};
use super::super::page_request::WorkspaceRequest;
use super::scope::{ApiScope, ScopeOption};

/// The resource types that have permissions.
const RESOURCES: [&str; 5] = ["api", "ratelimit", "gateway", "rbac", "identity"];
/// The number of search results.
const RESULTS_MAX: usize = 8;
/// The maximum number of selected resources per type.
const SELECTED_MAX: usize = 20;
/// The options for a root key's expiry, in days; 0: it does not expire.
const LIFETIME_OPTIONS: [(i64, &str); 6] = [
    (0, "Never"),
    (1, "In 1 day"),
    (7, "In 7 days"),
    (30, "In 30 days"),
    (90, "In 90 days"),
    (365, "In 1 year"),
];

/// The form, as submitted.
pub struct RootKeyPicker {
    pub name: String,
    pub lifetimes: Vec<ExpiryOption>,
    pub templates: Vec<PermissionTemplate>,
    /// The name of the template that was selected last; a resource that is added gets its permissions.
    pub preset: String,
    /// The answers to the question which APIs the root key can use.
    pub scopes: Vec<ScopeOption>,
    pub groups: Vec<PermissionGroup>,
    pub finders: Vec<ResourceFinder>,
}

pub struct ExpiryOption {
    pub value: i64,
    pub label: &'static str,
    pub is_selected: bool,
}

/// A common set of permissions.
pub struct PermissionTemplate {
    pub value: &'static str,
    pub label: &'static str,
    pub hint: &'static str,
}

/// The permissions on all resources of a type, or on one resource.
pub struct PermissionGroup {
    pub title: String,
    pub note: String,
    /// Identifies the group in the page.
    pub key: String,
    pub options: Vec<GrantOption>,
}

pub struct GrantOption {
    /// The permission tuple.
    pub value: String,
    pub label: String,
    pub is_checked: bool,
}

/// A search for resources of a type, and the selected ones.
pub struct ResourceFinder {
    pub resource: &'static str,
    pub plural: &'static str,
    pub query: String,
    /// The results: id and name.
    pub results: Vec<(String, String)>,
    pub has_more: bool,
    pub selected: Vec<PermissionGroup>,
    pub has_capacity: bool,
}

const TEMPLATES: [PermissionTemplate; 5] = [
    PermissionTemplate {
        value: "verify",
        label: "Verify only",
        hint: "For services that verify keys",
    },
    PermissionTemplate { value: "read", label: "Read only", hint: "View all resources" },
    PermissionTemplate {
        value: "keys",
        label: "Key management",
        hint: "Create, update and delete keys",
    },
    PermissionTemplate {
        value: "limits",
        label: "Rate limiting",
        hint: "Check limits in all namespaces",
    },
    PermissionTemplate { value: "all", label: "Everything", hint: "All permissions" },
];

/// Returns the tuples of a template. `None`: no template has this name.
fn template_tuples(name: &str) -> Option<Vec<String>> {
    let is_meant = |action: &&Action| match name {
        "verify" => **action == Action::VerifyKey,
        "read" => users::role_grants(MemberRole::Viewer).is_allowed(**action),
        "keys" => matches!(
            **action,
            Action::ReadApi
                | Action::CreateKey
                | Action::ReadKey
                | Action::UpdateKey
                | Action::DeleteKey
                | Action::VerifyKey
                | Action::AddPermissionToKey
                | Action::RemovePermissionFromKey
                | Action::AddRoleToKey
                | Action::RemoveRoleFromKey
        ),
        "limits" => {
            matches!(**action, Action::Limit | Action::CreateNamespace | Action::ReadNamespace)
        }
        _ => name == "all",
    };
    let tuples: Vec<_> =
        Action::ALL.iter().filter(is_meant).map(|a| a.to_wildcard_tuple()).collect();
    (!tuples.is_empty()).then_some(tuples)
}

/// Returns the tuples that the page shows as selected: those of the form, or of the template that was just selected, and of
/// the last template for a resource that was just added.
fn selected_tuples(form: &Form) -> Vec<String> {
    let template = template_tuples(form.text("template"));
    let is_template = template.is_some();
    let mut tuples =
        template.unwrap_or_else(|| form.values("permission").map(str::to_owned).collect());
    let preset = match is_template {
        true => tuples.clone(),
        false => template_tuples(form.text("preset")).unwrap_or_default(),
    };
    for resource in ["api", "ratelimit"] {
        let named = format!("on-{resource}");
        let chosen = form.values(&named).filter(|_| is_template);
        let added = form.text("add").strip_prefix(resource).and_then(|rest| rest.strip_prefix(' '));
        for id in chosen.chain(added).take(SELECTED_MAX + 1) {
            let actions = preset.iter().filter_map(|tuple| permission::parse_tuple(tuple).ok());
            let actions = actions.filter(|(action, _)| action.resource() == resource);
            tuples.extend(actions.map(|(action, _)| action.to_tuple(id)));
        }
    }
    tuples
}

/// Returns the lifetime of the root key in milliseconds. `None`: it does not expire.
pub fn lifetime_ms(form: &Form) -> Option<i64> {
    let days = form.text("lasts").parse::<i64>().ok()?;
    LIFETIME_OPTIONS.iter().any(|(known, _)| *known == days && days > 0).then_some(days * DAY_MS)
}

/// Returns the plural label of a resource type.
pub fn plural_label(resource: &str) -> &'static str {
    match resource {
        "api" => "APIs and their keys",
        "ratelimit" => "rate-limit namespaces",
        "rbac" => "permissions and roles",
        "identity" => "identities",
        "gateway" => "gateway policies",
        _ => "others",
    }
}

impl RootKeyPicker {
    pub async fn load(request: &WorkspaceRequest, form: &Form) -> Result<Self> {
        let tuples = selected_tuples(form);
        let scope = ApiScope::selected(form, &tuples);
        let preset = ["template", "preset"].into_iter().map(|name| form.text(name));
        let lasts = form.text("lasts").parse::<i64>().unwrap_or(0);
        let choice = |(value, label)| ExpiryOption { value, label, is_selected: value == lasts };
        let groups = RESOURCES.into_iter().map(|resource| PermissionGroup {
            title: capitalize(plural_label(resource)),
            note: format!("Includes future resources ({resource}.*)"),
            key: format!("all-{resource}"),
            options: grant_options(request, &tuples, resource, "*"),
        });
        Ok(Self {
            name: form.text("name").to_owned(),
            lifetimes: LIFETIME_OPTIONS.into_iter().map(choice).collect(),
            templates: TEMPLATES.into_iter().collect(),
            preset: preset.into_iter().find(|name| !name.is_empty()).unwrap_or_default().to_owned(),
            scopes: ApiScope::options(scope),
            groups: groups.collect(),
            finders: vec![
                load_finder(request, form, &tuples, "api").await?,
                load_finder(request, form, &tuples, "ratelimit").await?,
            ],
        })
    }
}

/// Returns the permissions on a resource that the user may grant.
fn grant_options(
    request: &WorkspaceRequest,
    tuples: &[String],
    resource: &str,
    id: &str,
) -> Vec<GrantOption> {
    let is_offered = |action: &&Action| {
        let makes_new = matches!(action, Action::CreateApi | Action::CreateNamespace);
        action.resource() == resource
            && request.caller.is_allowed(**action)
            && !(makes_new && id != "*")
    };
    let offered = |action: &Action| {
        let value = action.to_tuple(id);
        let is_checked = tuples.contains(&value);
        GrantOption { label: humanize(action.action()), value, is_checked }
    };
    Action::ALL.iter().filter(is_offered).map(offered).collect()
}

async fn load_finder(
    request: &WorkspaceRequest,
    form: &Form,
    tuples: &[String],
    resource: &'static str,
) -> Result<ResourceFinder> {
    let query = form.text(&format!("find-{resource}")).trim().to_owned();
    let named = format!("on-{resource}");
    let (added, removed) = (form.text("add"), form.text("remove"));
    let mut ids: Vec<&str> = Vec::new();
    let of_tuples = tuples.iter().filter_map(|tuple| permission::parse_tuple(tuple).ok());
    let of_tuples = of_tuples
        .filter(|(action, id)| action.resource() == resource && *id != "*")
        .map(|(_, id)| id);
    let added = added.strip_prefix(resource).and_then(|rest| rest.strip_prefix(' '));
    for id in form.values(&named).chain(of_tuples).chain(added) {
        if !ids.contains(&id) && id != removed && ids.len() < SELECTED_MAX {
            ids.push(id);
        }
    }
    let mut chosen = Vec::new();
    for id in &ids {
        // A resource that does not exist in this workspace is ignored.
        let Some(name) = find_name(request, resource, id).await? else { continue };
        chosen.push(PermissionGroup {
            title: name,
            note: (*id).to_owned(),
            key: (*id).to_owned(),
            options: grant_options(request, tuples, resource, id),
        });
    }
    let paging = Paging { search: query.clone(), ..Paging::first_by_name(RESULTS_MAX) };
    let (found, has_more) = search(request, resource, &paging).await?;
    let found = found.into_iter().filter(|(id, _)| !ids.contains(&id.as_str())).collect();
    let plural = if resource == "api" { "APIs" } else { "namespaces" };
    let may_add = chosen.len() < SELECTED_MAX;
    Ok(ResourceFinder {
        resource,
        plural,
        query,
        results: found,
        has_more,
        selected: chosen,
        has_capacity: may_add,
    })
}

async fn search(
    request: &WorkspaceRequest,
    resource: &str,
    paging: &Paging,
) -> Result<(Vec<(String, String)>, bool)> {
    let (app, caller) = (&request.page_request.app, &request.caller);
    Ok(match resource {
        "api" => {
            let page = apis::list_for_caller(&app.context, caller, paging).await?;
            let named = page.items.into_iter().map(|api| (api.id.to_string(), api.name));
            (named.collect(), page.next_start.is_some())
        }
        _ => {
            let page = namespaces::list_for_caller(&app.context, caller, paging).await?;
            let named = page.items.into_iter().map(|found| (found.id.to_string(), found.name));
            (named.collect(), page.next_start.is_some())
        }
    })
}

/// Returns the name of an API or a namespace. `None`: it does not exist.
pub async fn find_name(
    request: &WorkspaceRequest,
    resource: &str,
    id: &str,
) -> Result<Option<String>> {
    let (app, caller) = (&request.page_request.app, &request.caller);
    let name = match resource {
        "api" => apis::get(&app.context, caller, &ApiId::from(id)).await.map(|api| api.name),
        _ => namespaces::get(&app.context, caller, id).await.map(|namespace| namespace.name),
    };
    match name {
        Ok(name) => Ok(Some(name)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_tuples_has_every_permission_only_when_named_all() {
        for known in &TEMPLATES {
            let tuples = template_tuples(known.value).expect("a template");
            assert_eq!(tuples.len() == Action::ALL.len(), known.value == "all");
        }
        assert_eq!(template_tuples("verify"), Some(vec!["api.*.verify_key".to_owned()]));
        assert_eq!(template_tuples(""), None);
    }

    #[test]
    fn every_permission_is_offered() {
        let is_offered = |action: &&Action| RESOURCES.contains(&action.resource());
        assert!(Action::ALL.iter().all(|action| is_offered(&action)));
    }

    #[test]
    fn added_resource_gets_permissions_of_last_template() {
        let selected = |query: &str| selected_tuples(&Form::parse(query.as_bytes()));

        let one = "api.api_1.verify_key";
        assert_eq!(selected("preset=verify&add=api+api_1"), [one]);
        assert_eq!(selected("preset=verify&on-api=api_1"), [""; 0]);
        assert_eq!(selected("preset=verify&add=ratelimit+rlns_1"), [""; 0]);
        assert_eq!(selected("add=api+api_1&permission=a"), ["a"]);
        assert_eq!(selected("template=verify&on-api=api_1"), ["api.*.verify_key", one]);
    }
}
