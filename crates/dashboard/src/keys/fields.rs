//! The form fields of a key.

use domain::keys::details::KeyDetails;
use foundation::model::{Key, Meta, RefillInterval};
use foundation::secret::KeyHash;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::form::Form;
use super::super::format::{self, format_minute};
use super::super::limit_rows::LimitRows;
use super::name_choice::{SubmittedNames, join_names};

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
    /// The names of roles, sorted, one per line.
    pub roles: String,
    /// The slugs of direct permissions, likewise.
    pub permissions: String,
    /// The names that are typed instead of checked.
    #[serde(skip)]
    pub typed_roles: String,
    #[serde(skip)]
    pub typed_permissions: String,
    pub meta: String,
}

/// Normalizes multi-line text: browsers send line breaks as CR LF.
fn normalize_lines(text: &str) -> String {
    text.replace("\r\n", "\n").trim().to_owned()
}

impl KeyForm {
    /// Reads a submitted form. The flag is `true` if the pressed button only adds or removes a limit.
    pub fn from_form(form: &Form) -> (Self, bool) {
        let text = |name: &str| form.text(name).trim().to_owned();
        let (limits, is_step) = LimitRows::from_form(form);
        let roles = SubmittedNames::from_form(form, "role", "roles");
        let permissions = SubmittedNames::from_form(form, "permission", "permissions");
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
            roles: roles.all,
            permissions: permissions.all,
            typed_roles: roles.typed,
            typed_permissions: permissions.typed,
            meta: normalize_lines(form.text("meta")),
        };
        (fields, is_step)
    }

    /// Creates the form from a stored key.
    pub fn from_key(key_details: &KeyDetails) -> Self {
        let stored = &key_details.found_key.stored;
        let key = &stored.key;
        let refill = stored.refill;
        let (interval, day) = match refill.map(|refill| refill.interval) {
            None => ("", None),
            Some(RefillInterval::Daily) => ("daily", None),
            Some(RefillInterval::Monthly { day }) => ("monthly", Some(day)),
        };
        let number = |number: i64| number.to_string();
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
            roles: join_names(key_details.found_key.resolved.roles().iter().map(String::as_str)),
            permissions: join_names(stored.permissions.iter().map(|p| p.slug.as_str())),
            meta: format_meta(key).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Returns whether the fields about the format of the key are filled in.
    pub fn has_format(&self) -> bool {
        self.is_recoverable || !self.prefix.is_empty() || !self.bytes.is_empty()
    }

    /// Returns whether roles or permissions are selected.
    pub fn has_rights(&self) -> bool {
        !self.roles.is_empty() || !self.permissions.is_empty()
    }

    /// Serializes the original values. The form carries them in a hidden field, so that the changes can be determined
    /// later.
    pub fn serialize_original(&self) -> String {
        json!(Self { meta: mark(&self.meta), ..self.clone() }).to_string()
    }
}

/// Returns a hash that identifies the metadata, so that the form need not carry long metadata twice.
pub fn mark(meta: &str) -> String {
    if meta.is_empty() { String::new() } else { KeyHash::compute(meta).to_hex() }
}

/// Returns the metadata of a key as formatted JSON.
pub fn format_meta(key: &Key) -> Option<String> {
    key.meta.as_ref().map(Meta::as_str).map(format::format_json)
}
