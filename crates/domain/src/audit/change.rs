//! The fields of a resource before and after a change.

use foundation::error::{Error, Result};
use indexmap::IndexMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The fields of a snapshot by name, each with its JSON text unchanged.
pub type SnapshotFields = IndexMap<String, Box<RawValue>>;

/// The JSON of a resource before and after a change. For an update it holds only the fields that differ.
#[derive(Debug, Default)]
pub struct FieldChanges {
    /// Absent: the resource did not exist.
    pub before: Option<String>,
    /// Absent: the resource no longer exists.
    pub after: Option<String>,
}

impl FieldChanges {
    /// Returns the change of a resource that was created.
    pub fn created(snapshot: &impl Serialize) -> Result<Self> {
        Ok(Self { before: None, after: Some(encode_snapshot(snapshot)?) })
    }

    /// Returns the change of a resource that was deleted.
    pub fn deleted(snapshot: &impl Serialize) -> Result<Self> {
        Ok(Self { before: Some(encode_snapshot(snapshot)?), after: None })
    }

    /// Returns the change of a resource that replaced another, if there was one. Both snapshots are complete.
    pub fn replaced(before: Option<&impl Serialize>, after: &impl Serialize) -> Result<Self> {
        Ok(Self {
            before: before.map(encode_snapshot).transpose()?,
            after: Some(encode_snapshot(after)?),
        })
    }

    /// Returns the change of a resource that was updated, with only the fields that differ.
    pub fn updated(before: &impl Serialize, after: &impl Serialize) -> Result<Self> {
        let (mut before, mut after) =
            (parse_fields(&encode_snapshot(before)?)?, parse_fields(&encode_snapshot(after)?)?);
        let is_same = |name: &String, these: &SnapshotFields, those: &SnapshotFields| {
            these.get(name).map(|value| value.get()) == those.get(name).map(|value| value.get())
        };
        let same: Vec<_> =
            before.keys().filter(|name| is_same(name, &before, &after)).cloned().collect();
        for name in same {
            before.shift_remove(&name);
            after.shift_remove(&name);
        }
        Ok(Self { before: Some(encode_snapshot(&before)?), after: Some(encode_snapshot(&after)?) })
    }
}

/// Parses a snapshot of an entry.
pub fn parse_snapshot<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| snapshot_error(&e))
}

/// Parses a snapshot of an entry into its fields.
pub fn parse_fields(text: &str) -> Result<SnapshotFields> {
    parse_snapshot(text)
}

/// Parses the value of one field of a snapshot.
pub fn parse_field<T: DeserializeOwned>(value: &RawValue) -> Result<T> {
    parse_snapshot(value.get())
}

fn encode_snapshot(snapshot: &impl Serialize) -> Result<String> {
    serde_json::to_string(snapshot).map_err(|e| snapshot_error(&e))
}

fn snapshot_error(cause: &serde_json::Error) -> Error {
    Error::Internal(format!("failed to encode or decode an audit snapshot: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields_from_json(text: &str) -> SnapshotFields {
        parse_fields(text).expect("an object")
    }

    #[test]
    fn updated_returns_only_fields_that_differ_with_their_json_unchanged() {
        let before = fields_from_json(r#"{"name":"a","meta":{"n":1.50},"enabled":true,"gone":1}"#);
        let after = fields_from_json(r#"{"name":"a","meta":{"n":1.5},"enabled":true,"new":null}"#);

        let change = FieldChanges::updated(&before, &after).expect("a change");

        assert_eq!(change.before.as_deref(), Some(r#"{"meta":{"n":1.50},"gone":1}"#));
        assert_eq!(change.after.as_deref(), Some(r#"{"meta":{"n":1.5},"new":null}"#));
    }

    #[test]
    fn created_has_no_before_and_deleted_has_no_after() {
        let snapshot = fields_from_json(r#"{"name":"a"}"#);

        let created = FieldChanges::created(&snapshot).expect("a change");
        let deleted = FieldChanges::deleted(&snapshot).expect("a change");

        assert_eq!((created.before, created.after.as_deref()), (None, Some(r#"{"name":"a"}"#)));
        assert_eq!((deleted.before.as_deref(), deleted.after), (Some(r#"{"name":"a"}"#), None));
    }
}
