//! The form fields of an identity, and the operation requests made from them.

use foundation::model::{Identity, Meta};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::form::{Form, FormErrors};
use super::super::limit_rows::LimitRows;

/// Limits the metadata in a form, in bytes. Operations accept more.
const META_MAX_BYTES: usize = 32 * 1024;

/// The fields of the form.
pub struct IdentityForm {
    pub external_id: String,
    pub meta: String,
    /// Whether the metadata is too large for the form and stays unchanged.
    pub keeps_meta: bool,
    pub limits: LimitRows,
}

/// A request of an operation. The metadata keeps its original text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Box<RawValue>>,
    ratelimits: Vec<Value>,
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

    fn parse_raw_json(text: &str) -> Result<Box<RawValue>, FormErrors> {
        RawValue::from_string(text.to_owned())
            .map_err(|e| FormErrors::single("meta", format!("Metadata isn't valid JSON: {e}")))
    }

    /// Builds the request that creates the identity.
    pub fn to_create(&self) -> Result<IdentityRequest<'_>, FormErrors> {
        let meta = match self.meta.trim() {
            "" => None,
            text => Some(Self::parse_raw_json(text)?),
        };
        let external_id = Some(self.external_id.trim());
        Ok(IdentityRequest { external_id, identity: None, meta, ratelimits: self.limits.asked() })
    }

    /// Builds the request that updates the identity. Unchanged metadata is not sent, so its stored text is kept.
    pub fn to_update<'a>(&self, identity: &'a Identity) -> Result<IdentityRequest<'a>, FormErrors> {
        let before = identity.meta.as_ref().map_or("", |meta| meta.as_str());
        let meta = match self.meta.trim() {
            _ if self.keeps_meta => None,
            text if text == before.replace("\r\n", "\n").trim() => None,
            "" if identity.meta.as_ref().is_none_or(Meta::is_empty) => None,
            "" => Some(Self::parse_raw_json("{}")?),
            text => Some(Self::parse_raw_json(text)?),
        };
        let identity = Some(identity.id.as_str());
        Ok(IdentityRequest { external_id: None, identity, meta, ratelimits: self.limits.asked() })
    }
}
