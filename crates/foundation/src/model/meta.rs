//! Defines the JSON objects that customers attach to keys and identities.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A JSON object from the customer, stored as it was written.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Meta(pub Box<RawValue>);

impl Meta {
    /// The maximum number of fields.
    pub const FIELDS_MAX: usize = 100;

    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Returns whether it is `{}`, with any whitespace.
    pub fn is_empty(&self) -> bool {
        let inside = self.as_str().trim_start_matches('{').trim_end_matches('}');
        inside.bytes().all(|b| b.is_ascii_whitespace())
    }

    /// Converts stored text. Returns `None` if it is not JSON.
    pub fn from_stored(text: String) -> Option<Self> {
        RawValue::from_string(text).ok().map(Self)
    }
}

impl<'de> Deserialize<'de> for Meta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        match object.len() <= Self::FIELDS_MAX {
            true => Ok(Self(raw)),
            false => {
                Err(D::Error::custom(format!("must have at most {} fields", Self::FIELDS_MAX)))
            }
        }
    }
}

impl JsonSchema for Meta {
    fn schema_name() -> Cow<'static, str> {
        "Meta".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "maxProperties": Self::FIELDS_MAX,
            "additionalProperties": true,
            "description": "Custom JSON object.",
        })
    }
}
