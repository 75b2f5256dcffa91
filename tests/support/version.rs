//! Calls either version of the interface, for rules that both have.

use api::{HttpMethod, v1};
use foundation::error::Code;
use serde_json::Value;

use super::{Keyward, Reply};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

impl Keyward {
    /// Calls an operation as its clients do: those of version 1 that only read take a query.
    pub async fn call(
        &self,
        version: Version,
        root_key: &str,
        operation: &str,
        request: Value,
    ) -> Reply {
        let row = v1::operation_table().operations.into_iter().find(|row| row.name == operation);
        match (version, row.map(|row| row.method)) {
            (Version::V1, Some(HttpMethod::Get)) => {
                self.v1_get_as(root_key, operation, &query(&request)).await
            }
            (Version::V1, _) => self.v1_as(root_key, operation, request).await,
            (Version::V2, _) => self.v2_as(root_key, operation, request).await,
        }
    }
}

impl Reply {
    /// Returns what an operation of this version replies. Fails with the error if there is one.
    #[track_caller]
    pub fn told(&self, version: Version) -> &Value {
        match version {
            Version::V1 => self.v1_body(),
            Version::V2 => self.data(),
        }
    }

    /// Fails unless the reply is this error, by its name in version 2, with these words. Returns the message.
    #[track_caller]
    pub fn assert_refused(&self, version: Version, name: &str, words: &[&str]) -> String {
        let code = Code::ALL.iter().find(|code| code.name() == name);
        let status = code.unwrap_or_else(|| panic!("there is no error {name}")).status();
        let message = match version {
            Version::V1 => {
                let code = match status {
                    403 => "INSUFFICIENT_PERMISSIONS",
                    404 => "NOT_FOUND",
                    409 => "CONFLICT",
                    _ => panic!("add the code of {status} in version 1"),
                };
                self.assert_v1_error(status, code)
            }
            Version::V2 => {
                self.assert_error(status, name)["detail"].as_str().unwrap_or("").to_owned()
            }
        };
        for word in words {
            assert!(message.contains(word), "{word:?} is not in the message of {self}");
        }
        message
    }
}

/// Returns a request as a query: a list is its field, again and again.
pub fn query(request: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let fields = request.as_object().into_iter().flatten();
    let fields = fields.flat_map(|(name, value)| match value {
        Value::Array(items) => items.iter().map(|item| (name.clone(), text(item))).collect(),
        other => vec![(name.clone(), text(other))],
    });
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}
