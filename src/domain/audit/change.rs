//! What a change made of a thing: its fields as they were, and as they became.

use foundation::error::{Error, Result};
use indexmap::IndexMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// Fields by their names, each kept as it was written.
pub type Fields = IndexMap<String, Box<RawValue>>;

/// Of a thing that was changed, only the fields that differ.
#[derive(Debug, Default)]
pub struct FieldChanges {
    /// Absent: there was no such thing.
    pub before: Option<String>,
    /// Absent: there is no such thing any more.
    pub after: Option<String>,
}

impl FieldChanges {
    /// Of a thing that was made.
    pub fn created(state: &impl Serialize) -> Result<Self> {
        Ok(Self { before: None, after: Some(text(state)?) })
    }

    /// Of a thing that is no more.
    pub fn deleted(state: &impl Serialize) -> Result<Self> {
        Ok(Self { before: Some(text(state)?), after: None })
    }

    /// Of a thing that took the place of another one, if there was one: both whole.
    pub fn replaced(before: Option<&impl Serialize>, after: &impl Serialize) -> Result<Self> {
        Ok(Self { before: before.map(text).transpose()?, after: Some(text(after)?) })
    }

    /// Of a thing that was one way, and is another.
    pub fn updated(before: &impl Serialize, after: &impl Serialize) -> Result<Self> {
        let (mut before, mut after) = (fields(&text(before)?)?, fields(&text(after)?)?);
        let is_same = |name: &String, these: &Fields, those: &Fields| {
            these.get(name).map(|value| value.get()) == those.get(name).map(|value| value.get())
        };
        let same: Vec<_> =
            before.keys().filter(|name| is_same(name, &before, &after)).cloned().collect();
        for name in same {
            before.shift_remove(&name);
            after.shift_remove(&name);
        }
        Ok(Self { before: Some(text(&before)?), after: Some(text(&after)?) })
    }
}

/// What an entry keeps, as it was written.
pub fn parse_snapshot<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| no_state(&e))
}

/// The fields of what an entry keeps.
pub fn fields(text: &str) -> Result<Fields> {
    parse_snapshot(text)
}

/// The value of a field of what an entry keeps.
pub fn read<T: DeserializeOwned>(value: &RawValue) -> Result<T> {
    parse_snapshot(value.get())
}

fn text(state: &impl Serialize) -> Result<String> {
    serde_json::to_string(state).map_err(|e| no_state(&e))
}

fn no_state(cause: &serde_json::Error) -> Error {
    Error::Internal(format!("the state of a thing: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Fields {
        fields(text).expect("an object")
    }

    #[test]
    fn of_what_changed_only_the_fields_that_differ_are_kept_as_they_were_written() {
        let before = raw(r#"{"name":"a","meta":{"n":1.50},"enabled":true,"gone":1}"#);
        let after = raw(r#"{"name":"a","meta":{"n":1.5},"enabled":true,"new":null}"#);

        let change = FieldChanges::updated(&before, &after).expect("a change");

        assert_eq!(change.before.as_deref(), Some(r#"{"meta":{"n":1.50},"gone":1}"#));
        assert_eq!(change.after.as_deref(), Some(r#"{"meta":{"n":1.5},"new":null}"#));
    }

    #[test]
    fn what_is_made_was_nothing_and_what_is_gone_becomes_nothing() {
        let state = raw(r#"{"name":"a"}"#);

        let (made, gone) = (FieldChanges::created(&state), FieldChanges::deleted(&state));

        let (made, gone) = (made.expect("a change"), gone.expect("a change"));
        assert_eq!((made.before, made.after.as_deref()), (None, Some(r#"{"name":"a"}"#)));
        assert_eq!((gone.before.as_deref(), gone.after), (Some(r#"{"name":"a"}"#), None));
    }
}
