//! The forms that create an API, a root key and a key.

use domain::apis;
use domain::permission::Action;
use domain::root_keys::{self, NewRootKey};
use foundation::id::ApiId;
use futures_util::TryFutureExt as _;

use super::super::apis::create_from_form;
use super::super::form::split_form_errors;
use super::super::keys::issue_named;
use super::super::one_time_form::{create_once, redirect_to_secret};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, redirect_to, render_invalid_page};
use super::{GetStartedPage, require_api};

/// The name of the key that is created here.
const KEY_NAME: &str = "First key";

pub async fn create_api(request: WorkspaceRequest) -> PageResult {
    match split_form_errors(create_once(&request, create_from_form(&request)).await)? {
        Ok(_) => redirect_to(&request.workspace_path("/get-started?notice=first-api")),
        Err(errors) => {
            let base_url = &request.page_request.base_url;
            let mut page = GetStartedPage::new(&request, base_url).await?;
            request.page_request.form.text("name").clone_into(&mut page.api_name);
            page.errors = errors;
            render_invalid_page(&page)
        }
    }
}

/// Creates a root key that can only verify keys of one API.
pub async fn create_root_key(request: WorkspaceRequest) -> PageResult {
    request.caller.require(Action::CreateRootKey)?;
    let context = &request.page_request.app.context;
    let api: ApiId = require_api(&request)?;
    let api = apis::get(context, &request.caller, &api).await?;
    let new = NewRootKey {
        name: Some(name_root_key(&api.name)),
        permissions: vec![Action::VerifyKey.to_tuple(api.id.as_str())],
        expires_at: None,
    };
    let creation = root_keys::create(context, &request.caller, new).map_ok(|(key, _)| key.id);
    let id = create_once(&request, creation).await?;
    redirect_to_secret(&request, &format!("/get-started/root-keys/{id}"))
}

/// Names a root key after the API whose keys it verifies.
fn name_root_key(api_name: &str) -> String {
    let ending = " service";
    let length_max = root_keys::NAME_MAX - ending.len();
    api_name.chars().take(length_max).collect::<String>() + ending
}

pub async fn create_key(request: WorkspaceRequest) -> PageResult {
    let api = require_api(&request)?;
    request.caller.require_on(Action::CreateKey, &api)?;
    let id = create_once(&request, issue_named(&request, &api, KEY_NAME)).await?;
    redirect_to_secret(&request, &format!("/get-started/keys/{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_root_key_is_within_its_bound() {
        assert_eq!(name_root_key("payments"), "payments service");
        for length in [247, 248, 255] {
            let name = name_root_key(&"é".repeat(length));
            assert_eq!(name.chars().count(), (length + 8).min(root_keys::NAME_MAX), "{length}");
        }
    }
}
