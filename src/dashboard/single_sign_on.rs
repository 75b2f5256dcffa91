//! Single sign-on: the redirect to the OIDC provider and its callback.
//!
//! Sign-in starts with a link, not a form: the `form-action` policy of the page would also apply to every URL to which
//! the provider redirects the form's browser. The link changes only a cookie. A request from another site is not
//! accepted, because that site could make a user join a workspace unintentionally.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::Response;
use axum::routing::{get, post};
use foundation::error::Error;

use super::failure::Failure;
use super::page_request::PageRequest;
use super::sign_in::refused;
use super::{Answer, headers, redirect_to};
use crate::domain::users;
use crate::domain::users::single_sign_on::{
    self, AuthorizationRequest, Purpose, SsoResult, handle_callback, sign_in_url,
};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/login/oidc", get(sign_in))
        .route(single_sign_on::CALLBACK, get(back))
        .route("/dashboard/join/{token}/oidc", get(join))
        .route("/dashboard/account/oidc", get(link))
        .route("/dashboard/account/oidc/unlink", post(unlink))
}

async fn sign_in(request: PageRequest) -> Answer {
    if request.known.is_some() || !request.is_from_here {
        return redirect_to("/dashboard/login");
    }
    go(&request, &Purpose::SignIn).await
}

async fn join(request: PageRequest, Path(token): Path<String>) -> Answer {
    if !request.is_from_here {
        return Err(Failure::Forged);
    }
    // A valid token contains only characters that a cookie can hold.
    match users::find_invitation(&request.app, &token).await? {
        Some(_) => go(&request, &Purpose::Join(token)).await,
        None => Err(Error::NoSuchPath.into()),
    }
}

async fn link(request: PageRequest) -> Answer {
    request.signed_in()?;
    if !request.is_from_here {
        return Err(Failure::Forged);
    }
    go(&request, &Purpose::Link).await
}

async fn unlink(request: PageRequest) -> Answer {
    let known = request.signed_in()?;
    single_sign_on::unlink(&request.app, known, &request.origin).await?;
    redirect_to("/dashboard/account?notice=unlinked")
}

async fn go(request: &PageRequest, purpose: &Purpose) -> Answer {
    let secret = AuthorizationRequest::secret();
    let secret = secret.expose();
    let to = sign_in_url(&request.app, &AuthorizationRequest::of(secret, &request.csrf)).await?;
    let mut answer = redirect_to(&to)?;
    let cookie = match purpose {
        Purpose::SignIn => format!("in.{secret}"),
        Purpose::Join(token) => format!("join.{secret}.{token}"),
        Purpose::Link => format!("link.{secret}"),
    };
    headers::keep_trip(&mut answer, &cookie);
    Ok(answer)
}

/// Reads the authorization request and its purpose from the cookie that was set before the redirect.
fn trip(request: &PageRequest) -> Option<(AuthorizationRequest, Purpose)> {
    let (kind, rest) = request.trip.as_deref()?.split_once('.')?;
    let (secret, purpose) = match kind {
        "in" => (rest, Purpose::SignIn),
        "link" => (rest, Purpose::Link),
        "join" => {
            let (secret, token) = rest.split_once('.')?;
            (secret, Purpose::Join(token.to_owned()))
        }
        _ => return None,
    };
    Some((AuthorizationRequest::of(secret, &request.csrf), purpose))
}

async fn back(request: PageRequest) -> Answer {
    let mut answer =
        arrived(&request).await.unwrap_or_else(axum::response::IntoResponse::into_response);
    headers::forget_trip(&mut answer);
    Ok(answer)
}

async fn arrived(request: &PageRequest) -> Result<Response<Body>, Failure> {
    let query = &request.query;
    let params = single_sign_on::Answer {
        state: query.text("state"),
        code: query.text("code"),
        error: query.text("error"),
        issuer: query.text("iss"),
    };
    let (app, known, origin) = (&request.app, request.known.as_ref(), &request.origin);
    match handle_callback(app, trip(request), params, known, origin).await? {
        SsoResult::In(signed_in, joined) => {
            // The previous session of this browser ends.
            if let Some(known) = known {
                users::sign_out(app, known, origin).await?;
            }
            let mut answer = match joined {
                Some(workspace) => redirect_to(&format!("/dashboard/{workspace}?notice=joined"))?,
                None => redirect_to("/dashboard")?,
            };
            headers::keep_session(&mut answer, signed_in.token.expose());
            Ok(answer)
        }
        SsoResult::Linked => redirect_to("/dashboard/account?notice=linked"),
        SsoResult::Refused(rejection) => refused(request, rejection.to_string()),
    }
}
