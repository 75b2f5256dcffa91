//! Conversion of a form to the JSON request that it represents.

use bytes::Bytes;
use foundation::error::{Error, Result};
use serde_json::{Map, Value};

use super::query::parse_value;

/// Converts a form to the JSON of a request with this schema, by the rules of OAuth (RFC 6749, 3.2): a field without a
/// value counts as omitted, a field that the schema does not have is ignored, and a repeated field is an error.
pub fn body_from_form(schema: &Value, form: &[u8]) -> Result<Bytes> {
    let fields = &schema["properties"];
    let mut body = Map::new();
    for (name, text) in form_urlencoded::parse(form) {
        let Some(field) = fields.get(&*name).filter(|_| !text.is_empty()) else { continue };
        if body.contains_key(&*name) {
            let message = format!("{name} must be given once");
            return Err(Error::invalid(format!("/properties/{name}"), message));
        }
        body.insert(name.into_owned(), parse_value(field, &text));
    }
    Ok(Value::Object(body).to_string().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn convert(form: &str) -> Result<Value> {
        let schema = json!({
            "properties": { "token": { "type": "string" }, "cost": { "type": "integer" } },
        });
        let body = body_from_form(&schema, form.as_bytes())?;
        Ok(serde_json::from_slice(&body).expect("JSON"))
    }

    #[test]
    fn fields_are_decoded_and_typed() {
        let json = convert("token=a%2Bb+c%26&cost=5").expect("a request");

        assert_eq!(json, json!({ "token": "a+b c&", "cost": 5 }));
    }

    #[test]
    fn empty_and_unknown_fields_are_ignored() {
        let json = convert("token=&cost&other=1&other=2&=x&&").expect("a request");

        assert_eq!(json, json!({}));
    }

    #[test]
    fn text_that_is_no_number_stays_text() {
        assert_eq!(convert("cost=1x").expect("a request"), json!({ "cost": "1x" }));
        assert_eq!(convert("cost=1.5").expect("a request"), json!({ "cost": 1.5 }));
    }

    #[test]
    fn repeated_field_is_an_error_that_names_it() {
        let error = convert("token=a&token=a").expect_err("an error");

        assert_eq!(error.field_errors()[0].message, "token must be given once");
        assert_eq!(error.field_errors()[0].location, "/properties/token");
    }
}
