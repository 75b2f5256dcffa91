//! The settings of an API.

use askama::Template;
use axum::extract::Path;
use foundation::id::ApiId;
use foundation::model::{Api, Networks};

use super::super::form::{Form, FormErrors, split_form_errors};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page, redirect_to, refused_page};
use crate::domain::apis::{self, ApiChange, PREFIX_MAX};
use crate::domain::keys::Patch;
use crate::domain::permission::Action;

#[derive(Template)]
#[template(path = "apis/settings.html")]
struct Page {
    shell: Layout,
    workspace: String,
    id: ApiId,
    /// The current name of the API.
    title: String,
    filled: Filled,
    was: Filled,
    prefix_max: usize,
    faults: FormErrors,
}

/// The form, as submitted.
#[derive(Clone)]
struct Filled {
    name: String,
    prefix: String,
    bytes: String,
    networks: String,
    is_recoverable: bool,
    is_protected: bool,
}

impl Filled {
    fn of(api: &Api) -> Self {
        let settings = &api.settings;
        let networks = settings.allowed_networks.as_ref().map(Networks::texts);
        Self {
            name: api.name.clone(),
            prefix: settings.default_prefix.clone().unwrap_or_default(),
            bytes: settings.default_byte_length.map_or_else(String::new, |n| n.to_string()),
            networks: networks.unwrap_or_default().join(", "),
            is_recoverable: settings.recoverable_keys,
            is_protected: settings.delete_protection,
        }
    }

    /// Reads the fields with a name prefix: the empty prefix for the submitted values, `was-` for the original ones.
    fn read(form: &Form, before: &str) -> Self {
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

async fn shown(
    request: &WorkspaceRequest,
    api: &Api,
    filled: Option<(Filled, Filled)>,
    faults: FormErrors,
) -> Result<Page, super::Failure> {
    let (filled, was) = filled.unwrap_or_else(|| (Filled::of(api), Filled::of(api)));
    Ok(Page {
        shell: Layout::of(request, Section::Apis, "API settings").await?,
        workspace: request.membership.workspace_id.to_string(),
        id: api.id.clone(),
        title: api.name.clone(),
        filled,
        was,
        prefix_max: PREFIX_MAX,
        faults,
    })
}

pub async fn page_of(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    request.caller.require_on(Action::UpdateApi, &id)?;
    let api = apis::get(&request.visit.app, &request.caller, &ApiId::from(id)).await?;
    page(&shown(&request, &api, None, FormErrors::default()).await?)
}

pub async fn set(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let (app, form) = (&request.visit.app, &request.visit.form);
    let (filled, was) = (Filled::read(form, ""), Filled::read(form, "was-"));
    let id = ApiId::from(id);
    let change = filled.change_from(&was);
    match split_form_errors(apis::change(app, &request.caller, &id, change).await)? {
        Ok(api) => redirect_to(&request.path(&format!("/apis/{}?notice=api-updated", api.id))),
        Err(faults) => {
            let api = apis::get(app, &request.caller, &id).await?;
            refused_page(&shown(&request, &api, Some((filled, was)), faults).await?)
        }
    }
}
