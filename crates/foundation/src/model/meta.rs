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

/// The [`Meta`] of a request of version 2, or of a form, where the number of its fields has a bound. Version 1 has none.
#[derive(Debug)]
pub struct BoundedMeta(Meta);

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

impl BoundedMeta {
    /// The maximum number of fields.
    pub const FIELDS_MAX: usize = 100;
}

impl From<BoundedMeta> for Meta {
    fn from(BoundedMeta(meta): BoundedMeta) -> Self {
        meta
    }
}

impl<'de> Deserialize<'de> for Meta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_with_count(deserializer).map(|(meta, _)| meta)
    }
}

impl<'de> Deserialize<'de> for BoundedMeta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (meta, count) = deserialize_with_count(deserializer)?;
        match count <= Self::FIELDS_MAX {
            true => Ok(Self(meta)),
            false => {
                Err(D::Error::custom(format!("must have at most {} fields", Self::FIELDS_MAX)))
            }
        }
    }
}

/// Deserializes a JSON object and returns the number of its fields.
fn deserialize_with_count<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<(Meta, usize), D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
    Ok((Meta(raw), object.len()))
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
            "additionalProperties": true,
            "description": "Custom JSON object.",
        })
    }
}

impl JsonSchema for BoundedMeta {
    fn schema_name() -> Cow<'static, str> {
        Meta::schema_name()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Meta::json_schema(generator);
        schema.insert("maxProperties".to_owned(), Self::FIELDS_MAX.into());
        schema
    }
}
