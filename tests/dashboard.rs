//! Tests the dashboard over HTTP.

mod accept_invitation;
mod access;
mod account;
mod analytics;
mod apis;
mod audit;
mod charts;
mod error_page;
mod form_errors;
mod gateways;
mod get_started;
mod identities;
mod imports;
mod keys;
mod logs;
mod members;
mod navigation;
mod one_time_forms;
mod permissions;
mod ratelimits;
mod root_keys;
mod row_menus;
mod sign_in;
mod single_sign_on;
mod sorted_lists;
mod titles;
mod usage;
mod workspace;

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use axum::http::request::Builder;
use domain::caller::ClientInfo;
use domain::root_keys::default_workspace;
use domain::users::{self, AuthenticatedSession, SessionUse};

use crate::support::{Keyward, Reply};

const HOST: &str = "keyward.test";
pub const EMAIL: &str = "ada@example.com";
pub const PASSWORD: &str = "correct horse battery";

/// A name that would be executed if it were not escaped, and its escaped form.
pub const HOSTILE_NAME: &str = "<script>alert(1)</script>";
pub const ESCAPED_NAME: &str = "&#60;script&#62;alert(1)&#60;/script&#62;";

/// Returns the path of the workspace's page that an action redirects to.
pub fn redirect_path(reply: &Reply) -> String {
    assert_eq!(reply.status, 303, "{}", reply.text);
    reply.headers["location"].to_str().unwrap().to_owned()
}

/// Returns the path of the next page of a list.
pub fn next_page_path(page: &Reply) -> String {
    between(&page.text, "rel=\"next\" href=\"", "\"").replace("&#38;", "&")
}

/// Returns the number of table rows on a page.
pub fn count_table_rows(page: &str) -> usize {
    page.matches("<tr><th scope=\"row\"").count()
}

/// A browser: it stores cookies, and submits the CSRF token of the last page.
pub struct Browser<'a> {
    pub kw: &'a Keyward,
    pub cookies: BTreeMap<String, String>,
    pub csrf: String,
    /// The `X-Forwarded-For` header that it, or a proxy, sends.
    pub forwarded: Option<String>,
}

impl<'a> Browser<'a> {
    pub fn new(kw: &'a Keyward) -> Self {
        Self { kw, cookies: BTreeMap::new(), csrf: String::new(), forwarded: None }
    }

    /// Signs in the owner of the default workspace.
    pub async fn sign_in_owner(kw: &'a Keyward) -> Self {
        kw.app.analytics.event_store().migrate().await.expect("the schema of events is migrated");
        let link = users::create_operator_invitation(&kw.app.context, &default_workspace())
            .await
            .expect("a link");
        let mut visitor = Self::new(kw);
        let joined = visitor.accept_invitation(link.expose(), EMAIL, PASSWORD).await;
        assert_eq!(joined.status, 303, "{}", joined.text);
        visitor
    }

    /// Creates another member, invited by this one.
    pub async fn invite(&mut self, email: &str, role: &str) -> Self {
        let page = self.post(&workspace_path("/members/invite"), &[("role", role)]).await;
        let token = between(&page.text, "/dashboard/join/", "<").to_owned();
        let mut visitor = Self::new(self.kw);
        let joined = visitor.accept_invitation(&token, email, PASSWORD).await;
        assert_eq!(joined.status, 303, "{}", joined.text);
        visitor.get(&workspace_path("")).await;
        visitor
    }

    pub async fn accept_invitation(&mut self, token: &str, email: &str, password: &str) -> Reply {
        let path = format!("/dashboard/join/{token}");
        // If the invitation is invalid, the page has no form to take the token from.
        self.get("/dashboard/login").await;
        self.get(&path).await;
        let joined = self.post(&path, &[("email", email), ("password", password)]).await;
        if joined.status == 303 {
            self.get(&workspace_path("")).await;
        }
        joined
    }

    pub async fn sign_in(&mut self, email: &str, password: &str) -> Reply {
        self.get("/dashboard/login").await;
        let fields = [("email", email), ("password", password)];
        let signed_in = self.post("/dashboard/login", &fields).await;
        if signed_in.status == 303 {
            self.get(&workspace_path("")).await;
        }
        signed_in
    }

    fn request(&self, mut request: Builder, path: &str) -> Builder {
        if let Some(forwarded) = &self.forwarded {
            request = request.header("x-forwarded-for", forwarded);
        }
        let cookies: Vec<_> =
            self.cookies.iter().map(|(name, of)| format!("{name}={of}")).collect();
        request.uri(path).header("host", HOST).header("cookie", cookies.join("; "))
    }

    pub async fn get(&mut self, path: &str) -> Reply {
        let request = self.request(Request::get(path), path).body(Body::empty());
        self.send(request.expect("a request")).await
    }

    /// Submits a form as the last page would, and opens the page of a secret to which it leads.
    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let reply = self.submit(path, fields).await;
        let location = reply.headers.get("location").and_then(|path| path.to_str().ok());
        match location.filter(|path| path.contains("/secret/")).map(str::to_owned) {
            Some(path) => self.get(&path).await,
            None => reply,
        }
    }

    /// Submits a form as the last page would.
    pub async fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let csrf = self.csrf.clone();
        let fields: Vec<_> = fields.iter().copied().chain([("csrf", csrf.as_str())]).collect();
        let request = self.form(path).header("origin", format!("https://{HOST}"));
        self.send(request.body(Body::from(form_encode(&fields))).expect("a request")).await
    }

    /// Submits a form with a file as the last page would.
    pub async fn upload(&mut self, path: &str, fields: &[(&str, &str)], file: &[u8]) -> Reply {
        let mut body = Vec::new();
        for (name, value) in fields.iter().copied().chain([("csrf", self.csrf.as_str())]) {
            let head =
                format!("--limit\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
            body.extend_from_slice(format!("{head}{value}\r\n").as_bytes());
        }
        let head = "--limit\r\nContent-Disposition: form-data; name=\"file\"; filename=\"keys.csv\"\r\n\
            Content-Type: text/csv\r\n\r\n";
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(file);
        body.extend_from_slice(b"\r\n--limit--\r\n");
        let request = self.request(Request::post(path), path);
        let request = request.header("origin", format!("https://{HOST}"));
        let request = request.header("content-type", "multipart/form-data; boundary=limit");
        self.send(request.body(Body::from(body)).expect("a request")).await
    }

    /// Returns a form submission without headers about its origin.
    pub fn form(&self, path: &str) -> Builder {
        self.request(Request::post(path), path)
            .header("content-type", "application/x-www-form-urlencoded")
    }

    pub async fn send(&mut self, request: Request<Body>) -> Reply {
        let reply = self.kw.send(request).await;
        for cookie in reply.headers.get_all("set-cookie") {
            let (pair, rest) = cookie.to_str().expect("a text").split_once(';').expect("a cookie");
            let (name, value) = pair.split_once('=').expect("a pair");
            match rest.contains("Max-Age=0;") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        if reply.text.contains("name=\"csrf\" value=\"") {
            between(&reply.text, "name=\"csrf\" value=\"", "\"").clone_into(&mut self.csrf);
        }
        reply
    }

    /// Returns the session of the user who is signed in, as a request of the browser would load it.
    pub async fn load_session(&self) -> AuthenticatedSession {
        let (token, client) = (&self.cookies["__Host-keyward-session"], ClientInfo::default());
        let context = &self.kw.app.context;
        users::authenticate_session(context, token, &client, SessionUse::Automatic)
            .await
            .expect("an answer")
            .expect("a session")
    }

    /// Whether a user is signed in.
    pub async fn is_signed_in(&mut self) -> bool {
        self.get("/dashboard/account").await.status == 200
    }
}

pub fn form_encode(fields: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Returns the path of a page of the default workspace.
pub fn workspace_path(rest: &str) -> String {
    format!("/dashboard/ws_default{rest}")
}

pub fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before}: {text}"));
    rest.split_once(after).map_or(rest, |(found, _)| found)
}
