//! A request that comes in a query: read as if it had come as JSON.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Operation;
use super::decode::schema_of;

/// The JSON that a query stands for. What a field is to be tells how its text is read; text that is none of that
/// stays text, for the schema to refuse.
pub fn body<O: Operation>(query: &str) -> Bytes {
    let schema = schema_of::<O>();
    let fields = &schema["properties"];
    let mut body = Map::new();
    for (name, text) in form_urlencoded::parse(query.as_bytes()) {
        let field = &fields[name.as_ref()];
        if field["type"] == "array" {
            // Repeated, or joined by commas: clients do either.
            let items = text.split(',').filter(|item| !item.is_empty());
            let items = items.map(|item| value(&field["items"], item));
            if let Value::Array(list) = body.entry(name).or_insert_with(|| json!([])) {
                list.extend(items);
            }
        } else {
            // Of two the last counts, as everywhere.
            body.insert(name.into_owned(), value(field, &text));
        }
    }
    Value::Object(body).to_string().into()
}

fn value(field: &Value, text: &str) -> Value {
    let is = |name: &str| match &field["type"] {
        Value::Array(types) => types.iter().any(|known| known == name),
        known => known == name,
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
