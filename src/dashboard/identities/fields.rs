//! What the form of an identity is filled in with, and the requests that it stands for.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::form::{Faults, Form};
use super::super::span::{Span, nth, number};
use crate::model::{Identity, Meta};

/// The largest meta that a form holds; an operation takes more.
const META_MAX_BYTES: usize = 32 * 1024;
/// How many limits an identity may have, which the operations say.
const LIMITS_MAX: usize = 50;

/// The fields of the form.
pub struct Fields {
    pub external_id: String,
    pub meta: String,
    /// Whether the meta is none that a form could hold, and stays as it is.
    pub keeps_meta: bool,
    pub limits: Vec<Limit>,
    pub may_add: bool,
}

pub struct Limit {
    pub at: usize,
    pub name: String,
    pub limit: String,
    pub span: Span,
    pub is_auto: bool,
}

/// A request, in which the meta stands as it was written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Box<RawValue>>,
    ratelimits: Vec<Value>,
}

/// The meta as a page shows it, and whether there is more of it.
pub fn shown(meta: Option<&Meta>) -> Option<(String, bool)> {
    let text = meta.filter(|meta| !meta.is_empty())?.as_str();
    let end = text.floor_char_boundary(META_MAX_BYTES);
    Some((text[..end].to_owned(), end < text.len()))
}

impl Limit {
    fn blank(at: usize) -> Self {
        let (name, limit) = (String::new(), String::new());
        Self { at, name, limit, span: Span::of_ms(60_000), is_auto: true }
    }

    /// Whether it says nothing, and is none.
    fn is_blank(&self) -> bool {
        self.name.trim().is_empty() && self.limit.trim().is_empty()
    }

    fn request(&self) -> Value {
        json!({
            "name": self.name.trim(),
            "limit": number(&self.limit),
            "duration": self.span.ms(),
            "autoApply": self.is_auto,
        })
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self::blank(0)
    }
}

impl Fields {
    /// Of an identity as it is.
    pub fn of(identity: &Identity) -> Self {
        let shown = shown(identity.meta.as_ref());
        let keeps_meta = shown.as_ref().is_some_and(|(_, is_cut)| *is_cut);
        let limits = identity.ratelimits.iter().enumerate().map(|(at, limit)| Limit {
            at,
            name: limit.name.clone(),
            limit: limit.limit.to_string(),
            span: Span::of_ms(limit.duration_ms),
            is_auto: limit.auto_apply,
        });
        let limits: Vec<_> = limits.collect();
        Self {
            external_id: identity.external_id.clone(),
            meta: if keeps_meta { None } else { shown }.map(|shown| shown.0).unwrap_or_default(),
            keeps_meta,
            may_add: limits.len() < LIMITS_MAX,
            limits,
        }
    }

    /// As a form was filled in, and whether its button was only to add a limit or to leave one out.
    pub fn filled_in(form: &Form) -> (Self, bool) {
        let autos: Vec<_> = form.all("limit-auto").collect();
        let count = form.all("limit-name").count();
        let limit = |at: usize| Limit {
            at,
            name: nth(form, "limit-name", at).to_owned(),
            limit: nth(form, "limit-limit", at).to_owned(),
            span: Span::filled_in(form, "limit-duration", at),
            is_auto: autos.contains(&at.to_string().as_str()),
        };
        let mut limits: Vec<_> = (0..count).map(limit).collect();
        let (adds, removed) = (!form.text("add").is_empty(), form.text("remove"));
        if let Ok(at) = removed.parse::<usize>() {
            limits.retain(|limit| limit.at != at);
        }
        if adds && limits.len() < LIMITS_MAX {
            limits.push(Limit::default());
        }
        for (at, limit) in limits.iter_mut().enumerate() {
            limit.at = at;
        }
        let fields = Self {
            external_id: form.text("externalId").to_owned(),
            // Browsers end each line of a text with two characters.
            meta: form.text("meta").replace("\r\n", "\n"),
            keeps_meta: !form.text("keep-meta").is_empty(),
            may_add: limits.len() < LIMITS_MAX,
            limits,
        };
        (fields, adds || !removed.is_empty())
    }

    fn ratelimits(&self) -> Vec<Value> {
        self.limits.iter().filter(|limit| !limit.is_blank()).map(Limit::request).collect()
    }

    fn raw(text: &str) -> Result<Box<RawValue>, Faults> {
        RawValue::from_string(text.to_owned())
            .map_err(|e| Faults::one("meta", format!("meta is not JSON: {e}")))
    }

    /// The request that makes it.
    pub fn to_create(&self) -> Result<Request<'_>, Faults> {
        let meta = match self.meta.trim() {
            "" => None,
            text => Some(Self::raw(text)?),
        };
        let external_id = Some(self.external_id.trim());
        Ok(Request { external_id, identity: None, meta, ratelimits: self.ratelimits() })
    }

    /// The request that changes it. A meta that nobody touched is left as it was written.
    pub fn to_update<'a>(&self, identity: &'a Identity) -> Result<Request<'a>, Faults> {
        let before = identity.meta.as_ref().map_or("", |meta| meta.as_str());
        let meta = match self.meta.trim() {
            _ if self.keeps_meta => None,
            text if text == before.replace("\r\n", "\n").trim() => None,
            "" if identity.meta.as_ref().is_none_or(Meta::is_empty) => None,
            "" => Some(Self::raw("{}")?),
            text => Some(Self::raw(text)?),
        };
        let identity = Some(identity.id.as_str());
        Ok(Request { external_id: None, identity, meta, ratelimits: self.ratelimits() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(fields: &Fields) -> Vec<(usize, &str, bool)> {
        fields.limits.iter().map(|l| (l.at, l.name.as_str(), l.is_auto)).collect()
    }

    const TWO: &str = "limit-name=a&limit-limit=1&limit-duration=1&limit-duration-unit=min&\
        limit-name=b&limit-limit=2&limit-duration=2&limit-duration-unit=h&limit-auto=1";

    #[test]
    fn a_limit_is_added_and_left_out_without_touching_the_others() {
        let read = |more: &str| Fields::filled_in(&Form::parse(format!("{TWO}{more}").as_bytes()));

        let (same, is_step) = read("");
        assert_eq!((names(&same), is_step), (vec![(0, "a", false), (1, "b", true)], false));
        let (more, is_step) = read("&add=limit");
        assert_eq!(names(&more), [(0, "a", false), (1, "b", true), (2, "", true)]);
        assert!(is_step);
        let (fewer, is_step) = read("&remove=0");
        assert_eq!((names(&fewer), is_step), (vec![(0, "b", true)], true));
    }

    #[test]
    fn a_limit_that_says_nothing_is_none() {
        let (fields, _) = Fields::filled_in(&Form::parse(format!("{TWO}&limit-name=").as_bytes()));

        assert_eq!(fields.limits.len(), 3);
        assert_eq!(fields.ratelimits().len(), 2);
        assert_eq!(fields.ratelimits()[1]["duration"], 7_200_000);
    }

    #[test]
    fn no_more_limits_are_added_than_there_may_be() {
        let added = |count: usize| {
            let query = "limit-name=a&".repeat(count) + "add=limit";
            let (fields, _) = Fields::filled_in(&Form::parse(query.as_bytes()));
            (fields.limits.len(), fields.may_add)
        };

        assert_eq!([added(48), added(49), added(50)], [(49, true), (50, false), (50, false)]);
    }
}
