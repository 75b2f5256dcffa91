//! The form fields of an identity, and the identity or the change that they describe.

use domain::bounds::EXTERNAL_ID_MAX;
use domain::identities::{IdentityChange, NewIdentity};
use foundation::error::{Error, Result};
use foundation::model::{AllowedChars, Identity, Meta};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::field_reader::FieldReader;
use super::super::form::Form;
use super::super::keys::mark;
use super::super::limit_rows::LimitRows;

/// Limits the metadata in a form, in bytes. The API accepts more.
const META_MAX_BYTES: usize = 32 * 1024;

/// The fields of the form.
pub struct IdentityForm {
    pub external_id: String,
    pub meta: String,
    /// Whether the metadata is too large for the form and stays unchanged.
    pub keeps_meta: bool,
    pub limits: LimitRows,
    /// The original values, serialized, so that concurrent changes of untouched fields are kept. Empty for a new identity.
    pub original: String,
}

/// The original values of a form.
#[derive(Serialize, Deserialize)]
struct OriginalFields {
    /// Identifies the metadata, so that the form need not carry it twice.
    meta: String,
    limits: LimitRows,
}

/// Returns the displayed metadata and whether it was truncated. `None`: there is no metadata.
pub fn truncated_meta(meta: Option<&Meta>) -> Option<(String, bool)> {
    let text = meta.filter(|meta| !meta.is_empty())?.as_str();
    let end = text.floor_char_boundary(META_MAX_BYTES);
    Some((text[..end].to_owned(), end < text.len()))
}

impl IdentityForm {
    /// Creates the form from a stored identity.
    pub fn from_identity(identity: &Identity) -> Self {
        let shown = truncated_meta(identity.meta.as_ref());
        let keeps_meta = shown.as_ref().is_some_and(|(_, is_cut)| *is_cut);
        let meta = if keeps_meta { None } else { shown }.map(|shown| shown.0).unwrap_or_default();
        let limits = LimitRows::from_limits(&identity.ratelimits);
        let original = OriginalFields { meta: mark_meta(&meta), limits: limits.clone() };
        Self {
            external_id: identity.external_id.clone(),
            meta,
            keeps_meta,
            limits,
            original: json!(original).to_string(),
        }
    }

    /// Reads a submitted form. The flag is `true` if the pressed button only adds or removes a limit.
    pub fn from_form(form: &Form) -> (Self, bool) {
        let (limits, is_step) = LimitRows::from_form(form);
        let fields = Self {
            external_id: form.text("externalId").to_owned(),
            // Browsers send line breaks as CR LF.
            meta: form.text("meta").replace("\r\n", "\n"),
            keeps_meta: !form.text("keep-meta").is_empty(),
            limits,
            original: form.text("was").to_owned(),
        };
        (fields, is_step)
    }

    /// Reads the identity to create.
    pub fn to_create(&self) -> Result<NewIdentity> {
        let mut fields = FieldReader::default();
        let external_id = self.external_id.trim();
        let new = NewIdentity {
            external_id: fields.text(
                "externalId",
                external_id,
                1..=EXTERNAL_ID_MAX,
                AllowedChars::ExternalId,
            ),
            meta: match self.meta.trim() {
                "" => None,
                text => fields.meta("meta", text),
            },
            ratelimits: self.limits.read(&mut fields),
        };
        fields.finish(new)
    }

    /// Reads the change of an identity: the metadata and the limits, each only if the user changed it.
    pub fn to_update(&self) -> Result<IdentityChange> {
        let original: OriginalFields = serde_json::from_str(&self.original).map_err(|_| {
            Error::invalid("", "The form is incomplete. Reload the page and try again.")
        })?;
        let mut fields = FieldReader::default();
        let meta = match self.meta.trim() {
            _ if self.keeps_meta || mark_meta(&self.meta) == original.meta => None,
            "" => fields.meta("meta", "{}"),
            text => fields.meta("meta", text),
        };
        if !self.limits.differ_from(&original.limits) {
            return fields.finish(IdentityChange { meta, ratelimits: None });
        }
        let limits = self.limits.read(&mut fields);
        let is_repeated = |at: &usize| limits[..*at].iter().any(|l| l.name == limits[*at].name);
        if let Some(at) = (0..limits.len()).find(is_repeated) {
            let name = &limits[at].name;
            fields
                .add_error("ratelimits", format!("ratelimits has two limits with the name {name}"));
        }
        fields.finish(IdentityChange { meta, ratelimits: Some(limits) })
    }
}

/// Identifies the metadata of a form, whose line breaks browsers change.
fn mark_meta(meta: &str) -> String {
    mark(meta.replace("\r\n", "\n").trim())
}
