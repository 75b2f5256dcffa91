//! Types that define the bounds of request fields.
//!
//! Deserializing a field checks the bounds of its type, and its JSON schema states the same bounds, so each bound is
//! written once. Deserializing stops at the first error; `decode` then uses the schema to find all of them. Lengths
//! are in characters. Stored text must not contain NUL, because PostgreSQL cannot store it.

mod text;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StringDeserializer};
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

pub use self::text::{
    AnyChar, CharSet, ExternalId, ExternalIdChars, Id, IdChars, NonNul, Printable, Slug, SlugChars,
    Text, WordChars, find_rule,
};

/// An IPv4 or IPv6 address.
#[derive(Debug, Clone, Copy)]
pub struct Address(pub IpAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| D::Error::custom("must be an IPv4 or IPv6 address"))
    }
}

impl JsonSchema for Address {
    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 2,
            "maxLength": 45,
            "anyOf": [{ "format": "ipv4" }, { "format": "ipv6" }],
        })
    }
}

/// An integer from `MIN` to `MAX`. A float without a fraction, such as `15.0`, is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Int<const MIN: i64, const MAX: i64>(pub i64);

impl<'de, const MIN: i64, const MAX: i64> Deserialize<'de> for Int<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntVisitor;

        impl Visitor<'_> for IntVisitor {
            type Value = i64;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer")
            }
            fn visit_i64<E>(self, number: i64) -> Result<i64, E> {
                Ok(number)
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<i64, E> {
                i64::try_from(number).map_err(|_| E::custom("exceeds the 64-bit range"))
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                reason = "only a float that is an integer within the range is accepted"
            )]
            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<i64, E> {
                // An integer below the range is rounded to its minimum when it is parsed.
                let fits = number > i64::MIN as f64 && number < i64::MAX as f64;
                match number.fract() == 0.0 && fits {
                    true => Ok(number as i64),
                    false => Err(E::custom("is not an integer in the 64-bit range")),
                }
            }
        }

        let number = deserializer.deserialize_any(IntVisitor)?;
        match (MIN..=MAX).contains(&number) {
            true => Ok(Self(number)),
            false => Err(D::Error::custom(format!("must be from {MIN} to {MAX}"))),
        }
    }
}

impl<const MIN: i64, const MAX: i64> JsonSchema for Int<MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        "Int".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "format": "int64", "minimum": MIN, "maximum": MAX })
    }
}

/// A list of `MIN` to `MAX` items.
#[derive(Debug)]
pub struct List<T, const MIN: usize, const MAX: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MIN: usize, const MAX: usize> Deserialize<'de>
    for List<T, MIN, MAX>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Vec<T>, S::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == MAX {
                        return Err(S::Error::custom(format!("must have at most {MAX} items")));
                    }
                    items.push(item);
                }
                Ok(items)
            }
        }

        let items = deserializer.deserialize_seq(ListVisitor::<T, MAX>(PhantomData))?;
        match items.len() >= MIN {
            true => Ok(Self(items)),
            false => Err(D::Error::custom(format!("must have at least {MIN} items"))),
        }
    }
}

impl<T: JsonSchema, const MIN: usize, const MAX: usize> JsonSchema for List<T, MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        "List".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "minItems": MIN, "maxItems": MAX, "items": items })
    }
}

/// An object with named fields. A derived `Deserialize` alone would also accept a list with the fields in
/// declaration order.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

/// One of the texts of an enum. A derived `Deserialize` alone would also accept an object that maps the text to null.
#[derive(Debug, Clone, Copy)]
pub struct OneOf<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        T::deserialize(StringDeserializer::<D::Error>::new(text)).map(Self)
    }
}

/// A field that may be omitted but must not be null. Use with `#[serde(default)]`.
#[derive(Debug, Clone, Copy)]
pub struct Optional<T>(pub Option<T>);

impl<T> Optional<T> {
    pub fn unwrap_or(self, default: T) -> T {
        self.0.unwrap_or(default)
    }
}

impl<T> Default for Optional<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Optional<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(|value| Self(Some(value)))
    }
}

/// Gives types that contain one value the JSON schema of this value.
macro_rules! impl_schema_of_content {
    ($($wrapper:ident),+) => {
        $(
            impl<T: JsonSchema> JsonSchema for $wrapper<T> {
                fn schema_name() -> Cow<'static, str> {
                    T::schema_name()
                }
                fn inline_schema() -> bool {
                    T::inline_schema()
                }
                fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                    T::json_schema(generator)
                }
            }
        )+
    };
}

impl_schema_of_content!(Object, OneOf, Optional);

/// A field that is required and may be null.
#[derive(Debug)]
pub struct Nullable<T>(pub Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Nullable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NullableVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for NullableVisitor<T> {
            type Value = Option<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or null")
            }
            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Option<T>, D::Error> {
                Option::deserialize(deserializer)
            }
        }

        // Deserializing an `Option` would treat a missing field as null.
        deserializer.deserialize_newtype_struct("Nullable", NullableVisitor(PhantomData)).map(Self)
    }
}

impl<T: JsonSchema> JsonSchema for Nullable<T> {
    fn schema_name() -> Cow<'static, str> {
        Option::<T>::schema_name()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<T>::json_schema(generator)
    }
}
