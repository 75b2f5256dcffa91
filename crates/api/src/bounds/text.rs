//! Texts with a bounded length and a set of allowed characters.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use domain::bounds::{EXTERNAL_ID_MAX, SLUG_MAX};
use foundation::model::AllowedChars;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// The set of characters that a text may contain.
pub trait CharSet: Send + Sync + 'static {
    /// The set as a regular expression for the JSON schema. Empty if every text matches.
    const PATTERN: &'static str;
    fn contains(c: char) -> bool;
}

/// Allows every character. For text that is inspected but not stored.
#[derive(Debug)]
pub struct AnyChar;

impl CharSet for AnyChar {
    const PATTERN: &'static str = "";
    fn contains(_: char) -> bool {
        true
    }
}

/// Allows every character except NUL.
#[derive(Debug)]
pub struct NonNul;

impl CharSet for NonNul {
    const PATTERN: &'static str = "^[^\\u0000]*$";
    fn contains(c: char) -> bool {
        AllowedChars::NonNul.contains(c)
    }
}

/// Allows every character except those that change how the surrounding text is displayed. For names that users read.
#[derive(Debug)]
pub struct Printable;

impl CharSet for Printable {
    const PATTERN: &'static str =
        "^[^\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]*$";
    fn contains(c: char) -> bool {
        AllowedChars::Printable.contains(c)
    }
}

/// Allows letters, digits and `_`. For ids and prefixes.
#[derive(Debug)]
pub struct WordChars;

impl CharSet for WordChars {
    const PATTERN: &'static str = "^[a-zA-Z0-9_]+$";
    fn contains(c: char) -> bool {
        AllowedChars::Word.contains(c)
    }
}

/// Allows letters, digits, `_` and `-`. For ids of roles.
#[derive(Debug)]
pub struct IdChars;

impl CharSet for IdChars {
    const PATTERN: &'static str = "^[a-zA-Z0-9_-]+$";
    fn contains(c: char) -> bool {
        AllowedChars::Word.contains(c) || c == '-'
    }
}

/// Allows the characters of permission slugs.
#[derive(Debug)]
pub struct SlugChars;

impl CharSet for SlugChars {
    const PATTERN: &'static str = "^[a-zA-Z0-9_:\\-\\.\\*]+$";
    fn contains(c: char) -> bool {
        AllowedChars::Slug.contains(c)
    }
}

/// Allows the characters of external ids, which identify end users.
#[derive(Debug)]
pub struct ExternalIdChars;

impl CharSet for ExternalIdChars {
    const PATTERN: &'static str = "^[a-zA-Z0-9_.-]+$";
    fn contains(c: char) -> bool {
        AllowedChars::ExternalId.contains(c)
    }
}

/// Returns the rule of the set with this regular expression, as the end of a sentence that begins with the name of a field.
pub fn find_rule(pattern: &str) -> Option<&'static str> {
    let sets = [
        (NonNul::PATTERN, AllowedChars::NonNul),
        (Printable::PATTERN, AllowedChars::Printable),
        (WordChars::PATTERN, AllowedChars::Word),
        (SlugChars::PATTERN, AllowedChars::Slug),
        (ExternalIdChars::PATTERN, AllowedChars::ExternalId),
    ];
    sets.into_iter().find(|(of_set, _)| *of_set == pattern).map(|(_, chars)| chars.rule())
}

/// A text of `MIN` to `MAX` characters from the set `A`.
pub struct Text<const MIN: usize, const MAX: usize, A = NonNul>(String, PhantomData<A>);

pub type Id = Text<3, 255, WordChars>;
pub type Slug = Text<1, SLUG_MAX, SlugChars>;
pub type ExternalId = Text<1, EXTERNAL_ID_MAX, ExternalIdChars>;

impl<const MIN: usize, const MAX: usize, A> Text<MIN, MAX, A> {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl<'de, const MIN: usize, const MAX: usize, A: CharSet> Deserialize<'de> for Text<MIN, MAX, A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let length = text.chars().count();
        if !(MIN..=MAX).contains(&length) {
            return Err(D::Error::custom(format!("must have {MIN} to {MAX} characters")));
        }
        if !text.chars().all(A::contains) {
            return Err(D::Error::custom(format!("must match {}", A::PATTERN)));
        }
        Ok(Self(text, PhantomData))
    }
}

impl<const MIN: usize, const MAX: usize, A: CharSet> JsonSchema for Text<MIN, MAX, A> {
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = json_schema!({ "type": "string", "minLength": MIN, "maxLength": MAX });
        if !A::PATTERN.is_empty() {
            schema.insert("pattern".to_owned(), A::PATTERN.into());
        }
        schema
    }
}

/// Does not show the text: a key is a secret, and other texts are not useful in logs.
impl<const MIN: usize, const MAX: usize, A> fmt::Debug for Text<MIN, MAX, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Text(…)")
    }
}
