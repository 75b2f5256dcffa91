//! The form fields of a key, and the operation requests made from them.
//!
//! The form does not check bounds. A number that is not an integer is passed on as text, and the operation rejects it.

use std::collections::BTreeMap;

use domain::keys::details::KeyDetails;
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::model::{Key, Meta, RefillInterval};
use foundation::secret::KeyHash;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::super::duration_field::parse_number;
use super::super::form::Form;
use super::super::format;
use super::super::limit_rows::LimitRows;

const DAY_MS: i64 = 24 * 60 * 60_000;

/// The options for a key's expiry: never, after a number of days, or at a custom date.
pub const EXPIRY_OPTIONS: [(&str, &str); 7] = [
    ("", "Never"),
    ("1", "In 1 day"),
    ("7", "In 7 days"),
    ("30", "In 30 days"),
    ("90", "In 90 days"),
    ("365", "In 1 year"),
    ("at", "Custom date…"),
];
/// The options for a key's refill interval.
pub const REFILL_OPTIONS: [(&str, &str); 3] =
    [("", "Never"), ("daily", "Daily"), ("monthly", "Monthly")];
/// The form of a key, as submitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyForm {
    pub name: String,
    pub external_id: String,
    pub prefix: String,
    pub bytes: String,
    pub expires: String,
    pub expires_at: String,
    pub is_enabled: bool,
    pub is_recoverable: bool,
    pub remaining: String,
    pub refill: String,
    pub refill_amount: String,
    pub refill_day: String,
    pub limits: LimitRows,
    pub roles: String,
    pub permissions: String,
    pub meta: String,
}

/// A request of an operation by field names. Raw JSON values keep their original text.
pub type KeyRequest = BTreeMap<&'static str, Box<RawValue>>;

/// Normalizes multi-line text: browsers send line breaks as CR LF.
fn normalize_lines(text: &str) -> String {
    text.replace("\r\n", "\n").trim().to_owned()
}

impl KeyForm {
    /// Reads a submitted form. The flag is `true` if the pressed button only adds or removes a limit.
    pub fn from_form(form: &Form) -> (Self, bool) {
        let text = |name: &str| form.text(name).trim().to_owned();
        let (limits, is_step) = LimitRows::from_form(form);
        let fields = Self {
            name: text("name"),
            external_id: text("external-id"),
            prefix: text("prefix"),
            bytes: text("bytes"),
            expires: text("expires"),
            expires_at: text("expires-at"),
            is_enabled: text("enabled") == "on",
            is_recoverable: text("recoverable") == "on",
            remaining: text("remaining"),
            refill: text("refill"),
            refill_amount: text("refill-amount"),
            refill_day: text("refill-day"),
            limits,
            roles: normalize_lines(form.text("roles")),
            permissions: normalize_lines(form.text("permissions")),
            meta: normalize_lines(form.text("meta")),
        };
        (fields, is_step)
    }

    /// Creates the form from a stored key.
    pub fn from_key(key_details: &KeyDetails) -> Self {
        let stored = key_details.found_key.resolved.stored();
        let key = &stored.key;
        let refill = stored.refill;
        let (interval, day) = match refill.map(|refill| refill.interval) {
            None => ("", None),
            Some(RefillInterval::Daily) => ("daily", None),
            Some(RefillInterval::Monthly { day }) => ("monthly", Some(day)),
        };
        let number = |number: i64| number.to_string();
        let mut permissions: Vec<_> = stored.permissions.iter().map(|p| p.slug.as_str()).collect();
        permissions.sort_unstable();
        Self {
            name: key.name.clone().unwrap_or_default(),
            external_id: key.owner_id.clone().unwrap_or_default(),
            expires: key.expires_at.map_or("", |_| "at").to_owned(),
            expires_at: key.expires_at.map(format_minute).unwrap_or_default(),
            is_enabled: key.is_enabled,
            refill: interval.to_owned(),
            refill_amount: refill.map(|refill| number(refill.amount)).unwrap_or_default(),
            refill_day: day.map(|day| number(day.into())).unwrap_or_default(),
            limits: LimitRows::from_limits(&stored.ratelimits),
            roles: key_details.found_key.resolved.roles.join("\n"),
            permissions: permissions.join("\n"),
            meta: format_meta(key).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Serializes the original values. The form carries them in a hidden field, so that the changes can be determined
    /// later.
    pub fn serialize_original(&self) -> String {
        json!(Self { meta: mark(&self.meta), ..self.clone() }).to_string()
    }

    /// Builds the request of `keys.createKey`.
    pub fn to_create(&self, api: &str, now: Timestamp) -> Result<KeyRequest> {
        let mut request = KeyRequest::new();
        insert_field(&mut request, "apiId", &api)?;
        for (name, text) in
            [("name", &self.name), ("externalId", &self.external_id), ("prefix", &self.prefix)]
        {
            if !text.is_empty() {
                insert_field(&mut request, name, text)?;
            }
        }
        if !self.bytes.is_empty() {
            insert_field(&mut request, "byteLength", &parse_number(&self.bytes))?;
        }
        if let Some(at) = self.parse_expiry(now)? {
            insert_field(&mut request, "expires", &at)?;
        }
        insert_field(&mut request, "enabled", &self.is_enabled)?;
        if self.is_recoverable {
            insert_field(&mut request, "recoverable", &true)?;
        }
        let refill = self.refill_request();
        if !self.remaining.is_empty() || refill.is_some() {
            let remaining = (!self.remaining.is_empty()).then(|| parse_number(&self.remaining));
            let mut credits = json!({ "remaining": remaining });
            if let Some(refill) = refill {
                credits["refill"] = refill;
            }
            insert_field(&mut request, "credits", &credits)?;
        }
        insert_field(&mut request, "ratelimits", &self.limits.asked())?;
        insert_field(&mut request, "roles", &split_names(&self.roles))?;
        insert_field(&mut request, "permissions", &split_names(&self.permissions))?;
        if !self.meta.is_empty() {
            request.insert("meta", self.raw_meta()?);
        }
        Ok(request)
    }

    /// Builds the request of `keys.updateKey` with only the fields that differ from the original values, as serialized
    /// for the hidden field. Empty: nothing differs.
    pub fn to_update(&self, was: &Self, now: Timestamp) -> Result<KeyRequest> {
        let mut request = KeyRequest::new();
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        if self.name != was.name {
            insert_field(&mut request, "name", &some(&self.name))?;
        }
        if self.external_id != was.external_id {
            insert_field(&mut request, "externalId", &some(&self.external_id))?;
        }
        if (&self.expires, &self.expires_at) != (&was.expires, &was.expires_at) {
            insert_field(&mut request, "expires", &self.parse_expiry(now)?)?;
        }
        if self.is_enabled != was.is_enabled {
            insert_field(&mut request, "enabled", &self.is_enabled)?;
        }
        if self.refill_request() != was.refill_request() {
            insert_field(&mut request, "credits", &json!({ "refill": self.refill_request() }))?;
        }
        if self.limits.asked() != was.limits.asked() {
            insert_field(&mut request, "ratelimits", &self.limits.asked())?;
        }
        if self.roles != was.roles {
            insert_field(&mut request, "roles", &split_names(&self.roles))?;
        }
        if self.permissions != was.permissions {
            insert_field(&mut request, "permissions", &split_names(&self.permissions))?;
        }
        if mark(&self.meta) != was.meta {
            match self.meta.is_empty() {
                true => insert_field(&mut request, "meta", &Value::Null)?,
                false => drop(request.insert("meta", self.raw_meta()?)),
            }
        }
        Ok(request)
    }

    fn raw_meta(&self) -> Result<Box<RawValue>> {
        RawValue::from_string(self.meta.clone())
            .map_err(|e| Error::invalid("meta", format!("Metadata isn't valid JSON: {e}")))
    }

    /// Returns when the key expires, in Unix milliseconds.
    fn parse_expiry(&self, now: Timestamp) -> Result<Option<i64>> {
        let invalid = || {
            let message = "expires: enter a date and time, such as 2030-12-31T12:00";
            Error::invalid("expires", message)
        };
        match self.expires.as_str() {
            "" => Ok(None),
            "at" => {
                let at: DateTime = self.expires_at.parse().map_err(|_| invalid())?;
                let at = at.to_zoned(TimeZone::UTC).map_err(|_| invalid())?;
                Ok(Some(at.timestamp().as_millisecond()))
            }
            days => {
                let days: i64 = days.parse().map_err(|_| invalid())?;
                Ok(Some(now.plus_ms(days.saturating_mul(DAY_MS)).0))
            }
        }
    }

    fn refill_request(&self) -> Option<Value> {
        if self.refill.is_empty() {
            return None;
        }
        let mut refill =
            json!({ "interval": self.refill, "amount": parse_number(&self.refill_amount) });
        if self.refill == "monthly" && !self.refill_day.is_empty() {
            refill["refillDay"] = parse_number(&self.refill_day);
        }
        Some(refill)
    }
}

fn insert_field(
    request: &mut KeyRequest,
    name: &'static str,
    value: &impl Serialize,
) -> Result<()> {
    let raw = to_raw_value(value).map_err(|e| Error::Internal(e.to_string()))?;
    request.insert(name, raw);
    Ok(())
}

/// Returns a hash that identifies the metadata, so that the form need not carry long metadata twice.
fn mark(meta: &str) -> String {
    if meta.is_empty() { String::new() } else { KeyHash::compute(meta).to_hex() }
}

/// Splits text into names, one per line.
fn split_names(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// Formats a time in UTC for a `datetime-local` field.
fn format_minute(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M").to_string()
}

/// Returns the metadata of a key as formatted JSON.
pub fn format_meta(key: &Key) -> Option<String> {
    key.meta.as_ref().map(Meta::as_str).map(format::format_json)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp(1_773_144_000_000);

    fn to_json(request: Result<KeyRequest>) -> Value {
        json!(request.expect("a request"))
    }

    #[test]
    fn to_create_sends_only_required_fields_when_form_is_empty() {
        let (fields, _) = KeyForm::from_form(&Form::parse(
            b"enabled=on&limit-name=&limit-limit=&limit-duration=1",
        ));

        let bare = json!({
            "apiId": "api_1", "enabled": true, "ratelimits": [], "roles": [], "permissions": [],
        });
        assert_eq!(to_json(fields.to_create("api_1", NOON)), bare);
    }

    #[test]
    fn to_update_sends_changed_fields_and_clears_emptied_ones() {
        let was = KeyForm {
            name: "old".into(),
            external_id: "user_1".into(),
            meta: "{\n  \"a\": 1\n}".into(),
            ..KeyForm::default()
        };
        let marked: KeyForm = serde_json::from_str(&was.serialize_original()).expect("the fields");
        let now = KeyForm { name: "new".into(), external_id: String::new(), ..was.clone() };

        assert_eq!(
            to_json(now.to_update(&marked, NOON)),
            json!({ "name": "new", "externalId": null })
        );
        assert_eq!(to_json(was.to_update(&marked, NOON)), json!({}));
        let emptied = KeyForm { meta: String::new(), ..was.clone() };
        assert_eq!(to_json(emptied.to_update(&marked, NOON)), json!({ "meta": null }));
    }

    #[test]
    fn parse_expiry_accepts_days_and_utc_times() {
        let ends = |expires: &str, at: &str| {
            let fields =
                KeyForm { expires: expires.into(), expires_at: at.into(), ..KeyForm::default() };
            fields.parse_expiry(NOON)
        };

        assert_eq!(ends("", "2030-01-01T00:00").expect("never"), None);
        assert_eq!(ends("7", "").expect("a moment"), Some(NOON.plus_ms(7 * DAY_MS).0));
        assert_eq!(ends("at", "1970-01-01T00:01").expect("a moment"), Some(60_000));
        assert!(ends("at", "tomorrow").is_err() && ends("soon", "").is_err());
        assert_eq!(format_minute(Timestamp(60_000)), "1970-01-01T00:01");
    }

    #[test]
    fn to_create_keeps_text_of_meta() {
        let fields =
            KeyForm { meta: "{\"n\":12345678901234567890123}".into(), ..KeyForm::default() };

        let request = fields.to_create("api_1", NOON).expect("a request");
        assert_eq!(request["meta"].get(), "{\"n\":12345678901234567890123}");
        assert!(KeyForm { meta: "{".into(), ..fields }.to_create("api_1", NOON).is_err());
    }
}
