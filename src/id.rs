//! Identifiers: a prefix that tells what it names, and 22 characters from a cryptographic generator.

use rand::Rng as _;

/// The alphabet of identifiers: no look-alikes, nothing that a shell or a URL would mind.
const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// Makes `prefix` followed by `length` random characters: six bits at a time, and those that name no
/// letter are thrown away, so that each letter is as likely as any other.
#[expect(clippy::disallowed_methods, reason = "identifiers are made here")]
fn random(prefix: &str, length: usize) -> String {
    let mut rng = rand::rng();
    let mut id = String::with_capacity(prefix.len() + length);
    id.push_str(prefix);
    while id.len() < prefix.len() + length {
        let bits = rng.next_u64();
        let letters = (0..10).filter_map(|n| ALPHABET.get((bits >> (6 * n) & 63) as usize));
        let missing = prefix.len() + length - id.len();
        id.extend(letters.take(missing).map(|letter| char::from(*letter)));
    }
    id
}

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident $prefix:literal,)*) => {$(
        $(#[$doc])*
        #[derive(
            Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, sqlx::Type,
        )]
        #[serde(transparent)]
        #[sqlx(transparent)]
        pub struct $name(String);

        impl $name {
            /// A new one: 22 characters, about 128 bits.
            pub fn random() -> Self {
                Self(random($prefix, 22))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        /// An identifier as somebody wrote it; whether it names anything is for the store to say.
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" })
            }
        }
    )*};
}

id! {
    /// A key; not a secret.
    KeyId "key_",
    /// An API: the set of keys that a backend accepts.
    ApiId "api_",
    /// A workspace: everything one customer of Keyward owns.
    WorkspaceId "ws_",
    /// An identity: one of the customer's own users, with the limits that all its keys share.
    IdentityId "id_",
    /// A permission.
    PermissionId "perm_",
    /// A role.
    RoleId "role_",
    /// A rate limit of a key or an identity.
    RatelimitId "rl_",
    /// A request, in every answer and in the log.
    RequestId "req_",
    /// An audit entry.
    AuditId "log_",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_prefix_and_22_characters_of_the_alphabet() {
        let id = KeyId::random();

        let tail = id.as_str().strip_prefix("key_").expect("the prefix");
        assert_eq!(tail.len(), 22);
        assert!(tail.bytes().all(|b| ALPHABET.contains(&b)), "{tail}");
        assert_ne!(id, KeyId::random());
    }
}
