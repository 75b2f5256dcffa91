//! From bytes to a request, or to every fault that is in them.
//!
//! A body that is right is read once, straight into its type. One that is not is read again, as JSON,
//! and held against the schema of the type, which finds all faults, where reading stops at the first.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use foundation::error::{Error, FieldError, Result};
use jsonschema::Validator;
use serde_json::Value;

use super::bounds::Object;
use super::{Operation, Version, schema};
use crate::request::body;

/// How deeply a body may be nested.
const DEPTH_MAX: usize = 64;
/// More faults than anybody wants to read.
const FAULTS_MAX: usize = 100;
/// Where a fault stands that is not in a field.
pub const BODY: &str = body::LOCATION;

/// Reads a request.
pub fn decode<V: Version, O: Operation>(body: &[u8]) -> Result<O> {
    if body.is_empty() {
        let message = V::NO_JSON.unwrap_or("the body is empty");
        return fault(message, Some("send the request as JSON"));
    }
    if is_too_deep(body) {
        return fault(&format!("the body is nested deeper than {DEPTH_MAX} levels"), None);
    }
    let read = match O::IS_LIST {
        true => serde_json::from_slice(body),
        false => serde_json::from_slice(body).map(|Object(request)| request),
    };
    read.or_else(|_| explain::<V, O>(body))
}

/// Every fault of a body that could not be read, or the request after all: of two fields with one
/// name the last counts, which the first reading does not know.
fn explain<V: Version, O: Operation>(body: &[u8]) -> Result<O> {
    let value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(e) => {
            let told = || format!("the body is not JSON: {}", plain(&e.to_string()));
            return fault(
                &V::NO_JSON.map_or_else(told, str::to_owned),
                Some("send the request as JSON, encoded in UTF-8"),
            );
        }
    };
    let faults: Vec<_> =
        validator::<O>().iter_errors(&value).take(FAULTS_MAX).map(|e| V::fault(&e)).collect();
    if !faults.is_empty() {
        return Err(Error::Invalid(faults));
    }
    serde_path_to_error::deserialize(&value).map_err(|e| {
        let path = e.path().to_string();
        let location = if path == "." { BODY.to_owned() } else { schema_location(&path) };
        Error::invalid(location, V::sentence(&path, plain(&e.inner().to_string())))
    })
}

/// `/ratelimits/0/duration` as `ratelimits[0].duration`.
pub fn field(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        if part.bytes().all(|b| b.is_ascii_digit()) {
            path.extend(["[", part, "]"]);
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(part);
        }
    }
    path
}

/// `keys[0].name` as the place of the field in the schema: `/properties/keys/items/properties/name`.
fn schema_location(path: &str) -> String {
    let mut place = String::new();
    for part in path.split('.') {
        let (name, items) =
            part.split_once('[').map_or((part, None), |(name, at)| (name, Some(at)));
        if !name.is_empty() {
            place.extend(["/properties/", name]);
        }
        place.push_str(&"/items".repeat(items.map_or(0, |at| at.matches(']').count())));
    }
    place
}

/// What serde says without `at line 1 column 20`, which nobody counts.
fn plain(message: &str) -> &str {
    message.split(" at line ").next().unwrap_or(message)
}

fn fault<T>(message: &str, fix: Option<&'static str>) -> Result<T> {
    Err(Error::Invalid(vec![FieldError { location: BODY.into(), message: message.into(), fix }]))
}

/// The schema of an operation's request; made when the first request needs it.
pub fn schema_of<O: Operation>() -> Arc<Value> {
    static KNOWN: SchemaCache<Value> = LazyLock::new(Mutex::default);
    known::<O, _>(&KNOWN, || schema::<O>().to_value())
}

/// The validator of an operation, likewise.
fn validator<O: Operation>() -> Arc<Validator> {
    static KNOWN: SchemaCache<Validator> = LazyLock::new(Mutex::default);
    let make = |schema: &Value| jsonschema::validator_for(schema);
    known::<O, _>(&KNOWN, || make(&schema_of::<O>()).expect("our own schemas are valid"))
}

/// What is known of operations.
type SchemaCache<T> = LazyLock<Mutex<HashMap<TypeId, Arc<T>>>>;

fn known<O: Operation, T>(known: &SchemaCache<T>, make: impl FnOnce() -> T) -> Arc<T> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(TypeId::of::<O>()).or_insert_with(|| Arc::new(make())).clone()
}

/// Whether brackets nest deeper than allowed. Looked at before anything is parsed, so that no parser
/// has to be trusted with it.
fn is_too_deep(body: &[u8]) -> bool {
    // Nearly every body is done with here, many bytes at a time.
    if body.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() <= DEPTH_MAX {
        return false;
    }
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return true;
                }
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_may_nest_64_levels_and_no_more() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));

        assert!(!is_too_deep(deep(64).as_bytes()));
        assert!(is_too_deep(deep(65).as_bytes()));
    }

    #[test]
    fn brackets_within_texts_are_no_nesting() {
        let text = format!("{{\"a\":\"{}\\\"{}\"}}", "[".repeat(100), "{".repeat(100));

        assert!(!is_too_deep(text.as_bytes()));
    }

    #[test]
    fn a_pointer_reads_as_a_path() {
        assert_eq!(field("/ratelimits/0/duration"), "ratelimits[0].duration");
        assert_eq!(field("/name"), "name");
        assert_eq!(field(""), "");
    }

    #[test]
    fn a_path_has_its_place_in_the_schema() {
        assert_eq!(schema_location("ipAddress"), "/properties/ipAddress");
        assert_eq!(schema_location("keys[0].meta"), "/properties/keys/items/properties/meta");
        assert_eq!(schema_location("[3].a[0][1]"), "/items/properties/a/items/items");
    }
}
