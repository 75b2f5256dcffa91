//! The reply of a server, and what tests expect of it.

use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;

/// A reply.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
    pub text: String,
}

impl Reply {
    /// Returns the data. Fails with the error if there is one.
    #[track_caller]
    pub fn data(&self) -> &Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        &self.body["data"]
    }

    /// Returns a text within the data.
    #[track_caller]
    pub fn text_of(&self, field: &str) -> String {
        self.data()[field].as_str().unwrap_or_else(|| panic!("{field}: {}", self.text)).to_owned()
    }

    /// Fails unless the verification has this code.
    #[track_caller]
    pub fn assert_code(&self, code: &str) {
        assert_eq!(self.data()["code"], code, "{}", self.text);
        assert_eq!(self.data()["valid"], code == "VALID", "{}", self.text);
    }

    /// Returns the body of a version 1 reply. Fails with the error if there is one.
    #[track_caller]
    pub fn v1_body(&self) -> &Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        &self.body
    }

    /// Fails unless the verification of version 1 has this code.
    #[track_caller]
    pub fn assert_v1_code(&self, code: &str) -> &Value {
        assert_eq!(self.v1_body()["code"], code, "{}", self.text);
        assert_eq!(self.body["valid"], code == "VALID", "{}", self.text);
        &self.body
    }

    /// Fails unless the reply is this error of version 1. Returns its message.
    #[track_caller]
    pub fn assert_v1_error(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        let error = &self.body["error"];
        assert_eq!(error["code"], code, "{}", self.text);
        let id = self.headers["unkey-request-id"].to_str().expect("a text");
        assert_eq!(error["requestId"], id);
        let text = |field: &str| error[field].as_str().expect("a text").to_owned();
        assert!(text("docs").starts_with("http://docs.test/errors/"), "{}", self.text);
        text("message")
    }

    /// Fails unless the reply is this error. Returns its `error` object.
    #[track_caller]
    pub fn assert_error(&self, status: u16, name: &str) -> &Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        let error = &self.body["error"];
        assert_eq!(error["status"], status, "{}", self.text);
        assert_eq!(error["type"], format!("http://docs.test/errors/{name}"), "{}", self.text);
        assert!(error["title"].is_string() && error["detail"].is_string(), "{}", self.text);
        assert!(self.body["meta"]["requestId"].is_string(), "{}", self.text);
        error
    }

    /// Fails unless the request was rejected for this one field error. Returns its message.
    #[track_caller]
    pub fn assert_field_error(&self, location: &str) -> String {
        let errors = self.assert_error(400, "invalid_input")["errors"].clone();
        let found = errors.as_array().into_iter().flatten().find(|e| e["location"] == location);
        let found = found.unwrap_or_else(|| panic!("no field error at {location}: {}", self.text));
        found["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Fails unless the introspected key is active. Returns the body.
    #[track_caller]
    pub fn assert_active(&self) -> &Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        assert_eq!(self.body["active"], true, "{}", self.text);
        &self.body
    }

    /// Fails unless the reply says that the introspected key is not active, and nothing else.
    #[track_caller]
    pub fn assert_inactive(&self) {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        assert_eq!(self.text, r#"{"active":false}"#);
    }

    /// Fails unless the reply is this OAuth error. Returns its description.
    #[track_caller]
    pub fn assert_oauth_error(&self, status: u16, name: &str) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.body["error"], name, "{}", self.text);
        let text = |field: &str| self.body[field].as_str().expect("a text").to_owned();
        assert!(text("error_uri").starts_with("http://docs.test/errors/"), "{}", self.text);
        let description = text("error_description");
        let is_allowed = |c: char| (' '..='~').contains(&c) && c != '"' && c != '\\';
        assert!(description.chars().all(is_allowed), "{description}");
        description
    }
}
