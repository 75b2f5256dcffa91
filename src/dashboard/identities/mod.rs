//! The pages of identities, which represent the customer's users: list, details, create, edit and delete.
//!
//! The URL of a page contains the identity's id. An externalId may be any text, so a URL with an externalId,
//! percent-encoded in the path or as a query, redirects to the page of the id.

mod fields;

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use fields::Fields;
use foundation::error::Error;
use foundation::id::IdentityId;
use foundation::model::{Identity, Ratelimit};

use super::confirm::Confirm;
use super::failure::Failure;
use super::form::{FormErrors, split_form_errors};
use super::format::count;
use super::key_row::KeyRow;
use super::layout::{Layout, Section, may};
use super::page_request::WorkspaceRequest;
use super::pagination::{Pages, paging};
use super::ratelimits::rate;
use super::{Answer, page, redirect_to, refused_page};
use crate::domain::identities::{self, IdentityRef};
use crate::domain::keys;
use crate::domain::page::Paging;
use crate::domain::permission::Action;
use crate::domain::users::SIZE_MAX;
use crate::rpc::v2;
use crate::rpc::v2::identities::create_identity::CreateIdentity;
use crate::rpc::v2::identities::delete_identity::DeleteIdentity;
use crate::rpc::v2::identities::update_identity::UpdateIdentity;

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/identities", get(list).post(create))
        // No fixed path is below `identities/`, because any word there can be an externalId.
        .route("/dashboard/{workspace}/new-identity", get(new))
        .route("/dashboard/{workspace}/identity", get(named))
        .route("/dashboard/{workspace}/identities/{identity}", get(show))
        .route("/dashboard/{workspace}/identities/{identity}/edit", get(edit).post(update))
        .route("/dashboard/{workspace}/identities/{identity}/delete", get(ask_delete).post(delete))
}

#[derive(Template)]
#[template(path = "identities/list.html")]
struct List<'a> {
    shell: Layout,
    workspace: String,
    path: String,
    rows: Vec<Identity>,
    search: &'a str,
    pages: Pages,
    may_create: bool,
}

#[derive(Template)]
#[template(path = "identities/form.html")]
struct Form {
    shell: Layout,
    is_new: bool,
    fields: Fields,
    faults: FormErrors,
    act: String,
    back: String,
}

#[derive(Template)]
#[template(path = "identities/show.html")]
struct Show {
    shell: Layout,
    workspace: String,
    path: String,
    id: IdentityId,
    external_id: String,
    keys: String,
    /// The metadata and whether it was truncated; `None` if there is none.
    meta: Option<(String, bool)>,
    limits: Vec<LimitRow>,
    rows: Vec<KeyRow>,
    pages: Pages,
    may_change: bool,
    may_delete: bool,
}

struct LimitRow {
    name: String,
    rate: String,
    is_auto: bool,
}

impl LimitRow {
    fn new(limit: Ratelimit) -> Self {
        let rate = rate(limit.limit, limit.duration_ms);
        Self { name: limit.name, rate, is_auto: limit.auto_apply }
    }
}

async fn list(request: WorkspaceRequest) -> Answer {
    let path = request.path("/identities");
    let (app, caller) = (&request.visit.app, &request.caller);
    let found = identities::list(app, caller, None, &paging(&request)).await?;
    page(&List {
        shell: Layout::of(&request, Section::Identities, "Identities").await?,
        workspace: request.membership.workspace_id.to_string(),
        pages: Pages::new(&request, &path, found.next.as_deref()),
        path,
        rows: found.items,
        search: request.visit.query.text("q"),
        may_create: may(&request, Action::CreateIdentity),
    })
}

async fn found(request: &WorkspaceRequest, called: IdentityRef) -> Result<Identity, Error> {
    identities::get(&request.visit.app, &request.caller, &called).await
}

/// Returns the path of an identity's page.
fn path(request: &WorkspaceRequest, id: &IdentityId) -> String {
    request.path(&format!("/identities/{id}"))
}

/// Redirects to the page of the identity with an externalId. The query allows any characters in it.
async fn named(request: WorkspaceRequest) -> Answer {
    let external_id = request.visit.query.text("externalId").to_owned();
    let identity = found(&request, IdentityRef::ExternalId(external_id)).await?;
    redirect_to(&path(&request, &identity.id))
}

async fn show(request: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> Answer {
    let (app, caller) = (&request.visit.app, &request.caller);
    let identity = found(&request, IdentityRef::Either(name.clone())).await?;
    let path = path(&request, &identity.id);
    if identity.id.as_str() != name {
        return redirect_to(&path);
    }
    let number = keys::count_of_identity(app, caller, &identity.id).await?;
    let paging = Paging { search: String::new(), ..paging(&request) };
    let listed = keys::of_identity(app, caller, &identity.id, &paging).await?;
    let now = app.clock.now();
    page(&Show {
        shell: Layout::of(&request, Section::Identities, "Identity").await?,
        workspace: request.membership.workspace_id.to_string(),
        keys: count(number, SIZE_MAX),
        meta: fields::shown(identity.meta.as_ref()),
        limits: identity.ratelimits.into_iter().map(LimitRow::new).collect(),
        pages: Pages::new(&request, &path, listed.next.as_deref()),
        rows: listed.items.into_iter().map(|key| KeyRow::new(key, now)).collect(),
        may_change: caller.may_on(Action::UpdateIdentity, &identity.id),
        may_delete: caller.may_on(Action::DeleteIdentity, &identity.id),
        path,
        id: identity.id,
        external_id: identity.external_id,
    })
}

async fn making(
    request: &WorkspaceRequest,
    fields: Fields,
    faults: FormErrors,
) -> Result<Form, Failure> {
    Ok(Form {
        shell: Layout::of(request, Section::Identities, "New identity").await?,
        is_new: true,
        fields,
        faults,
        act: request.path("/identities"),
        back: request.path("/identities"),
    })
}

async fn new(request: WorkspaceRequest) -> Answer {
    request.caller.require(Action::CreateIdentity)?;
    let (fields, _) = Fields::filled_in(&request.visit.form);
    page(&making(&request, fields, FormErrors::default()).await?)
}

async fn create(request: WorkspaceRequest) -> Answer {
    request.caller.require(Action::CreateIdentity)?;
    let (fields, is_step) = Fields::filled_in(&request.visit.form);
    if is_step {
        return page(&making(&request, fields, FormErrors::default()).await?);
    }
    let created = match fields.to_create() {
        Ok(body) => {
            let created =
                v2::call::<CreateIdentity>(&request.visit.app, &request.caller, &body).await;
            split_form_errors(created)?
        }
        Err(faults) => Err(faults),
    };
    match created {
        Ok(identity) => redirect_to(&format!(
            "{}?notice=identity-created",
            path(&request, &identity.identity_id)
        )),
        Err(faults) => refused_page(&making(&request, fields, faults).await?),
    }
}

async fn changing(
    request: &WorkspaceRequest,
    identity: &Identity,
    fields: Fields,
    faults: FormErrors,
) -> Result<Form, Failure> {
    let path = path(request, &identity.id);
    Ok(Form {
        shell: Layout::of(request, Section::Identities, "Edit identity").await?,
        is_new: false,
        fields: Fields { external_id: identity.external_id.clone(), ..fields },
        faults,
        act: format!("{path}/edit"),
        back: path,
    })
}

async fn edit(request: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::UpdateIdentity)?;
    let identity = found(&request, IdentityRef::Either(name)).await?;
    let fields = Fields::of(&identity);
    page(&changing(&request, &identity, fields, FormErrors::default()).await?)
}

async fn update(request: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::UpdateIdentity)?;
    let identity = found(&request, IdentityRef::Either(name)).await?;
    let (fields, is_step) = Fields::filled_in(&request.visit.form);
    if is_step {
        return page(&changing(&request, &identity, fields, FormErrors::default()).await?);
    }
    let set = match fields.to_update(&identity) {
        Ok(body) => split_form_errors(
            v2::call::<UpdateIdentity>(&request.visit.app, &request.caller, &body).await,
        )?,
        Err(faults) => Err(faults),
    };
    match set {
        Ok(_) => redirect_to(&format!("{}?notice=identity-updated", path(&request, &identity.id))),
        Err(faults) => refused_page(&changing(&request, &identity, fields, faults).await?),
    }
}

async fn ask_delete(request: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> Answer {
    request.caller.require(Action::DeleteIdentity)?;
    let identity = found(&request, IdentityRef::Either(name)).await?;
    let number = keys::count_of_identity(&request.visit.app, &request.caller, &identity.id).await?;
    let path = path(&request, &identity.id);
    let keys = match number {
        0 => "It has no keys.".to_owned(),
        1 => "Its 1 key remains valid, without the metadata and limits of the identity. The key's permissions do not \
            change; the identity's limits no longer apply."
            .to_owned(),
        number => format!(
            "Its {} keys remain valid, without the metadata and limits of the identity. The keys' permissions do not \
            change; the identity's limits no longer apply.",
            count(number, SIZE_MAX)
        ),
    };
    page(&Confirm {
        shell: Layout::of(&request, Section::Identities, "Delete identity").await?,
        question: format!("Delete {}?", identity.external_id),
        told: vec![
            keys,
            "An identity created later with the same externalId is a new one, without these keys."
                .into(),
        ],
        act: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back: path,
    })
}

async fn delete(request: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> Answer {
    let body = serde_json::json!({ "identity": name });
    v2::call::<DeleteIdentity>(&request.visit.app, &request.caller, &body).await?;
    redirect_to(&request.path("/identities?notice=identity-deleted"))
}
