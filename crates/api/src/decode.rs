//! Decoding of a request body to its type, or to the list of all its field errors.
//!
//! A valid body is parsed once, directly into its type. An invalid body is parsed again, as JSON, and validated
//! against the schema of the type, because parsing stops at the first error and the schema finds all of them.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use foundation::error::{Error, FieldError, Result};
use jsonschema::Validator;
use parking_lot::Mutex;
use request::body;
use request::json_depth::is_deeper_than;
use serde_json::Value;

use super::{Operation, Version, generate_schema};

/// The maximum number of field errors in one reply.
pub const FIELD_ERRORS_MAX: usize = 100;
/// The location of an error that is not in a field.
pub const BODY_LOCATION: &str = body::BODY_LOCATION;

/// Decodes a request body.
pub fn decode<V: Version, O: Operation>(body: &[u8]) -> Result<O> {
    if body.is_empty() {
        let message = V::INVALID_JSON_MESSAGE.unwrap_or("the body is empty");
        return body_error(message, Some("send the request as JSON"));
    }
    let depth_max = O::BODY_DEPTH_MAX;
    if is_deeper_than(depth_max, body) {
        return body_error(&format!("the body is nested deeper than {depth_max} levels"), None);
    }
    O::parse(body).or_else(|_| decode_with_field_errors::<V, O>(body))
}

/// Returns all field errors of a body that could not be decoded. Returns the request if the body is valid after all:
/// if a field name occurs twice, the last one applies, which the first parser does not support.
fn decode_with_field_errors<V: Version, O: Operation>(body: &[u8]) -> Result<O> {
    let value = validate::<V>(body, cached_validator::<O>)?;
    serde_path_to_error::deserialize(&value).map_err(|e| {
        let path = e.path().to_string();
        let location = if path == "." { BODY_LOCATION.to_owned() } else { schema_location(&path) };
        Error::invalid(
            location,
            V::format_field_error(&path, without_position(&e.inner().to_string())),
        )
    })
}

/// Returns the JSON of a body, or all errors that a validator finds in it.
fn validate<V: Version>(body: &[u8], validator: fn() -> Arc<Validator>) -> Result<Value> {
    let value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(e) => {
            let message = || format!("the body is not JSON: {}", without_position(&e.to_string()));
            return body_error(
                &V::INVALID_JSON_MESSAGE.map_or_else(message, str::to_owned),
                Some("send the request as JSON, encoded in UTF-8"),
            );
        }
    };
    let errors: Vec<_> = validator()
        .iter_errors(&value)
        .take(FIELD_ERRORS_MAX)
        .map(|e| V::to_field_error(&e))
        .collect();
    match errors.is_empty() {
        true => Ok(value),
        false => Err(Error::Invalid(errors)),
    }
}

/// Converts a JSON pointer to a field path: `/ratelimits/0/duration` becomes `ratelimits[0].duration`.
pub fn path_from_pointer(pointer: &str) -> String {
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

/// Converts a field path to its location in the schema: `keys[0].name` becomes
/// `/properties/keys/items/properties/name`.
fn schema_location(path: &str) -> String {
    let mut location = String::new();
    for part in path.split('.') {
        let (name, items) =
            part.split_once('[').map_or((part, None), |(name, at)| (name, Some(at)));
        if !name.is_empty() {
            location.extend(["/properties/", name]);
        }
        location.push_str(&"/items".repeat(items.map_or(0, |at| at.matches(']').count())));
    }
    location
}

/// Removes the position, such as `at line 1 column 20`, from a serde message. It does not help a caller.
fn without_position(message: &str) -> &str {
    message.split(" at line ").next().unwrap_or(message)
}

fn body_error<T>(message: &str, fix: Option<&'static str>) -> Result<T> {
    Err(Error::Invalid(vec![FieldError {
        location: BODY_LOCATION.into(),
        message: message.into(),
        fix,
    }]))
}

/// Returns the schema of an operation's request. It is generated on first use and then cached.
pub fn cached_schema<O: Operation>() -> Arc<Value> {
    static SCHEMAS: SchemaCache<Value> = LazyLock::new(Mutex::default);
    get_or_create(&SCHEMAS, TypeId::of::<O>(), || generate_schema::<O>().to_value())
}

/// Returns the validator of an operation's request. It is built on first use and then cached.
fn cached_validator<O: Operation>() -> Arc<Validator> {
    static VALIDATORS: SchemaCache<Validator> = LazyLock::new(Mutex::default);
    get_or_create(&VALIDATORS, TypeId::of::<O>(), || {
        jsonschema::validator_for(&cached_schema::<O>()).expect("operation schemas are valid")
    })
}

/// Caches one value per operation type.
type SchemaCache<T> = LazyLock<Mutex<HashMap<TypeId, Arc<T>>>>;

fn get_or_create<T>(cache: &SchemaCache<T>, operation: TypeId, create: fn() -> T) -> Arc<T> {
    cache.lock().entry(operation).or_insert_with(|| Arc::new(create())).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_pointer_is_converted_to_field_path() {
        assert_eq!(path_from_pointer("/ratelimits/0/duration"), "ratelimits[0].duration");
        assert_eq!(path_from_pointer("/name"), "name");
        assert_eq!(path_from_pointer(""), "");
    }

    #[test]
    fn field_path_is_converted_to_schema_location() {
        assert_eq!(schema_location("ipAddress"), "/properties/ipAddress");
        assert_eq!(schema_location("keys[0].meta"), "/properties/keys/items/properties/meta");
        assert_eq!(schema_location("[3].a[0][1]"), "/items/properties/a/items/items");
    }
}
