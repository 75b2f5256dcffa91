//! Reads a key to import from JSON in the format of `keys.migrateKeys`, with the start of the key, and checks every field.
//! No error message repeats a value: it may be a key.

use std::ops::RangeInclusive;

use domain::bounds::{
    DURATION_MIN_MS, EXPIRES_MAX_MS, EXTERNAL_ID_MAX, KEY_NAME_MAX, KEY_ROLES_MAX, PERMISSIONS_MAX,
    RATELIMIT_NAME_MAX, RATELIMIT_NAME_MIN, RATELIMITS_MAX, REFILL_DAY_MAX, ROLE_NAME_MAX,
    SLUG_MAX,
};
use domain::keys::{ImportedKeyFields, IssuerSettings, NewCredits, NewRatelimit};
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::model::{AllowedChars, Meta, Refill, RefillInterval};
use foundation::secret::KeyHash;
use serde_json::{Map, Value};

use super::super::field_reader::FieldReader;
use super::columns::to_json_text;
use super::hashing::{KeyFault, START_MAX};

/// Reads a key, or returns the errors of all of its fields. Each message begins with the name of the field.
pub fn read_key(key: Map<String, Value>) -> Result<ImportedKeyFields, Vec<String>> {
    let mut fields = FieldReader::default();
    let mut key = JsonObject { fields: &mut fields, path: String::new(), values: key };
    let read = ImportedKeyFields {
        hash: read_hash(&mut key),
        start: key.text("start", 1..=START_MAX, AllowedChars::Printable),
        name: key.text("name", 1..=KEY_NAME_MAX, AllowedChars::Printable),
        external_id: key.text("externalId", 1..=EXTERNAL_ID_MAX, AllowedChars::NonNul),
        meta: key.meta("meta"),
        environment: None,
        roles: key.texts("roles", KEY_ROLES_MAX, ROLE_NAME_MAX, AllowedChars::NonNul),
        permissions: key.texts("permissions", PERMISSIONS_MAX, SLUG_MAX, AllowedChars::Slug),
        expires_at: read_expiry(&mut key),
        enabled: key.boolean("enabled").unwrap_or(true),
        credits: key.object("credits").and_then(read_credits),
        ratelimits: key.objects("ratelimits", RATELIMITS_MAX, read_limit),
        issuer_settings: IssuerSettings::default(),
    };
    match fields.finish(read) {
        Ok(read) => Ok(read),
        Err(Error::Invalid(errors)) => Err(errors.into_iter().map(|e| e.message).collect()),
        Err(other) => Err(vec![other.to_string()]),
    }
}

fn read_hash(key: &mut JsonObject<'_>) -> String {
    if !key.values.contains_key("hash") {
        key.fields.add_error("hash", "key or hash is missing");
    }
    if let Some(fault) = key.values.get("hash").and_then(KeyFault::from_value) {
        key.reject(fault.field(), &fault.rule());
        return String::new();
    }
    let hash = key.string("hash").unwrap_or_default();
    let is_hash = KeyHash::from_hex(&hash).or_else(|| KeyHash::from_base64(&hash)).is_some();
    if !hash.is_empty() && !is_hash {
        key.reject("hash", &KeyFault::Hash.rule());
    }
    hash
}

/// Reads an expiry time in Unix milliseconds.
fn read_expiry(key: &mut JsonObject<'_>) -> Option<Timestamp> {
    let value = key.values.remove("expires")?;
    let ms = to_integer(&value).and_then(|ms| i64::try_from(ms).ok());
    let ms = ms.filter(|ms| (0..=EXPIRES_MAX_MS).contains(ms));
    if ms.is_none() {
        let times = "in Unix milliseconds or such as 2030-12-31T12:00:00Z";
        key.reject("expires", &format!("must be from 1970-01-01 to 2100-01-01, {times}"));
    }
    ms.map(Timestamp)
}

/// Reads credits. `remaining` may be null, which means unlimited.
fn read_credits(mut credits: JsonObject<'_>) -> Option<NewCredits> {
    credits.require(&["remaining"]);
    credits.reject_others_than(&["remaining", "refill"]);
    let is_unlimited = credits.take_null("remaining");
    let balance = credits.integer("remaining", 0..=i64::MAX);
    let refill = credits.object("refill").map(read_refill);
    if is_unlimited && refill.is_some() {
        credits.reject("refill", "requires a number of remaining credits");
    }
    balance.map(|balance| NewCredits { balance, refill })
}

fn read_refill(mut refill: JsonObject<'_>) -> Refill {
    refill.require(&["interval", "amount"]);
    refill.reject_others_than(&["interval", "amount", "refillDay"]);
    let amount = refill.integer("amount", 1..=i64::MAX).unwrap_or_default();
    let day = refill.integer("refillDay", 1..=REFILL_DAY_MAX);
    let interval = refill.string("interval");
    match (interval.as_deref(), day) {
        (None, _) | (Some("daily"), None) | (Some("monthly"), Some(_)) => {}
        (Some("daily"), Some(_)) => refill.reject("refillDay", "is allowed only with monthly"),
        (Some("monthly"), None) => refill.require(&["refillDay"]),
        (Some(_), _) => refill.reject("interval", "must be daily or monthly"),
    }
    let day = day.and_then(|day| u8::try_from(day).ok());
    let interval = day.map_or(RefillInterval::Daily, |day| RefillInterval::Monthly { day });
    Refill { interval, amount }
}

/// Reads a rate limit. Other fields are ignored, as by the API: a reply that contains the limit has more.
fn read_limit(mut limit: JsonObject<'_>) -> NewRatelimit {
    limit.require(&["name", "limit", "duration"]);
    let lengths = RATELIMIT_NAME_MIN..=RATELIMIT_NAME_MAX;
    NewRatelimit {
        name: limit.text("name", lengths, AllowedChars::Printable).unwrap_or_default(),
        limit: limit.integer("limit", 1..=i64::MAX).unwrap_or_default(),
        duration_ms: limit.integer("duration", DURATION_MIN_MS..=i64::MAX).unwrap_or_default(),
        auto_apply: limit.boolean("autoApply").unwrap_or(false),
        is_async: false,
    }
}

/// A JSON object whose fields are taken one by one. A missing field is `None`, and so is one of another type, which is
/// an error.
struct JsonObject<'a> {
    fields: &'a mut FieldReader,
    path: String,
    values: Map<String, Value>,
}

impl<'a> JsonObject<'a> {
    fn new(fields: &'a mut FieldReader, path: String, value: Value) -> Option<Self> {
        match value {
            Value::Object(values) => Some(Self { fields, path, values }),
            _ => {
                fields.reject(&path, "must be an object");
                None
            }
        }
    }

    fn path_of(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    fn reject(&mut self, name: &str, rule: &str) {
        self.fields.reject(&self.path_of(name), rule);
    }

    fn require(&mut self, names: &[&str]) {
        for name in names.iter().filter(|name| !self.values.contains_key(**name)) {
            self.fields.reject(&self.path_of(name), "is missing");
        }
    }

    fn reject_others_than(&mut self, names: &[&str]) {
        if self.values.keys().any(|name| !names.contains(&name.as_str())) {
            let rule = format!("has an unknown field; use only {}", names.join(", "));
            self.fields.reject(&self.path, rule);
        }
    }

    /// Takes a field that may be null. Returns whether it is.
    fn take_null(&mut self, name: &str) -> bool {
        let is_null = self.values.get(name).is_some_and(Value::is_null);
        if is_null {
            self.values.remove(name);
        }
        is_null
    }

    fn take<T>(
        &mut self,
        name: &str,
        kind: &str,
        convert: impl FnOnce(Value) -> Option<T>,
    ) -> Option<T> {
        let value = convert(self.values.remove(name)?);
        if value.is_none() {
            self.reject(name, &format!("must be {kind}"));
        }
        value
    }

    fn string(&mut self, name: &str) -> Option<String> {
        self.take(name, "text", to_string)
    }

    fn text(
        &mut self,
        name: &str,
        lengths: RangeInclusive<usize>,
        chars: AllowedChars,
    ) -> Option<String> {
        let text = self.string(name)?;
        Some(self.fields.text(&self.path_of(name), &text, lengths, chars))
    }

    fn texts(
        &mut self,
        name: &str,
        count_max: usize,
        length_max: usize,
        chars: AllowedChars,
    ) -> Vec<String> {
        let to_strings = |value| to_list(value)?.into_iter().map(to_string).collect();
        let texts: Vec<String> = self.take(name, "a list of texts", to_strings).unwrap_or_default();
        self.fields.texts(&self.path_of(name), &texts, count_max, length_max, chars)
    }

    fn integer(&mut self, name: &str, bounds: RangeInclusive<i64>) -> Option<i64> {
        let value = self.values.remove(name)?;
        Some(self.fields.bounded_integer(&self.path_of(name), to_integer(&value), bounds))
    }

    fn boolean(&mut self, name: &str) -> Option<bool> {
        self.take(name, "true or false", |value| value.as_bool())
    }

    fn meta(&mut self, name: &str) -> Option<Meta> {
        let text = to_json_text(self.values.remove(name)?);
        self.fields.meta(&self.path_of(name), &text)
    }

    fn object(&mut self, name: &str) -> Option<JsonObject<'_>> {
        let (value, path) = (self.values.remove(name)?, self.path_of(name));
        JsonObject::new(self.fields, path, value)
    }

    fn objects<T>(
        &mut self,
        name: &str,
        count_max: usize,
        read: impl Fn(JsonObject<'_>) -> T,
    ) -> Vec<T> {
        let (list, path) =
            (self.take(name, "a list", to_list).unwrap_or_default(), self.path_of(name));
        self.fields.check_count(&path, list.len(), count_max);
        let read = |(at, value): (usize, Value)| {
            JsonObject::new(self.fields, format!("{path}[{at}]"), value).map(&read)
        };
        list.into_iter().enumerate().filter_map(read).collect()
    }
}

fn to_string(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

fn to_list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(list) => Some(list),
        _ => None,
    }
}

/// Converts a number without a fraction, such as `15` or `15.0`.
fn to_integer(value: &Value) -> Option<i128> {
    let whole = |number: &f64| number.fract() == 0.0;
    let from_float = || format!("{:.0}", value.as_f64().filter(whole)?).parse().ok();
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from)).or_else(from_float)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(key: Value) -> Result<ImportedKeyFields, Vec<String>> {
        match key {
            Value::Object(key) => read_key(key),
            _ => panic!("not an object"),
        }
    }

    /// The key with a hash and these fields.
    fn with(fields: Value) -> Value {
        let mut key = json!({ "hash": KeyHash::compute("abc").to_base64() });
        if let (Value::Object(key), Value::Object(fields)) = (&mut key, fields) {
            key.extend(fields);
        }
        key
    }

    fn errors(key: Value) -> Vec<String> {
        read(key).err().unwrap_or_default()
    }

    #[test]
    fn key_is_read_with_every_field() {
        let key = read(with(json!({
            "start": "sk_l", "name": "one", "externalId": "a b", "meta": { "a": [1] }, "roles": ["reader"],
            "permissions": ["docs.read"], "expires": 15.0, "enabled": false,
            "credits": {
                "remaining": 5, "refill": { "interval": "monthly", "amount": 9, "refillDay": 31 },
            },
            "ratelimits": [{ "name": "all", "limit": 1, "duration": 1000, "id": "rl_1" }],
        })));

        let key = key.expect("a key");
        assert_eq!(key.start.as_deref(), Some("sk_l"));
        assert_eq!((key.name.as_deref(), key.external_id.as_deref()), (Some("one"), Some("a b")));
        assert_eq!(key.meta.expect("meta").as_str(), "{\"a\":[1]}");
        assert_eq!((key.roles, key.permissions), (vec!["reader".into()], vec!["docs.read".into()]));
        assert_eq!((key.expires_at, key.enabled), (Some(Timestamp(15)), false));
        let credits = key.credits.expect("credits");
        let refill = Refill { interval: RefillInterval::Monthly { day: 31 }, amount: 9 };
        assert_eq!((credits.balance, credits.refill), (5, Some(refill)));
        let limit = &key.ratelimits[0];
        assert_eq!((limit.limit, limit.duration_ms, limit.auto_apply), (1, 1000, false));
    }

    #[test]
    fn unlimited_credits_and_bounds_of_expiry_are_read() {
        let key = read(with(json!({ "credits": { "remaining": null } }))).expect("a key");

        assert!(key.credits.is_none() && key.enabled);
        let expiry = |ms: i64| read(with(json!({ "expires": ms }))).ok()?.expires_at;
        let expected = [0, EXPIRES_MAX_MS].map(|ms| Some(Timestamp(ms)));
        assert_eq!([0, EXPIRES_MAX_MS].map(expiry), expected);
    }

    #[test]
    fn every_error_of_a_key_is_reported() {
        for (key, expected) in [
            (json!({ "name": "a" }), &["key or hash is missing"] as &[_]),
            (json!({ "hash": 1 }), &["hash must be text"]),
            (with(json!({ "expires": 4_102_444_800_001_i64 })), &["expires must be from"]),
            (with(json!({ "expires": -1 })), &["expires must be from"]),
            (with(json!({ "expires": "soon" })), &["expires must be from"]),
            (json!({ "hash": { "fault": "length" } }), &["key must have 1 to 512 characters"]),
            (
                json!({ "hash": { "fault": "format" } }),
                &["key must have the form prefix_short_long"],
            ),
            (json!({ "hash": { "fault": "other" } }), &["hash must be text"]),
            (with(json!({ "start": "x".repeat(17) })), &["start must have 1 to 16 characters"]),
            (
                with(json!({ "name": "", "enabled": "yes", "roles": "r", "meta": [] })),
                &[
                    "name must have 1 to 255 characters",
                    "meta must be a JSON object",
                    "roles must be a list of texts",
                    "enabled must be true or false",
                ],
            ),
            (
                with(json!({ "permissions": ["a", "b c"], "expires": 1.5 })),
                &[
                    "permissions[1] must contain only letters",
                    "expires must be from 1970-01-01 to 2100-01-01",
                ],
            ),
            (with(json!({ "credits": {} })), &["credits.remaining is missing"]),
            (
                with(
                    json!({ "credits": { "remaining": null, "refill": { "interval": "daily", "amount": 0 } } }),
                ),
                &["credits.refill.amount must be a whole number", "credits.refill requires"],
            ),
            (
                with(
                    json!({ "credits": { "remaining": 1, "refill": { "interval": "monthly", "amount": 1 } } }),
                ),
                &["credits.refill.refillDay is missing"],
            ),
            (
                with(
                    json!({ "credits": { "remaining": 1, "refill": { "interval": "weekly", "amount": 1 } } }),
                ),
                &["credits.refill.interval must be daily or monthly"],
            ),
            (
                with(json!({ "ratelimits": [{ "name": "ab", "limit": 1, "duration": 999 }] })),
                &[
                    "ratelimits[0].name must have 3 to 128 characters",
                    "ratelimits[0].duration must be a whole number of at least 1,000",
                ],
            ),
        ] {
            let found = errors(key);
            let is_expected =
                found.iter().zip(expected).all(|(found, start)| found.starts_with(start));
            assert!(found.len() == expected.len() && is_expected, "{found:?}");
        }
    }

    #[test]
    fn invalid_hash_is_not_repeated() {
        let secret = "prod_5kQmYw8vJt2hXb7nRz4cLp";

        let found = errors(json!({ "hash": secret }));
        assert!(found[0].starts_with("hash must be SHA-256") && !found[0].contains(secret));
    }
}
