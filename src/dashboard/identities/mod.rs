//! Identities: the customer's own users, their limits and their keys.
//!
//! Pages are found by the identity's id. An externalId may be any text, so where one is given instead, percent-encoded in
//! the path or as a query, the visitor is sent on to the page of the id.

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
        // No page stands where an externalId could: any word can be one.
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
    /// Absent: there is none. Whether there is more of it than is shown.
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

async fn list(asked: WorkspaceRequest) -> Answer {
    let path = asked.path("/identities");
    let (app, caller) = (&asked.visit.app, &asked.caller);
    let found = identities::list(app, caller, None, &paging(&asked)).await?;
    page(&List {
        shell: Layout::of(&asked, Section::Identities, "Identities").await?,
        workspace: asked.membership.workspace_id.to_string(),
        pages: Pages::new(&asked, &path, found.next.as_deref()),
        path,
        rows: found.items,
        search: asked.visit.query.text("q"),
        may_create: may(&asked, Action::CreateIdentity),
    })
}

async fn found(asked: &WorkspaceRequest, called: IdentityRef) -> Result<Identity, Error> {
    identities::get(&asked.visit.app, &asked.caller, &called).await
}

/// The page of an identity.
fn path(asked: &WorkspaceRequest, id: &IdentityId) -> String {
    asked.path(&format!("/identities/{id}"))
}

/// Sends on to the identity of an externalId, whatever characters that has.
async fn named(asked: WorkspaceRequest) -> Answer {
    let external_id = asked.visit.query.text("externalId").to_owned();
    let identity = found(&asked, IdentityRef::ExternalId(external_id)).await?;
    redirect_to(&path(&asked, &identity.id))
}

async fn show(asked: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> Answer {
    let (app, caller) = (&asked.visit.app, &asked.caller);
    let identity = found(&asked, IdentityRef::Either(name.clone())).await?;
    let path = path(&asked, &identity.id);
    if identity.id.as_str() != name {
        return redirect_to(&path);
    }
    let number = keys::count_of_identity(app, caller, &identity.id).await?;
    let paging = Paging { search: String::new(), ..paging(&asked) };
    let listed = keys::of_identity(app, caller, &identity.id, &paging).await?;
    let now = app.clock.now();
    page(&Show {
        shell: Layout::of(&asked, Section::Identities, "Identity").await?,
        workspace: asked.membership.workspace_id.to_string(),
        keys: count(number, SIZE_MAX),
        meta: fields::shown(identity.meta.as_ref()),
        limits: identity.ratelimits.into_iter().map(LimitRow::new).collect(),
        pages: Pages::new(&asked, &path, listed.next.as_deref()),
        rows: listed.items.into_iter().map(|key| KeyRow::new(key, now)).collect(),
        may_change: caller.may_on(Action::UpdateIdentity, &identity.id),
        may_delete: caller.may_on(Action::DeleteIdentity, &identity.id),
        path,
        id: identity.id,
        external_id: identity.external_id,
    })
}

async fn making(
    asked: &WorkspaceRequest,
    fields: Fields,
    faults: FormErrors,
) -> Result<Form, Failure> {
    Ok(Form {
        shell: Layout::of(asked, Section::Identities, "New identity").await?,
        is_new: true,
        fields,
        faults,
        act: asked.path("/identities"),
        back: asked.path("/identities"),
    })
}

async fn new(asked: WorkspaceRequest) -> Answer {
    asked.caller.require(Action::CreateIdentity)?;
    let (fields, _) = Fields::filled_in(&asked.visit.form);
    page(&making(&asked, fields, FormErrors::default()).await?)
}

async fn create(asked: WorkspaceRequest) -> Answer {
    asked.caller.require(Action::CreateIdentity)?;
    let (fields, is_step) = Fields::filled_in(&asked.visit.form);
    if is_step {
        return page(&making(&asked, fields, FormErrors::default()).await?);
    }
    let made = match fields.to_create() {
        Ok(request) => {
            let made = v2::call::<CreateIdentity>(&asked.visit.app, &asked.caller, &request).await;
            split_form_errors(made)?
        }
        Err(faults) => Err(faults),
    };
    match made {
        Ok(made) => {
            redirect_to(&format!("{}?notice=identity-created", path(&asked, &made.identity_id)))
        }
        Err(faults) => refused_page(&making(&asked, fields, faults).await?),
    }
}

async fn changing(
    asked: &WorkspaceRequest,
    identity: &Identity,
    fields: Fields,
    faults: FormErrors,
) -> Result<Form, Failure> {
    let path = path(asked, &identity.id);
    Ok(Form {
        shell: Layout::of(asked, Section::Identities, "Change an identity").await?,
        is_new: false,
        fields: Fields { external_id: identity.external_id.clone(), ..fields },
        faults,
        act: format!("{path}/edit"),
        back: path,
    })
}

async fn edit(asked: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::UpdateIdentity)?;
    let identity = found(&asked, IdentityRef::Either(name)).await?;
    let fields = Fields::of(&identity);
    page(&changing(&asked, &identity, fields, FormErrors::default()).await?)
}

async fn update(asked: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::UpdateIdentity)?;
    let identity = found(&asked, IdentityRef::Either(name)).await?;
    let (fields, is_step) = Fields::filled_in(&asked.visit.form);
    if is_step {
        return page(&changing(&asked, &identity, fields, FormErrors::default()).await?);
    }
    let set = match fields.to_update(&identity) {
        Ok(request) => split_form_errors(
            v2::call::<UpdateIdentity>(&asked.visit.app, &asked.caller, &request).await,
        )?,
        Err(faults) => Err(faults),
    };
    match set {
        Ok(_) => redirect_to(&format!("{}?notice=identity-updated", path(&asked, &identity.id))),
        Err(faults) => refused_page(&changing(&asked, &identity, fields, faults).await?),
    }
}

async fn ask_delete(asked: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> Answer {
    asked.caller.require(Action::DeleteIdentity)?;
    let identity = found(&asked, IdentityRef::Either(name)).await?;
    let number = keys::count_of_identity(&asked.visit.app, &asked.caller, &identity.id).await?;
    let path = path(&asked, &identity.id);
    let keys = match number {
        0 => "No key has it.".to_owned(),
        1 => "1 key has it, and goes on without its meta and its limits: what it may be used for does not change, what \
            the identity limited is limited no more."
            .to_owned(),
        number => format!(
            "{} keys have it, and go on without its meta and its limits: what they may be used for does not change, \
            what the identity limited is limited no more.",
            count(number, SIZE_MAX)
        ),
    };
    page(&Confirm {
        shell: Layout::of(&asked, Section::Identities, "Delete an identity").await?,
        question: format!("Delete {}?", identity.external_id),
        told: vec![
            keys,
            "An identity that is made later with the same externalId is another one, and has none of these keys.".into(),
        ],
        act: format!("{path}/delete"),
        fields: Vec::new(),
        button: "Delete",
        back: path,
    })
}

async fn delete(asked: WorkspaceRequest, Path((_, name)): Path<(String, String)>) -> Answer {
    let request = serde_json::json!({ "identity": name });
    v2::call::<DeleteIdentity>(&asked.visit.app, &asked.caller, &request).await?;
    redirect_to(&asked.path("/identities?notice=identity-deleted"))
}
