//! Authenticates the user of a page and checks the origin of the request.
//!
//! A form is accepted only from a page of this server. The browser confirms this in `Sec-Fetch-Site` and `Origin`, and
//! the form contains a CSRF token derived from the browser's cookie, which no other site can read.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method};
use domain::app::App;
use domain::caller::{Caller, ClientInfo};
use domain::users::{self, AuthenticatedSession, SessionUse};
use foundation::error::Error;
use foundation::id::WorkspaceId;
use foundation::model::Membership;
use foundation::secret::{KeyHash, Plaintext};
use request::{address, body, user_agent};

use super::failure::Failure;
use super::form::Form;
use super::headers::{GUEST_COOKIE, OIDC_COOKIE, SESSION_COOKIE, WORKSPACE_COOKIE, find_cookie};
use super::{FORM_BYTES_MAX, imports, multipart, one_time_form};

/// The number of random bytes in the token of a visitor who is not signed in.
const GUEST_TOKEN_BYTES: u8 = 16;
/// Names the form field with the CSRF token.
const CSRF_FIELD: &str = "csrf";

/// A request for a page.
#[derive(Clone)]
pub struct PageRequest {
    pub app: Arc<App>,
    pub origin: ClientInfo,
    pub method: Method,
    /// The authenticated session; `None` if the browser is not signed in.
    pub session: Option<AuthenticatedSession>,
    /// The token of the authenticated session. The keys of secrets that are shown once are derived from it.
    pub session_token: Option<Plaintext>,
    /// The CSRF token for the forms of the page.
    pub csrf: String,
    pub query: Form,
    /// The submitted form; empty unless the method is POST.
    pub form: Form,
    /// The URL under which the browser reaches this server: its `Origin`, else the public URL.
    pub base_url: String,
    /// Whether the browser reports that a page of this server, or the user directly, made the request.
    pub is_same_origin: bool,
    /// The cookie with the pending authorization request of single sign-on.
    pub authorization_cookie: Option<String>,
    /// The workspace that the browser visited last, which the user need not be a member of.
    pub last_workspace: Option<WorkspaceId>,
    /// The new token of a visitor who has neither a session nor a guest cookie.
    new_guest_token: Option<Plaintext>,
    /// Whether the browser sent the cookie of an expired or ended session.
    is_session_expired: bool,
}

impl PageRequest {
    pub async fn authenticate(app: &Arc<App>, head: &Parts) -> Result<Self, Failure> {
        let headers = &head.headers;
        let trusted = app.context.settings.trusted_proxies.as_ref();
        let origin = ClientInfo {
            address: address::client_address(trusted, headers),
            user_agent: user_agent(headers),
        };
        let query = Form::parse(head.uri.query().unwrap_or_default().as_bytes());
        let session = find_cookie(headers, SESSION_COOKIE);
        let known = match session {
            Some(token) => {
                let session_use = session_use(head, &query);
                users::authenticate_session(&app.context, token, &origin, session_use).await?
            }
            None => None,
        };
        let mut guest = None;
        let secret = match (session.filter(|_| known.is_some()), find_cookie(headers, GUEST_COOKIE))
        {
            (Some(token), _) | (None, Some(token)) => derive_csrf_token(token),
            (None, None) => {
                let token = guest.insert(Plaintext::generate(None, GUEST_TOKEN_BYTES));
                derive_csrf_token(token.expose())
            }
        };
        Ok(Self {
            app: app.clone(),
            origin,
            method: head.method.clone(),
            is_session_expired: session.is_some() && known.is_none(),
            session_token: session
                .filter(|_| known.is_some())
                .map(|token| Plaintext::from(token.to_owned())),
            session: known,
            csrf: secret,
            query,
            form: Form::default(),
            base_url: app.context.settings.public_url.clone(),
            is_same_origin: is_same_origin(headers, &app.context.settings.public_url),
            authorization_cookie: find_cookie(headers, OIDC_COOKIE).map(str::to_owned),
            last_workspace: find_cookie(headers, WORKSPACE_COOKIE).map(WorkspaceId::from),
            new_guest_token: guest,
        })
    }

    /// Returns the token to store in the guest cookie, if a new one was created.
    pub fn new_guest_token(&self) -> Option<String> {
        self.new_guest_token.as_ref().map(|token| token.expose().to_owned())
    }

    /// Reads the form of a POST and checks its origin and CSRF token. Fails with `Forged`, `SignIn` (the session has
    /// expired, or was ended before the form had arrived) or `NoCookies` (the browser did not return the guest cookie).
    pub async fn read_form(&mut self, head: &Parts, body: Body) -> Result<(), Failure> {
        let headers = &head.headers;
        let content_type = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let content_type = content_type.unwrap_or_default();
        // Only signed-in users upload files, and only where keys are imported.
        let upload_max =
            self.session.as_ref().and_then(|_| imports::form_bytes_max(head.uri.path()));
        let boundary = upload_max.and_then(|_| multipart::parse_boundary(content_type));
        let is_form = boundary.is_some()
            || content_type.to_ascii_lowercase().starts_with("application/x-www-form-urlencoded");
        if !is_form || !self.is_same_origin {
            body::discard_body(body).await;
            let is_expired = self.is_same_origin && self.is_session_expired;
            return Err(if is_expired { Failure::SignIn } else { Failure::Forged });
        }
        if let Some(origin) = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()) {
            origin.clone_into(&mut self.base_url);
        }
        let bytes = body::read(body, upload_max.unwrap_or(FORM_BYTES_MAX)).await?;
        self.form = match boundary {
            Some(boundary) => multipart::parse_form(bytes, boundary).await?,
            None => Form::parse(&bytes),
        };
        // Comparing hashes instead of tokens prevents timing attacks: a client cannot approach a hash step by step.
        if KeyHash::compute(self.form.text(CSRF_FIELD)) == KeyHash::compute(&self.csrf) {
            return self.require_active_session().await;
        }
        if self.is_session_expired {
            return Err(Failure::SignIn);
        }
        if self.new_guest_token.is_some() {
            return Err(Failure::NoCookies);
        }
        Err(Failure::Forged)
    }

    /// Fails with `SignIn` if the session has been ended since it was authenticated: a form may take half a minute to
    /// arrive.
    async fn require_active_session(&self) -> Result<(), Failure> {
        let Some(session) = &self.session else { return Ok(()) };
        match users::is_session_active(&self.app.context, session).await? {
            true => Ok(()),
            false => Err(Failure::SignIn),
        }
    }

    /// Returns the display name of the OIDC provider, if one is configured.
    pub fn oidc_name(&self) -> Option<&str> {
        self.app.context.settings.oidc.as_ref().map(|oidc| oidc.name.as_str())
    }

    /// Returns the authenticated session, or the failure that redirects to the sign-in page.
    pub fn require_session(&self) -> Result<&AuthenticatedSession, Failure> {
        self.session.as_ref().ok_or(Failure::SignIn)
    }
}

/// Returns whether a request counts as use of its session. A page with live refresh loads itself again, with the field of the
/// refresh in its address.
fn session_use(head: &Parts, query: &Form) -> SessionUse {
    match head.method == Method::GET && !query.text("live").is_empty() {
        true => SessionUse::Automatic,
        false => SessionUse::ByUser,
    }
}

/// Derives the CSRF token from a session or guest token.
fn derive_csrf_token(token: &str) -> String {
    KeyHash::compute(format!("csrf\n{token}")).to_hex()
}

/// Returns whether a form was sent by a page of this server, according to the browser's headers.
fn is_same_origin(headers: &HeaderMap, public_url: &str) -> bool {
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
        // A client that sends neither header is not a browser that a page could misuse, or is too old to be safe.
        (None, None) => false,
        (site, origin) => site.unwrap_or(true) && origin.unwrap_or(true),
    }
}

impl<S: Sync> FromRequestParts<S> for PageRequest {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let visit = parts.extensions.remove::<Self>();
        visit.ok_or_else(|| {
            Error::Internal("the request has no PageRequest extension".into()).into()
        })
    }
}

/// A page request of a signed-in user for a workspace of which the user is a member.
pub struct WorkspaceRequest {
    pub page_request: PageRequest,
    pub known: AuthenticatedSession,
    pub caller: Caller,
    pub membership: Membership,
}

impl WorkspaceRequest {
    /// Returns a dashboard path within the workspace.
    pub fn workspace_path(&self, rest: &str) -> String {
        format!("/dashboard/{}{rest}", self.membership.workspace_id)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for WorkspaceRequest {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let visit = PageRequest::from_request_parts(parts, state).await?;
        let known = visit.require_session()?.clone();
        let params = RawPathParams::from_request_parts(parts, state).await;
        let params = params.map_err(|_| Failure::from(Error::PathNotFound))?;
        let id = params.iter().find(|(name, _)| *name == "workspace").map(|(_, id)| id);
        let workspace = WorkspaceId::from(id.unwrap_or_default());
        let origin = visit.origin.clone();
        let (mut caller, membership) =
            users::load_caller(&visit.app.context, &known, &workspace, origin).await?;
        if visit.method == Method::POST {
            caller.form_submission = one_time_form::read_submission(&visit, parts.uri.path());
        }
        Ok(Self { page_request: visit, known, caller, membership })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_same_origin_with(pairs: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("keys.example:8443"));
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        is_same_origin(&headers, "https://public.example")
    }

    #[test]
    fn form_is_accepted_when_all_origin_headers_agree() {
        assert!(is_same_origin_with(&[("origin", "https://keys.example:8443")]));
        assert!(is_same_origin_with(&[("origin", "https://public.example")]));
        assert!(is_same_origin_with(&[("sec-fetch-site", "same-origin")]));
        assert!(!is_same_origin_with(&[]));
        assert!(!is_same_origin_with(&[("origin", "null")]));
        assert!(!is_same_origin_with(&[("origin", "https://evil.example")]));
        assert!(!is_same_origin_with(&[("origin", "https://keys.example")]));
        for site in ["same-site", "cross-site"] {
            let pairs = [("origin", "https://keys.example:8443"), ("sec-fetch-site", site)];
            assert!(!is_same_origin_with(&pairs));
        }
        let contradiction = [("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")];
        assert!(!is_same_origin_with(&contradiction));
    }
}
