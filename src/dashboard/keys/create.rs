//! Creating a key.

use askama::Template;
use foundation::error::Error;
use foundation::id::ApiId;
use foundation::model::Api;

use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page, refused_page};
use super::fields::{EXPIRES, Fields, REFILLS};
use super::{Choice, choices, made, misnamed};
use crate::domain::apis;
use crate::domain::permission::Action;
use crate::rpc::IssuedReply;
use crate::rpc::v2::call;
use crate::rpc::v2::keys::create_key::CreateKey;

#[derive(Template)]
#[template(path = "keys/pick_api.html")]
struct PickApi {
    shell: Layout,
    workspace: String,
    apis: Vec<Choice>,
}

#[derive(Template)]
#[template(path = "keys/new.html")]
struct New {
    shell: Layout,
    workspace: String,
    api: ApiId,
    api_name: String,
    /// The default prefix of the API.
    prefix: String,
    bytes: String,
    may_be_recovered: bool,
    fields: Fields,
    faults: FormErrors,
}

async fn making(
    request: &WorkspaceRequest,
    api: Api,
    mut fields: Fields,
    faults: FormErrors,
) -> Result<New, Failure> {
    fields.limits = fields.limits.or_blank();
    let settings = api.settings;
    Ok(New {
        shell: Layout::of(request, Section::Keys, "New key").await?,
        workspace: request.membership.workspace_id.to_string(),
        may_be_recovered: settings.recoverable_keys
            && request.caller.may_on(Action::EncryptKey, &api.id),
        prefix: settings.default_prefix.unwrap_or_else(|| "none".into()),
        bytes: settings.default_byte_length.map_or_else(|| "16".into(), |n| n.to_string()),
        api: api.id,
        api_name: api.name,
        fields,
        faults,
    })
}

pub async fn new(request: WorkspaceRequest) -> Answer {
    let id = request.visit.query.text("api");
    if id.is_empty() {
        request.caller.require(Action::CreateKey)?;
        return page(&PickApi {
            shell: Layout::of(&request, Section::Keys, "New key").await?,
            workspace: request.membership.workspace_id.to_string(),
            apis: choices(&request, "").await?,
        });
    }
    let id = ApiId::from(id);
    request.caller.require_on(Action::CreateKey, &id)?;
    let api = apis::get(&request.visit.app, &request.caller, &id).await?;
    let fields = Fields { is_enabled: true, ..Fields::default() };
    page(&making(&request, api, fields, FormErrors::default()).await?)
}

pub async fn create(request: WorkspaceRequest) -> Answer {
    let (app, form) = (&request.visit.app, &request.visit.form);
    let id = ApiId::from(form.text("api"));
    request.caller.require_on(Action::CreateKey, &id)?;
    let api = apis::get(app, &request.caller, &id).await?;
    let (fields, is_step) = Fields::read(form);
    if is_step {
        return page(&making(&request, api, fields, FormErrors::default()).await?);
    }
    match split_form_errors(issued(&request, &id, &fields).await)? {
        Ok(issued) => made(&request, &issued, &fields.name, None).await,
        Err(faults) => refused_page(&making(&request, api, fields, faults).await?),
    }
}

async fn issued(
    request: &WorkspaceRequest,
    api: &ApiId,
    fields: &Fields,
) -> Result<IssuedReply, Error> {
    let app = &request.visit.app;
    let body = fields.to_create(api.as_str(), app.clock.now())?;
    call::<CreateKey>(app, &request.caller, &body).await.map_err(misnamed)
}
