//! The reply of a server, and what tests expect of it.

use std::fmt;

use axum::http::{HeaderMap, StatusCode};
use foundation::error::Code;
use serde_json::Value;

use super::json::Fields as _;

/// A reply.
#[derive(Debug)]
pub struct Reply {
    /// The operation and the body of the request, for the messages of failures.
    pub request: String,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
    pub text: String,
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.500} -> {} {}", self.request, self.status.as_u16(), self.text)
    }
}

impl Reply {
    /// Returns the data. Fails with the error if there is one.
    #[track_caller]
    pub fn data(&self) -> &Value {
        assert_eq!(self.status, StatusCode::OK, "{self}");
        &self.body["data"]
    }

    /// Returns a text within the data.
    #[track_caller]
    pub fn text_of(&self, field: &str) -> String {
        self.data()[field].as_str().unwrap_or_else(|| panic!("no {field} in {self}")).to_owned()
    }

    /// Fails unless the verification has this code. Returns the data.
    #[track_caller]
    pub fn assert_code(&self, code: &str) -> &Value {
        assert_eq!(self.data()["code"], code, "{self}");
        assert_eq!(self.data()["valid"], code == "VALID", "{self}");
        self.data()
    }

    /// Returns the body of a version 1 reply. Fails with the error if there is one.
    #[track_caller]
    pub fn v1_body(&self) -> &Value {
        assert_eq!(self.status, StatusCode::OK, "{self}");
        &self.body
    }

    /// Fails unless the verification of version 1 has this code.
    #[track_caller]
    pub fn assert_v1_code(&self, code: &str) -> &Value {
        assert_eq!(self.v1_body()["code"], code, "{self}");
        assert_eq!(self.body["valid"], code == "VALID", "{self}");
        &self.body
    }

    /// Fails unless the reply is this error of version 1. Returns its message.
    #[track_caller]
    pub fn assert_v1_error(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status.as_u16(), status, "{self}");
        let error = &self.body["error"];
        assert_eq!(error["code"], code, "{self}");
        let id = self.headers["unkey-request-id"].to_str().expect("a text");
        assert_eq!(error["requestId"], id);
        let text = |field: &str| error[field].as_str().expect("a text").to_owned();
        assert!(text("docs").starts_with("http://docs.test/errors/"), "{self}");
        text("message")
    }

    /// Like [`Self::assert_v1_error`]. Fails unless the message contains these words.
    #[track_caller]
    pub fn assert_v1_error_about(&self, status: u16, code: &str, words: &[&str]) {
        self.assert_words(&self.assert_v1_error(status, code), words);
    }

    /// Fails unless the request was rejected with a message that begins so and contains these words.
    #[track_caller]
    pub fn assert_v1_fault(&self, start: &str, words: &[&str]) {
        let message = self.assert_v1_error(400, "BAD_REQUEST");
        assert!(message.starts_with(start), "no message that begins with {start:?}: {self}");
        self.assert_words(&message, words);
    }

    /// Fails unless the reply is this error. Returns its `error` object.
    #[track_caller]
    pub fn assert_error(&self, status: u16, name: &str) -> &Value {
        assert_eq!(self.status.as_u16(), status, "{self}");
        let error = &self.body["error"];
        assert_eq!(error["status"], status, "{self}");
        assert_eq!(error["type"], format!("http://docs.test/errors/{name}"), "{self}");
        let code = Code::ALL.iter().find(|code| code.name() == name);
        let code = code.unwrap_or_else(|| panic!("there is no error {name}"));
        assert_eq!(error["title"], code.title(), "{self}");
        assert!(error["detail"].is_string(), "{self}");
        assert!(self.body["meta"]["requestId"].is_string(), "{self}");
        error
    }

    /// Like [`Self::assert_error`]. Fails unless the detail contains these words.
    #[track_caller]
    pub fn assert_error_about(&self, status: u16, name: &str, words: &[&str]) {
        let error = self.assert_error(status, name);
        self.assert_words(error["detail"].as_str().unwrap_or_default(), words);
    }

    /// Fails unless the request was rejected for this one field error. Returns its message.
    #[track_caller]
    pub fn assert_field_error(&self, location: &str) -> String {
        let errors = self.assert_error(400, "invalid_input")["errors"].clone();
        let found = errors.as_array().into_iter().flatten().find(|e| e["location"] == location);
        let found = found.unwrap_or_else(|| panic!("no field error at {location} in {self}"));
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

    /// Like [`Self::assert_field_error`]. Fails unless the message contains these words.
    #[track_caller]
    pub fn assert_field_error_about(&self, location: &str, words: &[&str]) {
        self.assert_words(&self.assert_field_error(location), words);
    }

    /// Fails unless a value of the reply has these fields.
    #[track_caller]
    pub fn assert_fields(&self, value: &Value, expected: &Value) {
        let differences = value.differences(expected);
        assert!(differences.is_empty(), "{differences}: {self}");
    }

    #[track_caller]
    fn assert_words(&self, message: &str, words: &[&str]) {
        for word in words {
            assert!(message.contains(word), "no {word:?} in {message:?}: {self}");
        }
    }
}
