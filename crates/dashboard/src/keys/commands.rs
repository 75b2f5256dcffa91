//! Reads the form of a key as the key to create or the change to make.

use domain::bounds::{
    EXTERNAL_ID_MAX, KEY_BYTES_MAX, KEY_BYTES_MIN, KEY_NAME_MAX, KEY_PREFIX_MAX, KEY_ROLES_MAX,
    PERMISSIONS_MAX, REFILL_DAY_MAX, ROLE_NAME_MAX, SLUG_MAX,
};
use domain::keys::{CreditsChange, KeyChange, NewCredits, NewKey, Patch, RatelimitsChange};
use domain::rbac::{MissingPolicy, Selector};
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::ApiId;
use foundation::model::{AllowedChars, Meta, Refill, RefillInterval};
use foundation::secret::START_LENGTH;

use super::super::expiry_field::read_expiry;
use super::super::field_reader::FieldReader;
use super::fields::{KeyForm, mark};

impl KeyForm {
    /// Reads the key to create.
    pub fn to_create(&self, api_id: &ApiId, now: Timestamp) -> Result<NewKey> {
        let mut fields = FieldReader::default();
        let bytes = KEY_BYTES_MIN..=KEY_BYTES_MAX;
        let byte_length = fields.optional_integer("byteLength", &self.bytes, bytes);
        let permissions = self.read_permissions(&mut fields);
        let new = NewKey {
            api_id: api_id.clone(),
            prefix: fields.optional_text(
                "prefix",
                &self.prefix,
                KEY_PREFIX_MAX,
                AllowedChars::Word,
            ),
            unprefixed_start_length: START_LENGTH,
            name: self.read_name(&mut fields),
            byte_length: byte_length.and_then(|length| u8::try_from(length).ok()),
            external_id: self.read_external_id(&mut fields),
            meta: self.read_meta(&mut fields),
            environment: None,
            roles: self.read_roles(&mut fields),
            permissions,
            expires_at: self.read_expiry(&mut fields, now),
            credits: self.read_credits(&mut fields),
            ratelimits: self.limits.read(&mut fields),
            enabled: self.is_enabled,
            is_recoverable: self.is_recoverable,
        };
        fields.finish(new)
    }

    /// Reads the change from the original values, as serialized for the hidden field. A field that does not differ is
    /// neither changed nor checked.
    pub fn to_update(&self, was: &Self, now: Timestamp) -> Result<KeyChange> {
        let mut fields = FieldReader::default();
        let mut change = KeyChange::default();
        if self.name != was.name {
            change.name = self.read_name(&mut fields).into();
        }
        if self.external_id != was.external_id {
            change.external_id = self.read_external_id(&mut fields).into();
        }
        if (&self.expires, &self.expires_at) != (&was.expires, &was.expires_at) {
            change.expires_at = self.read_expiry(&mut fields, now).into();
        }
        if self.is_enabled != was.is_enabled {
            change.enabled = Some(self.is_enabled);
        }
        if self.refill_fields() != was.refill_fields() {
            let refill = self.read_refill(&mut fields).into();
            change.credits = Patch::Set(CreditsChange { refill, ..CreditsChange::default() });
        }
        if self.limits.differ_from(&was.limits) {
            change.ratelimits = RatelimitsChange::All(self.limits.read(&mut fields));
        }
        if self.roles != was.roles {
            let roles = self.read_roles(&mut fields);
            change.roles = Some(Selector::from_names(roles, MissingPolicy::Reject));
        }
        if self.permissions != was.permissions {
            change.permissions = Some(self.read_permissions(&mut fields));
        }
        if mark(&self.meta) != was.meta {
            change.meta = self.read_meta(&mut fields).into();
        }
        fields.finish(change)
    }

    fn read_name(&self, fields: &mut FieldReader) -> Option<String> {
        fields.optional_text("name", &self.name, KEY_NAME_MAX, AllowedChars::Printable)
    }

    fn read_external_id(&self, fields: &mut FieldReader) -> Option<String> {
        let text = &self.external_id;
        fields.optional_text("externalId", text, EXTERNAL_ID_MAX, AllowedChars::ExternalId)
    }

    fn read_roles(&self, fields: &mut FieldReader) -> Vec<String> {
        let names = split_names(&self.roles);
        fields.texts("roles", &names, KEY_ROLES_MAX, ROLE_NAME_MAX, AllowedChars::NonNul)
    }

    fn read_permissions(&self, fields: &mut FieldReader) -> Vec<Selector> {
        let slugs = split_names(&self.permissions);
        let slugs =
            fields.texts("permissions", &slugs, PERMISSIONS_MAX, SLUG_MAX, AllowedChars::Slug);
        Selector::from_ids_or_slugs(slugs, MissingPolicy::Create)
    }

    fn read_meta(&self, fields: &mut FieldReader) -> Option<Meta> {
        if self.meta.is_empty() { None } else { fields.meta("meta", &self.meta) }
    }

    fn read_expiry(&self, fields: &mut FieldReader, now: Timestamp) -> Option<Timestamp> {
        read_expiry(fields, &self.expires, &self.expires_at, now)
    }

    fn read_credits(&self, fields: &mut FieldReader) -> Option<NewCredits> {
        let refill = self.read_refill(fields);
        let balance = fields.optional_integer("credits.remaining", &self.remaining, 0..=i64::MAX);
        if balance.is_none() && refill.is_some() {
            fields.reject("credits.refill", "requires a number of remaining credits");
        }
        balance.map(|balance| NewCredits { balance, refill })
    }

    /// Returns the fields that describe the refill: interval, amount and, if it is used, day.
    fn refill_fields(&self) -> Option<[&str; 3]> {
        let day = if self.refill == "monthly" { self.refill_day.as_str() } else { "" };
        (!self.refill.is_empty()).then_some([&self.refill, &self.refill_amount, day])
    }

    fn read_refill(&self, fields: &mut FieldReader) -> Option<Refill> {
        let [interval, amount, day] = self.refill_fields()?;
        let interval = match interval {
            "daily" => RefillInterval::Daily,
            "monthly" => {
                let path = "credits.refill.refillDay";
                let day = fields.integer(path, day, 1..=REFILL_DAY_MAX);
                RefillInterval::Monthly { day: u8::try_from(day).unwrap_or_default() }
            }
            _ => {
                fields.reject("credits.refill.interval", "must be daily or monthly");
                return None;
            }
        };
        let amount = fields.integer("credits.refill.amount", amount, 1..=i64::MAX);
        Some(Refill { interval, amount })
    }
}

/// Splits text into names, one per line.
fn split_names(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use foundation::clock::DAY_MS;
    use foundation::error::Error;

    use super::super::super::form::Form;
    use super::*;

    const NOON: Timestamp = Timestamp(1_773_144_000_000);

    /// The locations of the errors of a form for a new key.
    fn invalid_fields(form: &KeyForm) -> Vec<String> {
        match form.to_create(&ApiId::from("api_1"), NOON) {
            Err(Error::Invalid(errors)) => errors.into_iter().map(|e| e.location).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn to_create_reads_a_bare_key_when_form_is_empty() {
        let (form, _) = KeyForm::from_form(&Form::parse(
            b"enabled=on&limit-name=&limit-limit=&limit-duration=1",
        ));

        let new = form.to_create(&ApiId::from("api_1"), NOON).expect("a key");
        assert!(new.enabled && !new.is_recoverable && new.api_id.as_str() == "api_1");
        assert_eq!((new.name, new.prefix, new.external_id), (None, None, None));
        assert_eq!((new.byte_length, new.expires_at), (None, None));
        assert!(new.credits.is_none() && new.meta.is_none() && new.ratelimits.is_empty());
        assert!(new.roles.is_empty() && new.permissions.is_empty());
    }

    #[test]
    fn to_create_reports_every_invalid_field() {
        let form = KeyForm {
            prefix: "a-b".into(),
            bytes: "15".into(),
            external_id: "a b".into(),
            expires: "at".into(),
            remaining: "some".into(),
            refill: "monthly".into(),
            refill_amount: "0".into(),
            permissions: "a\nno slug".into(),
            meta: "[1]".into(),
            ..KeyForm::default()
        };

        let mut invalid = invalid_fields(&form);
        invalid.sort();
        let expected = [
            "byteLength",
            "credits.refill.amount",
            "credits.refill.refillDay",
            "credits.remaining",
            "expires",
            "externalId",
            "meta",
            "permissions",
            "prefix",
        ];
        assert_eq!(invalid, expected);
    }

    #[test]
    fn to_create_requires_credits_when_they_are_refilled() {
        let daily =
            KeyForm { refill: "daily".into(), refill_amount: "5".into(), ..KeyForm::default() };
        let unknown = KeyForm { refill: "weekly".into(), ..daily.clone() };

        assert_eq!(invalid_fields(&daily), ["credits.refill"]);
        assert_eq!(invalid_fields(&unknown), ["credits.refill.interval"]);
        let metered = KeyForm { remaining: "7".into(), refill_day: "x".into(), ..daily };
        let new = metered.to_create(&ApiId::from("api_1"), NOON).expect("a key");
        let refill = Refill { interval: RefillInterval::Daily, amount: 5 };
        let credits = new.credits.expect("credits");
        assert_eq!((credits.balance, credits.refill), (7, Some(refill)));
    }

    #[test]
    fn to_update_changes_edited_fields_and_clears_emptied_ones() {
        let was = KeyForm {
            name: "old".into(),
            external_id: "user_1".into(),
            meta: "{\n  \"a\": 1\n}".into(),
            ..KeyForm::default()
        };
        let marked: KeyForm = serde_json::from_str(&was.serialize_original()).expect("the fields");
        let change = |now: &KeyForm| now.to_update(&marked, NOON).expect("a change");

        assert!(change(&was).is_empty());
        let edited = change(&KeyForm {
            name: "new".into(),
            external_id: String::new(),
            meta: String::new(),
            ..was.clone()
        });
        assert_eq!((edited.name, edited.external_id), (Patch::Set("new".into()), Patch::Clear));
        assert!(matches!(edited.meta, Patch::Clear) && edited.roles.is_none());
    }

    #[test]
    fn to_update_does_not_check_unchanged_fields() {
        let was = KeyForm { name: "n".repeat(KEY_NAME_MAX + 1), ..KeyForm::default() };
        let now = KeyForm { is_enabled: true, ..was.clone() };

        assert_eq!(now.to_update(&was, NOON).expect("a change").enabled, Some(true));
        let renamed = KeyForm { name: "m".repeat(KEY_NAME_MAX + 1), ..was.clone() };
        assert!(renamed.to_update(&was, NOON).is_err());
    }

    #[test]
    fn read_expiry_accepts_days_and_utc_times() {
        let read = |expires: &str, at: &str| {
            let form =
                KeyForm { expires: expires.into(), expires_at: at.into(), ..KeyForm::default() };
            form.to_create(&ApiId::from("api_1"), NOON).map(|new| new.expires_at)
        };

        assert_eq!(read("", "2030-01-01T00:00").expect("never"), None);
        assert_eq!(read("7", "").expect("a time"), Some(NOON.plus_ms(7 * DAY_MS)));
        assert_eq!(read("at", "1970-01-01T00:01").expect("a time"), Some(Timestamp(60_000)));
        assert!(read("at", "tomorrow").is_err() && read("soon", "").is_err());
    }

    #[test]
    fn to_create_keeps_text_of_meta() {
        let text = "{\"n\":12345678901234567890123}";
        let form = KeyForm { meta: text.into(), ..KeyForm::default() };

        let new = form.to_create(&ApiId::from("api_1"), NOON).expect("a key");
        assert_eq!(new.meta.expect("meta").as_str(), text);
    }
}
