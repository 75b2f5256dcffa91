//! Tables of scenarios: a key, and what is done with it step by step. A failure names the scenario and the step.
//!
//! ```text
//! ("a cost that just fits is spent", json!({ "credits": { "remaining": 5 } }), vec![
//!     verify(json!({ "credits": { "cost": 6 } }), "USAGE_EXCEEDED", json!({ "credits": 5 })),
//!     verify(json!({ "credits": { "cost": 5 } }), "VALID", json!({ "credits": 0 })),
//! ])
//! ```

use serde_json::{Value, json};

use super::seed::merge_fields;
use super::version::Version::{self, V1, V2};
use super::{Keyward, Reply};

/// What the scenario is about, the fields of `keys.createKey` of its version, and the steps.
pub type Scenario = (&'static str, Value, Vec<Step>);

/// A step with the key of the scenario, and what is expected of it.
#[derive(Clone)]
pub enum Step {
    Verify(Value, Expected),
    /// An operation whose request gets the id of the key.
    Call(&'static str, Value, Expected),
    /// Time passes.
    Pass(i64),
    /// The step in the other version.
    Other(Box<Step>),
}

#[derive(Clone)]
pub enum Expected {
    /// A verification with this code, and these fields of its reply: see [`super::json::Fields`].
    Code(&'static str, Value),
    /// A success, and these fields of its reply.
    Reply(Value),
    /// An error with this status and name, and words of its message.
    Error(u16, &'static str, Vec<String>),
    /// An invalid field: its location in version 2 and words of the message, or the whole message in version 1.
    Field(&'static str, Vec<String>),
}

/// Verifies with these fields of the request.
pub fn verify(request: Value, code: &'static str, fields: Value) -> Step {
    Step::Verify(request, Expected::Code(code, fields))
}

/// Verifies without further fields.
pub fn plain(code: &'static str, fields: Value) -> Step {
    verify(json!({}), code, fields)
}

/// Verifies with a request that is an error.
pub fn refuse(request: Value, expected: Expected) -> Step {
    Step::Verify(request, expected)
}

/// Reads the key.
pub fn read(fields: Value) -> Step {
    Step::Call("keys.getKey", json!({}), Expected::Reply(fields))
}

/// Changes the key.
pub fn update(fields: Value) -> Step {
    Step::Call("keys.updateKey", fields, Expected::Reply(json!({})))
}

pub fn call(operation: &'static str, request: Value, fields: Value) -> Step {
    Step::Call(operation, request, Expected::Reply(fields))
}

pub fn fail(operation: &'static str, request: Value, expected: Expected) -> Step {
    Step::Call(operation, request, expected)
}

pub fn pass(ms: i64) -> Step {
    Step::Pass(ms)
}

pub fn other(step: Step) -> Step {
    Step::Other(Box::new(step))
}

pub fn error(status: u16, name: &'static str, words: &[&str]) -> Expected {
    Expected::Error(status, name, words.iter().map(|word| (*word).to_owned()).collect())
}

pub fn field(location: &'static str, words: &[&str]) -> Expected {
    Expected::Field(location, words.iter().map(|word| (*word).to_owned()).collect())
}

impl Keyward {
    /// Runs each scenario with a new key, from the same time on.
    pub async fn run(&self, version: Version, scenarios: Vec<Scenario>) {
        for (name, fields, steps) in scenarios {
            let start = self.clock.now();
            let api = self.create_api().await;
            let created = self.call(
                version,
                &self.root_key,
                "keys.createKey",
                merge_fields(json!({ "apiId": api }), fields),
            );
            let created = created.await;
            let text =
                |field: &str| created.told(version)[field].as_str().expect("a text").to_owned();
            let (id, key) = (text("keyId"), text("key"));
            for (at, step) in steps.into_iter().enumerate() {
                let (version, step) = match step {
                    Step::Other(step) => (if version == V1 { V2 } else { V1 }, *step),
                    step => (version, step),
                };
                let (mut reply, expected) = match step {
                    Step::Pass(ms) => {
                        self.clock.advance_ms(ms);
                        continue;
                    }
                    Step::Verify(request, expected) => {
                        (self.verify_in(version, &key, request).await, expected)
                    }
                    Step::Call(operation, request, expected) => {
                        let request = merge_fields(json!({ "keyId": id }), request);
                        (self.call(version, &self.root_key, operation, request).await, expected)
                    }
                    Step::Other(_) => unreachable!("it is a step of the version"),
                };
                reply.request = format!("step {at} of {name:?}: {}", reply.request);
                expected.check(version, &reply);
            }
            self.clock.advance_ms(start.0 - self.clock.now().0);
        }
    }

    async fn verify_in(&self, version: Version, key: &str, request: Value) -> Reply {
        match version {
            V1 => self.verify_v1(key, request).await,
            V2 => self.verify_with(key, request).await,
        }
    }
}

impl Expected {
    #[track_caller]
    fn check(&self, version: Version, reply: &Reply) {
        match self {
            Self::Code(code, fields) => {
                let told = if version == V1 {
                    reply.assert_v1_code(code)
                } else {
                    reply.assert_code(code)
                };
                reply.assert_fields(told, fields);
            }
            Self::Reply(fields) => reply.assert_fields(reply.told(version), fields),
            Self::Error(status, name, about) => {
                let about: Vec<_> = about.iter().map(String::as_str).collect();
                match version {
                    V1 => reply.assert_v1_error_about(*status, name, &about),
                    V2 => reply.assert_error_about(*status, name, &about),
                }
            }
            Self::Field(location, about) => match version {
                V1 => assert_eq!(reply.assert_v1_error(400, "BAD_REQUEST"), *location, "{reply}"),
                V2 => {
                    let about: Vec<_> = about.iter().map(String::as_str).collect();
                    reply.assert_field_error_about(location, &about);
                }
            },
        }
    }
}
