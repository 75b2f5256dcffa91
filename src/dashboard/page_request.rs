//! Who asks for a page, and whether the request may come from where it comes.
//!
//! A form is taken only from a page of this server: the browser says so in `Sec-Fetch-Site` and `Origin`, and the form
//! shows a token that is made from the visitor's cookie, which no other page can read.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use foundation::error::Error;
use foundation::id::WorkspaceId;
use foundation::model::Membership;
use foundation::secret::{KeyHash, Plaintext};

use super::failure::Failure;
use super::form::Form;
use super::headers::{GUEST, SESSION, TRIP, cookie};
use super::{FORM_BYTES_MAX, imports};
use crate::app::App;
use crate::domain::caller::{Caller, ClientInfo};
use crate::domain::users::{self, AuthenticatedSession};
use crate::request::{address, body, user_agent};

/// Random bytes in the token of a guest.
const GUEST_BYTES: u8 = 16;
/// The field of a form that shows the token.
const CSRF: &str = "csrf";

/// A request for a page.
#[derive(Clone)]
pub struct PageRequest {
    pub app: Arc<App>,
    pub origin: ClientInfo,
    /// Absent: not signed in.
    pub known: Option<AuthenticatedSession>,
    /// What the forms of the page show.
    pub csrf: String,
    pub query: Form,
    /// What was sent; empty but for a POST.
    pub form: Form,
    /// Where the visitor's browser reaches this server, as far as it says so.
    pub base_url: String,
    /// Whether the browser says that it was a page of this server that asked, or the person.
    pub is_from_here: bool,
    /// What the browser keeps of its way to the issuer of single sign-on.
    pub trip: Option<String>,
    /// A guest who has no token yet gets this one.
    guest: Option<Plaintext>,
    /// Whether the browser showed the cookie of a session that is over.
    is_over: bool,
}

impl PageRequest {
    pub async fn begin(app: &Arc<App>, head: &Parts) -> Result<Self, Failure> {
        let headers = &head.headers;
        let trusted = app.settings.trusted_proxies.as_ref();
        let origin = ClientInfo {
            address: address::of_client(trusted, headers),
            user_agent: user_agent(headers),
        };
        let session = cookie(headers, SESSION);
        let known = match session {
            Some(token) => users::authenticate_session(app, token, &origin).await?,
            None => None,
        };
        let mut guest = None;
        let secret = match (session.filter(|_| known.is_some()), cookie(headers, GUEST)) {
            (Some(token), _) | (None, Some(token)) => csrf(token),
            (None, None) => {
                let token = guest.insert(Plaintext::random(None, GUEST_BYTES));
                csrf(token.expose())
            }
        };
        Ok(Self {
            app: app.clone(),
            origin,
            is_over: session.is_some() && known.is_none(),
            known,
            csrf: secret,
            query: Form::parse(head.uri.query().unwrap_or_default().as_bytes()),
            form: Form::default(),
            base_url: app.settings.public_url.clone(),
            is_from_here: is_from_here(headers, &app.settings.public_url),
            trip: cookie(headers, TRIP).map(str::to_owned),
            guest,
        })
    }

    /// The token that a guest is to keep from now on.
    pub fn fresh_guest(&self) -> Option<String> {
        self.guest.as_ref().map(|token| token.expose().to_owned())
    }

    /// Reads the form of a POST, if it may come from where it comes.
    pub async fn read_form(&mut self, head: &Parts, body: Body) -> Result<(), Failure> {
        let headers = &head.headers;
        let is_form = headers.get(CONTENT_TYPE).is_some_and(|kind| {
            kind.as_bytes().to_ascii_lowercase().starts_with(b"application/x-www-form-urlencoded")
        });
        if !is_form || !self.is_from_here {
            body::discard_body(body).await;
            return Err(Failure::Forged);
        }
        if let Some(origin) = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()) {
            origin.clone_into(&mut self.base_url);
        }
        let max = match &self.known {
            Some(_) => imports::form_bytes_max(head.uri.path()).unwrap_or(FORM_BYTES_MAX),
            None => FORM_BYTES_MAX,
        };
        self.form = Form::parse(&body::read(body, max).await?);
        // Compared by their hashes, which nobody can steer towards each other.
        if KeyHash::of(self.form.text(CSRF)) == KeyHash::of(&self.csrf) {
            return Ok(());
        }
        if self.is_over {
            return Err(Failure::SignIn);
        }
        if self.guest.is_some() {
            return Err(Failure::NoCookies);
        }
        Err(Failure::Forged)
    }

    /// How single sign-on is called, where there is one.
    pub fn issuer(&self) -> Option<&str> {
        self.app.settings.oidc.as_ref().map(|oidc| oidc.name.as_str())
    }

    /// Who is signed in; else the page that asks for it.
    pub fn signed_in(&self) -> Result<&AuthenticatedSession, Failure> {
        self.known.as_ref().ok_or(Failure::SignIn)
    }
}

/// What the forms of somebody with this cookie show.
fn csrf(token: &str) -> String {
    KeyHash::of(format!("csrf\n{token}")).hex()
}

/// Whether a form was sent by a page of this server, as far as the browser says.
fn is_from_here(headers: &HeaderMap, public_url: &str) -> bool {
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_ascii_lowercase();
    let site = headers.get("sec-fetch-site").map(text);
    let origin = headers.get(ORIGIN).map(text);
    let host = headers.get(HOST).map(text).unwrap_or_default();
    let is_same_site = site.as_deref().map(|site| site == "same-origin" || site == "none");
    let is_same_origin = origin.as_deref().map(|origin| {
        let named = origin.split_once("://").map(|(_, host)| host);
        named == Some(host.as_str()) || origin == public_url.to_ascii_lowercase()
    });
    match (is_same_site, is_same_origin) {
        // A browser that tells neither is none that a page could misuse, or is too old to be safe with.
        (None, None) => false,
        (site, origin) => site.unwrap_or(true) && origin.unwrap_or(true),
    }
}

impl<S: Sync> FromRequestParts<S> for PageRequest {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let visit = parts.extensions.remove::<Self>();
        visit.ok_or_else(|| Error::Internal("a page was asked for without a visit".into()).into())
    }
}

/// A visit of somebody who is signed in, to a workspace that they belong to.
pub struct WorkspaceRequest {
    pub visit: PageRequest,
    pub known: AuthenticatedSession,
    pub caller: Caller,
    pub membership: Membership,
}

impl WorkspaceRequest {
    /// A path within the workspace.
    pub fn path(&self, rest: &str) -> String {
        format!("/dashboard/{}{rest}", self.membership.workspace_id)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for WorkspaceRequest {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let visit = PageRequest::from_request_parts(parts, state).await?;
        let known = visit.signed_in()?.clone();
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|_| Failure::from(Error::NoSuchPath))?;
        let id = params.iter().find(|(name, _)| *name == "workspace").map(|(_, id)| id);
        let workspace = WorkspaceId::from(id.unwrap_or_default());
        let origin = visit.origin.clone();
        let (caller, membership) = users::caller(&visit.app, &known, &workspace, origin).await?;
        Ok(Self { visit, known, caller, membership })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_from_here_with(pairs: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("keys.example:8443"));
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        is_from_here(&headers, "https://public.example")
    }

    #[test]
    fn a_form_comes_from_here_if_all_that_the_browser_says_agrees() {
        assert!(is_from_here_with(&[("origin", "https://keys.example:8443")]));
        assert!(is_from_here_with(&[("origin", "https://public.example")]));
        assert!(is_from_here_with(&[("sec-fetch-site", "same-origin")]));
        assert!(!is_from_here_with(&[]));
        assert!(!is_from_here_with(&[("origin", "null")]));
        assert!(!is_from_here_with(&[("origin", "https://evil.example")]));
        assert!(!is_from_here_with(&[("origin", "https://keys.example")]));
        for site in ["same-site", "cross-site"] {
            let pairs = [("origin", "https://keys.example:8443"), ("sec-fetch-site", site)];
            assert!(!is_from_here_with(&pairs));
        }
        let contradiction = [("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")];
        assert!(!is_from_here_with(&contradiction));
    }
}
