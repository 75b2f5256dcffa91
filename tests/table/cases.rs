//! Generates values on both sides of every bound in the schema of an operation.

use api::OperationEntry;
use serde_json::{Value, json};

/// A body on one side of a bound.
pub struct Case {
    pub body: Value,
    /// The location of the bound in the schema.
    pub location: String,
    /// The path of the field from the top of the request: `refill.amount`.
    pub path: String,
    /// The field's name, which an error must contain.
    pub field: String,
    pub refused: bool,
}

/// Returns the pointer to the first object of a body, and the location of its schema: a body is an object, or a list of
/// objects.
pub fn object_of(row: &OperationEntry) -> (&'static str, &'static str) {
    if (row.request)().to_value()["type"] == "array" { ("/0", "/items") } else { ("", "") }
}

/// Returns both sides of each bound of a request: the body is the example with one value replaced.
pub fn cases(row: &OperationEntry) -> Vec<Case> {
    let (schema, example) = ((row.request)().to_value(), (row.example)());
    let mut cases = Vec::new();
    walk(&schema, "", &mut Vec::new(), &mut |schema, location, path| {
        for (keyword, value, refused) in probes(schema) {
            let mut body = example.clone();
            put(&mut body, path, value);
            let (path, field) = (path.join("."), path.last().cloned().unwrap_or_default());
            let location = format!("{location}/{keyword}");
            cases.push(Case { body, location, path, field, refused });
        }
    });
    let (pointer, location) = object_of(row);
    let required = &schema.pointer(location).unwrap()["required"];
    for field in required.as_array().into_iter().flatten() {
        let mut body = example.clone();
        let field = field.as_str().unwrap().to_owned();
        body.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(&field);
        let path = format!("{pointer}/{field}").trim_start_matches('/').replace('/', ".");
        let location = format!("{location}/required");
        cases.push(Case { body, location, path, field, refused: true });
    }
    cases
}

type Visit<'a> = &'a mut dyn FnMut(&Value, &str, &[String]);

fn walk(schema: &Value, location: &str, path: &mut Vec<String>, visit: Visit<'_>) {
    visit(schema, location, path);
    let is_meta = schema["additionalProperties"] == true;
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        if is_meta {
            continue;
        }
        path.push(name.clone());
        walk(inner, &format!("{location}/properties/{name}"), path, visit);
        path.pop();
    }
    if let Some(items) = schema.get("items") {
        path.push("0".into());
        walk(items, &format!("{location}/items"), path, visit);
        path.pop();
    }
}

/// Returns values just outside and just inside each bound of one schema.
fn probes(schema: &Value) -> Vec<(&'static str, Value, bool)> {
    let mut probes = Vec::new();
    let bound = |name: &str| schema[name].as_i64();
    let text = |length: i64| json!("a".repeat(usize::try_from(length.max(0)).unwrap()));
    if let Some(min) = bound("minLength").filter(|min| *min > 0) {
        probes.push(("minLength", text(min - 1), true));
        probes.push(("minLength", text(min), false));
    }
    if let Some(max) = bound("maxLength") {
        probes.push(("maxLength", text(max + 1), true));
        probes.push(("maxLength", text(max), false));
    }
    if schema.get("pattern").is_some() {
        probes.push(("pattern", json!("aaaaaaaa\u{0}"), true));
    }
    if let Some(min) = bound("minimum") {
        // Below the minimum of the 64-bit range there is only a float.
        let less = min.checked_sub(1).map_or_else(|| json!(-1e19), |less| json!(less));
        probes.push(("minimum", less, true));
        probes.push(("minimum", json!(min), false));
    }
    if let Some(max) = bound("maximum") {
        let over = json!(u64::try_from(max).unwrap() + 1);
        probes.push(("maximum", over, true));
        probes.push(("maximum", json!(max), false));
    }
    let list =
        |items: i64| json!(vec![instance(&schema["items"]); usize::try_from(items).unwrap()]);
    if let Some(min) = bound("minItems").filter(|min| *min > 0) {
        probes.push(("minItems", list(min - 1), true));
        probes.push(("minItems", list(min), false));
    }
    if let Some(max) = bound("maxItems") {
        probes.push(("maxItems", list(max + 1), true));
        probes.push(("maxItems", list(max), false));
    }
    if let Some(max) = bound("maxProperties") {
        let object =
            |fields: i64| Value::Object((0..fields).map(|n| (format!("f{n}"), json!(n))).collect());
        probes.push(("maxProperties", object(max + 1), true));
        probes.push(("maxProperties", object(max), false));
    }
    probes.push(("type", wrong_type(schema), true));
    if schema["type"] == "object" {
        // The order of the fields does not matter either.
        let fields = schema["properties"].as_object().into_iter().flatten();
        let values: Vec<_> = fields.map(|(_, field)| instance(field)).collect();
        probes.push(("type", json!(values), true));
    }
    if let Some(first) = schema["enum"][0].as_str() {
        probes.push(("type", json!({ first: null }), true));
    }
    if schema["type"] == "integer" && bound("minimum").is_some_and(|min| min <= 16) {
        probes.push(("type", json!(16.0), false));
        probes.push(("type", json!(16.5), true));
    }
    probes
}

/// Returns a value of a type that the schema does not accept; null if it is not nullable.
fn wrong_type(schema: &Value) -> Value {
    let nullable = schema["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
    if nullable || schema.get("anyOf").is_some() { json!([[]]) } else { Value::Null }
}

/// Returns any value that the schema accepts.
fn instance(schema: &Value) -> Value {
    if let Some(one) = schema["enum"].get(0) {
        return one.clone();
    }
    let first = |types: &Value| types.as_array().map_or(types.clone(), |types| types[0].clone());
    match first(&schema["type"]).as_str() {
        Some("string") => {
            json!("a".repeat(usize::try_from(schema["minLength"].as_i64().unwrap_or(1)).unwrap()))
        }
        Some("integer") => schema["minimum"].clone(),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        _ => {
            let required = schema["required"].as_array().into_iter().flatten();
            let field = |name: &Value| {
                let name = name.as_str().unwrap();
                (name.to_owned(), instance(&schema["properties"][name]))
            };
            Value::Object(required.map(field).collect())
        }
    }
}

/// Sets a value at a path, creating missing parents.
fn put(body: &mut Value, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        *body = value;
        return;
    };
    if let Ok(at) = first.parse::<usize>() {
        if !body.is_array() {
            *body = json!([]);
        }
        let list = body.as_array_mut().unwrap();
        while list.len() <= at {
            list.push(Value::Null);
        }
        put(&mut list[at], rest, value);
    } else {
        if !body.is_object() {
            *body = json!({});
        }
        put(&mut body[first.as_str()], rest, value);
    }
}
