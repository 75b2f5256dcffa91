//! The form fields of an identity, and the identity or the change that they describe.

use domain::bounds::EXTERNAL_ID_MAX;
use domain::identities::{IdentityChange, NewIdentity};
use foundation::error::Result;
use foundation::model::{AllowedChars, Identity, Meta};

use super::super::field_reader::FieldReader;
use super::super::form::Form;
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
        Self {
            external_id: identity.external_id.clone(),
            meta: if keeps_meta { None } else { shown }.map(|shown| shown.0).unwrap_or_default(),
            keeps_meta,
            limits: LimitRows::from_limits(&identity.ratelimits),
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

    /// Reads the change of an identity. Metadata that does not differ keeps its stored text.
    pub fn to_update(&self, identity: &Identity) -> Result<IdentityChange> {
        let mut fields = FieldReader::default();
        let before = identity.meta.as_ref().map_or("", |meta| meta.as_str());
        let meta = match self.meta.trim() {
            _ if self.keeps_meta => None,
            text if text == before.replace("\r\n", "\n").trim() => None,
            "" if identity.meta.as_ref().is_none_or(Meta::is_empty) => None,
            "" => fields.meta("meta", "{}"),
            text => fields.meta("meta", text),
        };
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
