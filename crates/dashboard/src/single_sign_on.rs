//! Single sign-on: the redirect to the OIDC provider and its callback.
//!
//! Sign-in starts with a link, not a form: the `form-action` policy of the page would also apply to every URL to which
//! the provider redirects the form's browser. The link changes only a cookie. A request from another site is not
//! accepted, because that site could make a user join a workspace unintentionally.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::Response;
use axum::routing::get;
use domain::users;
use domain::users::single_sign_on::{
    self, AuthorizationRequest, SignInPurpose, SsoResult, handle_callback, sign_in_url,
};
use foundation::error::Error;

use super::failure::Failure;
use super::form::Form;
use super::next_page::{find_next, parse_next, with_next};
use super::page_request::PageRequest;
use super::sign_in::{show_rejection, start_session};
use super::{PageResult, form_page, headers, redirect_to};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/login/oidc", get(sign_in))
        .route(single_sign_on::CALLBACK_PATH, get(callback))
        .route("/dashboard/join/{token}/oidc", get(join))
        .route("/dashboard/account/oidc", get(link))
        .route("/dashboard/account/oidc/unlink", form_page(2, "").post(unlink))
}

async fn sign_in(request: PageRequest) -> PageResult {
    if request.session.is_some() || !request.is_same_origin {
        return redirect_to(&with_next("/dashboard/login", find_next(&request)));
    }
    start_authorization(&request, &SignInPurpose::SignIn).await
}

async fn join(request: PageRequest, Path(token): Path<String>) -> PageResult {
    if !request.is_same_origin {
        return Err(Failure::Forged);
    }
    // A valid token contains only characters that a cookie can hold.
    match users::find_invitation(&request.app.context, &token).await? {
        Some(_) => start_authorization(&request, &SignInPurpose::Join(token)).await,
        None => Err(Error::PathNotFound.into()),
    }
}

async fn link(request: PageRequest) -> PageResult {
    request.require_session()?;
    if !request.is_same_origin {
        return Err(Failure::Forged);
    }
    start_authorization(&request, &SignInPurpose::Link).await
}

async fn unlink(request: PageRequest) -> PageResult {
    let known = request.require_session()?;
    single_sign_on::unlink_account(&request.app.users, known, &request.origin).await?;
    redirect_to("/dashboard/account?notice=unlinked")
}

async fn start_authorization(request: &PageRequest, purpose: &SignInPurpose) -> PageResult {
    let secret = AuthorizationRequest::generate_secret();
    let secret = secret.expose();
    let to =
        sign_in_url(&request.app.users, &AuthorizationRequest::from_secret(secret, &request.csrf))
            .await?;
    let mut answer = redirect_to(&to)?;
    let cookie = match purpose {
        SignInPurpose::SignIn => format!("in.{secret}.{}", encode_next(find_next(request))),
        SignInPurpose::Join(token) => format!("join.{secret}.{token}"),
        SignInPurpose::Link => format!("link.{secret}"),
    };
    headers::set_oidc_cookie(&mut answer, &cookie);
    Ok(answer)
}

/// Encodes the page to which the sign-in leads for the cookie.
fn encode_next(next: Option<&str>) -> String {
    form_urlencoded::byte_serialize(next.unwrap_or_default().as_bytes()).collect()
}

/// Reads the page to which the sign-in leads from the cookie.
fn read_next(cookie: &str) -> Option<String> {
    let (_, encoded) = cookie.strip_prefix("in.")?.split_once('.')?;
    let form = Form::parse(format!("next={encoded}").as_bytes());
    parse_next(form.text("next")).map(str::to_owned)
}

/// Reads the authorization request and its purpose from the cookie that was set before the redirect.
fn load_authorization_request(
    request: &PageRequest,
) -> Option<(AuthorizationRequest, SignInPurpose)> {
    let (kind, rest) = request.authorization_cookie.as_deref()?.split_once('.')?;
    let (secret, purpose) = match kind {
        "in" => (rest.split('.').next().unwrap_or_default(), SignInPurpose::SignIn),
        "link" => (rest, SignInPurpose::Link),
        "join" => {
            let (secret, token) = rest.split_once('.')?;
            (secret, SignInPurpose::Join(token.to_owned()))
        }
        _ => return None,
    };
    Some((AuthorizationRequest::from_secret(secret, &request.csrf), purpose))
}

async fn callback(request: PageRequest) -> PageResult {
    let mut answer =
        finish_callback(&request).await.unwrap_or_else(axum::response::IntoResponse::into_response);
    headers::delete_oidc_cookie(&mut answer);
    Ok(answer)
}

async fn finish_callback(request: &PageRequest) -> Result<Response<Body>, Failure> {
    let query = &request.query;
    let params = single_sign_on::CallbackParams {
        state: query.text("state"),
        code: query.text("code"),
        error: query.text("error"),
        issuer: query.text("iss"),
    };
    let (app, known, origin) = (&request.app, request.session.as_ref(), &request.origin);
    match handle_callback(&app.users, load_authorization_request(request), params, known, origin)
        .await?
    {
        SsoResult::SignedIn(signed_in, joined) => {
            let to = match joined {
                Some(workspace) => format!("/dashboard/{workspace}?notice=joined"),
                None => {
                    let next = request.authorization_cookie.as_deref().and_then(read_next);
                    next.unwrap_or_else(|| "/dashboard".to_owned())
                }
            };
            start_session(request, &signed_in, &to).await
        }
        SsoResult::Linked => redirect_to("/dashboard/account?notice=linked"),
        SsoResult::Rejected(rejection) => show_rejection(request, rejection.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_next_returns_the_page_of_the_cookie() {
        let page = "/dashboard/ws_1/keys?q=a.b;c&order=ascending";
        let encoded = encode_next(Some(page));

        assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic() && !b";,\"\\".contains(&byte)));
        assert_eq!(read_next(&format!("in.secret.{encoded}")).as_deref(), Some(page));
    }

    #[test]
    fn read_next_returns_none_without_a_page_of_the_dashboard() {
        let evil = format!("in.secret.{}", encode_next(Some("//evil.example")));

        for cookie in ["in.secret", "in.secret.", "link.secret", &evil] {
            assert_eq!(read_next(cookie), None, "{cookie}");
        }
    }
}
