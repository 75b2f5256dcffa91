//! The pages of identities, which represent the customer's users: list, details, create, edit and delete.
//!
//! The URL of a page contains the identity's id. An externalId may be any text, so a URL with an externalId,
//! percent-encoded in the path or as a query, redirects to the page of the id.

mod fields;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::identities::{self, IdentityRef};
use domain::keys;
use domain::page::COUNT_MAX;
use domain::page::Paging;
use domain::permission::Action;
use fields::IdentityForm;
use foundation::error::Error;
use foundation::id::IdentityId;
use foundation::model::{Identity, IdentitySummary, Ratelimit};
use futures_util::future::join;

use super::analytics::{Selection, TimeRange, UsageSection};
use super::confirm::ConfirmPage;
use super::failure::Failure;
use super::form::{FormErrors, split_form_errors};
use super::format::{format_count, format_grouped, format_json};
use super::key_row::KeySummaryRow;
use super::layout::{Layout, Section};
use super::list_frame::{ListFrame, RowAction};
use super::one_time_form::create_once;
use super::page_request::WorkspaceRequest;
use super::pagination::{PageLinks, paging_from_query};
use super::ratelimits::format_rate;
use super::sort_link::SortLink;
use super::{PageResult, redirect_to, render_invalid_page, render_page};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/identities", get(list).post(create))
        // No fixed path is below `identities/`, because any word there can be an externalId.
        .route("/dashboard/{workspace}/new-identity", get(show_create_form))
        .route("/dashboard/{workspace}/identity", get(redirect_to_identity))
        .route("/dashboard/{workspace}/identities/{identity}", get(show))
        .route(
            "/dashboard/{workspace}/identities/{identity}/edit",
            get(show_edit_form).post(update),
        )
        .route(
            "/dashboard/{workspace}/identities/{identity}/delete",
            get(confirm_delete).post(delete),
        )
}

/// The menu of a row.
const ROW_ACTIONS: &[RowAction] = &[
    RowAction { label: "Edit", path: "edit", needs: Some(Action::UpdateIdentity) },
    RowAction { label: "Delete", path: "delete", needs: Some(Action::DeleteIdentity) },
];

#[derive(Template)]
#[template(path = "identities/list.html")]
struct IdentityListPage {
    layout: Layout,
    list: ListFrame,
    rows: Vec<IdentitySummary>,
}

#[derive(Template)]
#[template(path = "identities/form.html")]
struct IdentityFormPage {
    layout: Layout,
    is_new: bool,
    fields: IdentityForm,
    errors: FormErrors,
    action_url: String,
    back_url: String,
}

#[derive(Template)]
#[template(path = "identities/show.html")]
struct IdentityPage {
    layout: Layout,
    workspace: String,
    path: String,
    id: IdentityId,
    external_id: String,
    keys: String,
    usage: UsageSection,
    /// `None`: the events cannot be read.
    spent_last_month: Option<String>,
    /// The metadata and whether it was truncated; `None` if there is none.
    meta: Option<(String, bool)>,
    limits: Vec<IdentityLimitRow>,
    rows: Vec<KeySummaryRow>,
    pages: PageLinks,
    may_change: bool,
    may_delete: bool,
}

struct IdentityLimitRow {
    name: String,
    rate: String,
    is_auto: bool,
}

impl IdentityLimitRow {
    fn new(limit: Ratelimit) -> Self {
        let rate = format_rate(limit.limit, limit.duration_ms);
        Self { name: limit.name, rate, is_auto: limit.auto_apply }
    }
}

async fn list(request: WorkspaceRequest) -> PageResult {
    let (app, caller) = (&request.page_request.app, &request.caller);
    let (sort, paging) = SortLink::by_name(&request, "/identities");
    let sort = paging.search.trim().is_empty().then_some(sort);
    let found = match sort {
        None => {
            identities::list(&app.context, caller, None, &paging).await?.map(IdentitySummary::from)
        }
        Some(_) => identities::list_by_external_id(&app.context, caller, &paging).await?,
    };
    let list = ListFrame::new(&request, "/identities", found.next_start.as_deref());
    render_page(&IdentityListPage {
        layout: Layout::for_workspace(&request, Section::Identities, "Identities").await?,
        list: list
            .with_sort(sort)
            .with_create_form(&request, "/new-identity", Action::CreateIdentity)
            .with_row_actions(&request, ROW_ACTIONS),
        rows: found.items,
    })
}

async fn load(request: &WorkspaceRequest, called: IdentityRef) -> Result<Identity, Error> {
    identities::get(&request.page_request.app.context, &request.caller, &called).await
}

/// Returns the path of an identity's page.
fn identity_path(request: &WorkspaceRequest, id: &impl std::fmt::Display) -> String {
    request.workspace_path(&format!("/identities/{id}"))
}

/// Redirects to the page of the identity with an externalId. The query allows any characters in it.
async fn redirect_to_identity(request: WorkspaceRequest) -> PageResult {
    let external_id = request.page_request.query.text("externalId").to_owned();
    let identity = load(&request, IdentityRef::ExternalId(external_id)).await?;
    redirect_to(&identity_path(&request, &identity.id))
}

async fn show(request: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> PageResult {
    let (app, caller) = (&request.page_request.app, &request.caller);
    let identity = load(&request, IdentityRef::IdOrExternalId(name.clone())).await?;
    let path = identity_path(&request, &identity.id);
    if identity.id.as_str() != name {
        return redirect_to(&path);
    }
    let number = keys::count_by_identity(&app.context, caller, &identity.id).await?;
    let paging = Paging { search: String::new(), ..paging_from_query(&request) };
    let listed = keys::list_by_identity(&app.context, caller, &identity.id, &paging).await?;
    let selection = Selection::identity(&identity.external_id);
    let (usage, spent_last_month) =
        join(UsageSection::load(&request, &selection), load_last_month(&request, &selection)).await;
    render_page(&IdentityPage {
        layout: Layout::for_workspace(&request, Section::Identities, "Identities")
            .await?
            .about(&identity.external_id),
        workspace: request.membership.workspace_id.to_string(),
        keys: format_count(number, COUNT_MAX),
        usage,
        spent_last_month,
        meta: fields::truncated_meta(identity.meta.as_ref())
            .map(|(text, is_cut)| (format_json(&text), is_cut)),
        limits: identity.ratelimits.into_iter().map(IdentityLimitRow::new).collect(),
        pages: PageLinks::new(&request, &path, listed.next_start.as_deref()),
        rows: KeySummaryRow::list(&app.context, listed.items).await?,
        may_change: caller.is_allowed_on(Action::UpdateIdentity, &identity.id),
        may_delete: caller.is_allowed_on(Action::DeleteIdentity, &identity.id),
        path,
        id: identity.id,
        external_id: identity.external_id,
    })
}

/// Loads the credits that were spent in the whole last month. The section about this month logs why events cannot be read.
async fn load_last_month(request: &WorkspaceRequest, selection: &Selection) -> Option<String> {
    let range = TimeRange::named("last-month", request.page_request.app.context.clock.now());
    let spent = selection.sum_credits(request, range.period, range.rollup_unit()).await.ok()?;
    Some(format_grouped(spent))
}

async fn build_create_form(
    request: &WorkspaceRequest,
    fields: IdentityForm,
    errors: FormErrors,
) -> Result<IdentityFormPage, Failure> {
    Ok(IdentityFormPage {
        layout: Layout::for_workspace(request, Section::Identities, "Create identity").await?,
        is_new: true,
        fields,
        errors,
        action_url: request.workspace_path("/identities"),
        back_url: request.workspace_path("/identities"),
    })
}

async fn show_create_form(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreateIdentity)?;
    let (fields, _) = IdentityForm::from_form(&request.page_request.form);
    render_page(&build_create_form(&request, fields, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreateIdentity)?;
    let (fields, is_step) = IdentityForm::from_form(&request.page_request.form);
    if is_step {
        return render_page(&build_create_form(&request, fields, FormErrors::default()).await?);
    }
    let creation = create_from_form(&request, &fields);
    match split_form_errors(create_once(&request, creation).await)? {
        Ok(id) => redirect_to(&format!("{}?notice=identity-created", identity_path(&request, &id))),
        Err(errors) => render_invalid_page(&build_create_form(&request, fields, errors).await?),
    }
}

async fn create_from_form(
    request: &WorkspaceRequest,
    fields: &IdentityForm,
) -> Result<IdentityId, Error> {
    let new = fields.to_create()?;
    identities::create(&request.page_request.app.context, &request.caller, new).await
}

async fn build_edit_form(
    request: &WorkspaceRequest,
    identity: &Identity,
    fields: IdentityForm,
    errors: FormErrors,
) -> Result<IdentityFormPage, Failure> {
    let path = identity_path(request, &identity.id);
    Ok(IdentityFormPage {
        layout: Layout::for_workspace(request, Section::Identities, "Edit identity")
            .await?
            .about(&identity.external_id),
        is_new: false,
        fields: IdentityForm { external_id: identity.external_id.clone(), ..fields },
        errors,
        action_url: format!("{path}/edit"),
        back_url: path,
    })
}

async fn show_edit_form(
    request: WorkspaceRequest,
    Path((_, name)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::UpdateIdentity)?;
    let identity = load(&request, IdentityRef::IdOrExternalId(name)).await?;
    let fields = IdentityForm::from_identity(&identity);
    render_page(&build_edit_form(&request, &identity, fields, FormErrors::default()).await?)
}

async fn update(request: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> PageResult {
    request.caller.require(Action::UpdateIdentity)?;
    let identity = load(&request, IdentityRef::IdOrExternalId(name)).await?;
    let (fields, is_step) = IdentityForm::from_form(&request.page_request.form);
    if is_step {
        return render_page(
            &build_edit_form(&request, &identity, fields, FormErrors::default()).await?,
        );
    }
    match split_form_errors(apply_changes(&request, &identity, &fields).await)? {
        Ok(notice) => redirect_to(&format!("{}{notice}", identity_path(&request, &identity.id))),
        Err(errors) => {
            render_invalid_page(&build_edit_form(&request, &identity, fields, errors).await?)
        }
    }
}

async fn apply_changes(
    request: &WorkspaceRequest,
    identity: &Identity,
    fields: &IdentityForm,
) -> Result<&'static str, Error> {
    let change = fields.to_update()?;
    if change.meta.is_none() && change.ratelimits.is_none() {
        return Ok("?notice=key-unchanged");
    }
    let (context, id) = (&request.page_request.app.context, identity.id.to_string());
    identities::update(context, &request.caller, &IdentityRef::Id(id), change).await?;
    Ok("?notice=identity-updated")
}

async fn confirm_delete(
    request: WorkspaceRequest,
    Path((_, name)): Path<(String, String)>,
) -> PageResult {
    request.caller.require(Action::DeleteIdentity)?;
    let identity = load(&request, IdentityRef::IdOrExternalId(name)).await?;
    let number =
        keys::count_by_identity(&request.page_request.app.context, &request.caller, &identity.id)
            .await?;
    let path = identity_path(&request, &identity.id);
    let keys = match number {
        0 => "It has no keys.".to_owned(),
        1 => "Its 1 key remains valid, without the metadata and limits of the identity. The key's permissions do not \
            change; the identity's limits no longer apply."
            .to_owned(),
        number => format!(
            "Its {} keys remain valid, without the metadata and limits of the identity. The keys' permissions do not \
            change; the identity's limits no longer apply.",
            format_count(number, COUNT_MAX)
        ),
    };
    render_page(&ConfirmPage {
        layout: Layout::for_workspace(&request, Section::Identities, "Delete identity")
            .await?
            .about(&identity.external_id),
        question: format!("Delete {}?", identity.external_id),
        consequences: vec![
            keys,
            "An identity that you create later with the same external ID does not get these keys."
                .into(),
        ],
        action_url: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back_url: path,
        back_label: identity.external_id,
    })
}

async fn delete(request: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> PageResult {
    let context = &request.page_request.app.context;
    identities::delete(context, &request.caller, &IdentityRef::IdOrExternalId(name)).await?;
    redirect_to(&request.workspace_path("/identities?notice=identity-deleted"))
}
