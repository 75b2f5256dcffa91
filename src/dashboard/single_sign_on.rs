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

use super::failure::Failure;
use super::sign_in::refused;
use super::visit::Visit;
use super::{Answer, headers, see};
use crate::domain::people;
use crate::domain::people::single_sign_on::{
    self, Arrival, Purpose, Trip, came_back, way_to_issuer,
};
use crate::error::Error;

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/login/oidc", get(sign_in))
        .route(single_sign_on::CALLBACK, get(back))
        .route("/dashboard/join/{token}/oidc", get(join))
        .route("/dashboard/account/oidc", get(link))
        .route("/dashboard/account/oidc/unlink", post(unlink))
}

async fn sign_in(visit: Visit) -> Answer {
    if visit.known.is_some() || !visit.is_from_here {
        return see("/dashboard/login");
    }
    go(&visit, &Purpose::SignIn).await
}

async fn join(visit: Visit, Path(token): Path<String>) -> Answer {
    if !visit.is_from_here {
        return Err(Failure::Forged);
    }
    // A token that is good holds nothing that a cookie cannot.
    match people::opened(&visit.app, &token).await? {
        Some(_) => go(&visit, &Purpose::Join(token)).await,
        None => Err(Error::NoSuchPath.into()),
    }
}

async fn link(visit: Visit) -> Answer {
    visit.signed_in()?;
    if !visit.is_from_here {
        return Err(Failure::Forged);
    }
    go(&visit, &Purpose::Link).await
}

async fn unlink(visit: Visit) -> Answer {
    let known = visit.signed_in()?;
    single_sign_on::unlink(&visit.app, known, &visit.origin).await?;
    see("/dashboard/account?told=unlinked")
}

async fn go(visit: &Visit, purpose: &Purpose) -> Answer {
    let secret = Trip::secret();
    let secret = secret.expose();
    let to = way_to_issuer(&visit.app, &Trip::of(secret, &visit.csrf)).await?;
    let mut answer = see(&to)?;
    let kept = match purpose {
        Purpose::SignIn => format!("in.{secret}"),
        Purpose::Join(token) => format!("join.{secret}.{token}"),
        Purpose::Link => format!("link.{secret}"),
    };
    headers::keep_trip(&mut answer, &kept);
    Ok(answer)
}

/// What [`go`] had the browser keep.
fn trip(visit: &Visit) -> Option<(Trip, Purpose)> {
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
    Some((Trip::of(secret, &visit.csrf), purpose))
}

async fn back(visit: Visit) -> Answer {
    let mut answer =
        arrived(&visit).await.unwrap_or_else(axum::response::IntoResponse::into_response);
    headers::forget_trip(&mut answer);
    Ok(answer)
}

async fn arrived(visit: &Visit) -> Result<Response<Body>, Failure> {
    let query = &visit.query;
    let heard = single_sign_on::Answer {
        state: query.text("state"),
        code: query.text("code"),
        error: query.text("error"),
        issuer: query.text("iss"),
    };
    let (app, known, origin) = (&visit.app, visit.known.as_ref(), &visit.origin);
    match came_back(app, trip(visit), heard, known, origin).await? {
        Arrival::In(signed_in, joined) => {
            // Whoever was signed in here before is not any more.
            if let Some(known) = known {
                people::sign_out(app, known, origin).await?;
            }
            let mut answer = match joined {
                Some(workspace) => see(&format!("/dashboard/{workspace}?told=joined"))?,
                None => see("/dashboard")?,
            };
            headers::keep_session(&mut answer, signed_in.token.expose());
            Ok(answer)
        }
        Arrival::Linked => see("/dashboard/account?told=linked"),
        Arrival::Refused(stranger) => refused(visit, stranger.to_string()),
    }
}
