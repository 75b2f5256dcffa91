//! Conversion of a query string to the JSON request that it represents.

use bytes::Bytes;
use serde_json::{Map, Value, json};

/// Converts a query string to the JSON of a request with this schema. The schema type of each field determines how its
/// text is parsed. Text that does not parse stays a string, which the schema then rejects.
pub fn body_from_query(schema: &Value, query: &str) -> Bytes {
    let fields = &schema["properties"];
    let mut body = Map::new();
    for (name, text) in form_urlencoded::parse(query.as_bytes()) {
        let field = &fields[name.as_ref()];
        if field["type"] == "array" {
            // Clients repeat the field or join the items with commas.
            let items = text.split(',').filter(|item| !item.is_empty());
            let items = items.map(|item| parse_value(&field["items"], item));
            if let Value::Array(list) = body.entry(name).or_insert_with(|| json!([])) {
                list.extend(items);
            }
        } else {
            // If a field is repeated, the last value applies, as in JSON bodies.
            body.insert(name.into_owned(), parse_value(field, &text));
        }
    }
    Value::Object(body).to_string().into()
}

/// Converts the text of a field to the JSON value that its schema describes.
pub fn parse_value(field: &Value, text: &str) -> Value {
    let is = |name: &str| match &field["type"] {
        Value::Array(types) => types.iter().any(|kind| kind == name),
        kind => kind == name,
    };
    let number = |text: &str| match text.is_empty() {
        true => Some(json!(0)),
        false => text
            .parse::<i64>()
            .map(Value::from)
            .or_else(|_| text.parse::<f64>().map(Value::from))
            .ok(),
    };
    match () {
        () if is("integer") => number(text).unwrap_or_else(|| json!(text)),
        () if is("boolean") => json!(!matches!(text, "" | "0" | "false")),
        () => json!(text),
    }
}
