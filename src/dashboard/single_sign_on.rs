//! Single sign-on: the way to the issuer and back.
//!
//! The way there is a link and no form: the policy of pages (`form-action`) would hold for every address that the issuer
//! sends a form's browser on to. It changes nothing but a cookie, and nobody is sent by another site: that could have
//! somebody join what they did not mean to.

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

async fn sign_in(visit: PageRequest) -> Answer {
    if visit.known.is_some() || !visit.is_from_here {
        return redirect_to("/dashboard/login");
    }
    go(&visit, &Purpose::SignIn).await
}

async fn join(visit: PageRequest, Path(token): Path<String>) -> Answer {
    if !visit.is_from_here {
        return Err(Failure::Forged);
    }
    // A token that is good holds nothing that a cookie cannot.
    match users::find_invitation(&visit.app, &token).await? {
        Some(_) => go(&visit, &Purpose::Join(token)).await,
        None => Err(Error::NoSuchPath.into()),
    }
}

async fn link(visit: PageRequest) -> Answer {
    visit.signed_in()?;
    if !visit.is_from_here {
        return Err(Failure::Forged);
    }
    go(&visit, &Purpose::Link).await
}

async fn unlink(visit: PageRequest) -> Answer {
    let known = visit.signed_in()?;
    single_sign_on::unlink(&visit.app, known, &visit.origin).await?;
    redirect_to("/dashboard/account?notice=unlinked")
}

async fn go(visit: &PageRequest, purpose: &Purpose) -> Answer {
    let secret = AuthorizationRequest::secret();
    let secret = secret.expose();
    let to = sign_in_url(&visit.app, &AuthorizationRequest::of(secret, &visit.csrf)).await?;
    let mut answer = redirect_to(&to)?;
    let kept = match purpose {
        Purpose::SignIn => format!("in.{secret}"),
        Purpose::Join(token) => format!("join.{secret}.{token}"),
        Purpose::Link => format!("link.{secret}"),
    };
    headers::keep_trip(&mut answer, &kept);
    Ok(answer)
}

/// What [`go`] had the browser keep.
fn trip(visit: &PageRequest) -> Option<(AuthorizationRequest, Purpose)> {
    let (kind, rest) = visit.trip.as_deref()?.split_once('.')?;
    let (secret, purpose) = match kind {
        "in" => (rest, Purpose::SignIn),
        "link" => (rest, Purpose::Link),
        "join" => {
            let (secret, token) = rest.split_once('.')?;
            (secret, Purpose::Join(token.to_owned()))
        }
        _ => return None,
    };
    Some((AuthorizationRequest::of(secret, &visit.csrf), purpose))
}

async fn back(visit: PageRequest) -> Answer {
    let mut answer =
        arrived(&visit).await.unwrap_or_else(axum::response::IntoResponse::into_response);
    headers::forget_trip(&mut answer);
    Ok(answer)
}

async fn arrived(visit: &PageRequest) -> Result<Response<Body>, Failure> {
    let query = &visit.query;
    let heard = single_sign_on::Answer {
        state: query.text("state"),
        code: query.text("code"),
        error: query.text("error"),
        issuer: query.text("iss"),
    };
    let (app, known, origin) = (&visit.app, visit.known.as_ref(), &visit.origin);
    match handle_callback(app, trip(visit), heard, known, origin).await? {
        SsoResult::In(signed_in, joined) => {
            // Whoever was signed in here before is not any more.
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
        SsoResult::Refused(stranger) => refused(visit, stranger.to_string()),
    }
}
