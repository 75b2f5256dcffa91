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

/// The maximum number of fields in a meta object.
const META_FIELDS_MAX: usize = 100;

impl<'de> Deserialize<'de> for Meta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        match object.len() <= META_FIELDS_MAX {
            true => Ok(Self(raw)),
            false => Err(D::Error::custom(format!("must have at most {META_FIELDS_MAX} fields"))),
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
            "maxProperties": META_FIELDS_MAX,
            "additionalProperties": true,
            "description": "Custom JSON object.",
        })
    }
}
