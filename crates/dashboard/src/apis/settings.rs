//! The settings of an API.

use askama::Template;
use axum::extract::Path;
use domain::apis::{self, ApiChange};
use domain::keys::Patch;
use domain::permission::Action;
use foundation::id::ApiId;
use foundation::model::{Api, Networks};

use super::super::form::{Form, FormErrors, split_form_errors};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page, render_page};

#[derive(Template)]
#[template(path = "apis/settings.html")]
struct ApiSettingsPage {
    layout: Layout,
    workspace: String,
    id: ApiId,
    /// The current name of the API.
    title: String,
    form: ApiSettingsForm,
    original: ApiSettingsForm,
    errors: FormErrors,
}

/// The form, as submitted.
#[derive(Clone)]
struct ApiSettingsForm {
    name: String,
    prefix: String,
    bytes: String,
    networks: String,
    is_recoverable: bool,
    is_protected: bool,
}

impl ApiSettingsForm {
    fn from_api(api: &Api) -> Self {
        let settings = &api.settings;
        let networks = settings.allowed_networks.as_ref().map(Networks::to_strings);
        Self {
            name: api.name.clone(),
            prefix: settings.default_prefix.clone().unwrap_or_default(),
            bytes: settings.default_byte_length.map_or_else(String::new, |n| n.to_string()),
            networks: networks.unwrap_or_default().join(", "),
            is_recoverable: settings.allows_recoverable_keys,
            is_protected: settings.is_delete_protected,
        }
    }

    /// Reads the fields with a name prefix: the empty prefix for the submitted values, `was-` for the original ones.
    fn from_form(form: &Form, before: &str) -> Self {
        let text = |name: &str| form.text(&format!("{before}{name}")).trim().to_owned();
        Self {
            name: text("name"),
            prefix: text("prefix"),
            bytes: text("bytes"),
            networks: text("networks"),
            is_recoverable: text("recoverable") == "on",
            is_protected: text("protected") == "on",
        }
    }

    /// Returns only the changed settings, so that concurrent changes of others are kept.
    fn change_from(&self, was: &Self) -> ApiChange {
        let changed = |now: &String, was: &String| (now != was).then(|| now.clone());
        ApiChange {
            name: changed(&self.name, &was.name),
            default_prefix: changed(&self.prefix, &was.prefix),
            default_byte_length: match changed(&self.bytes, &was.bytes) {
                None => Patch::Keep,
                Some(none) if none.is_empty() => Patch::Clear,
                // Text that is not a number becomes 0, which is out of bounds.
                Some(text) => Patch::Set(text.parse().unwrap_or(0)),
            },
            recoverable_keys: (self.is_recoverable != was.is_recoverable)
                .then_some(self.is_recoverable),
            delete_protection: (self.is_protected != was.is_protected).then_some(self.is_protected),
            allowed_networks: changed(&self.networks, &was.networks),
        }
    }
}

async fn build_form(
    request: &WorkspaceRequest,
    api: &Api,
    filled: Option<(ApiSettingsForm, ApiSettingsForm)>,
    errors: FormErrors,
) -> Result<ApiSettingsPage, super::Failure> {
    let (filled, was) =
        filled.unwrap_or_else(|| (ApiSettingsForm::from_api(api), ApiSettingsForm::from_api(api)));
    Ok(ApiSettingsPage {
        layout: Layout::for_workspace(request, Section::Apis, "API settings")
            .await?
            .about(&api.name),
        workspace: request.membership.workspace_id.to_string(),
        id: api.id.clone(),
        title: api.name.clone(),
        form: filled,
        original: was,
        errors,
    })
}

pub async fn show(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    request.caller.require_on(Action::UpdateApi, &id)?;
    let api =
        apis::get(&request.page_request.app.context, &request.caller, &ApiId::from(id)).await?;
    render_page(&build_form(&request, &api, None, FormErrors::default()).await?)
}

pub async fn save(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let (app, form) = (&request.page_request.app, &request.page_request.form);
    let (filled, was) =
        (ApiSettingsForm::from_form(form, ""), ApiSettingsForm::from_form(form, "was-"));
    let id = ApiId::from(id);
    let change = filled.change_from(&was);
    match split_form_errors(apis::update(&app.context, &request.caller, &id, change).await)? {
        Ok(api) => {
            redirect_to(&request.workspace_path(&format!("/apis/{}?notice=api-updated", api.id)))
        }
        Err(errors) => {
            let api = apis::get(&app.context, &request.caller, &id).await?;
            render_invalid_page(&build_form(&request, &api, Some((filled, was)), errors).await?)
        }
    }
}
