//! Identifiers: a prefix that tells what it names, and 22 characters from a cryptographic generator.

use rand::Rng as _;

use crate::clock::Timestamp;

/// The alphabet of identifiers: no look-alikes, nothing that a shell or a URL would mind.
const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// How many random characters an identifier has: about 128 bits.
const LENGTH: usize = 22;

/// How many of them 64 random bits yield, and how many numbers that takes.
const LETTERS: usize = 10;
const NUMBERS: u64 = 58_u64.pow(10);

/// Random characters, each as likely as any other.
#[expect(clippy::disallowed_methods, reason = "identifiers are made here")]
fn letters() -> [u8; LENGTH] {
    let mut rng = rand::rng();
    let mut letters = [0; LENGTH];
    let mut made = 0;
    while made < LENGTH {
        let mut bits = rng.next_u64();
        if bits >= u64::MAX / NUMBERS * NUMBERS {
            // The last, broken round of the numbers would make some of them likelier.
            continue;
        }
        for letter in letters.iter_mut().skip(made).take(LETTERS) {
            *letter = ALPHABET[(bits % 58) as usize];
            bits /= 58;
        }
        made += LETTERS;
    }
    letters
}

fn random(prefix: &str) -> String {
    let mut id = String::with_capacity(prefix.len() + LENGTH);
    id.push_str(prefix);
    id.extend(letters().map(char::from));
    id
}

/// A request, in every answer and in the log. Every request has one, so it needs no memory of its own.
///
/// It begins with its time, so what happened is found by when it did: no index of random names has to be kept of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId([u8; REQUEST.len() + LENGTH]);

const REQUEST: &[u8; 4] = b"req_";
/// How many of its characters tell the time, in milliseconds: enough for four thousand years.
const TIME_LENGTH: usize = 8;

impl RequestId {
    /// A new one, of a request that comes in at this moment.
    pub fn new(at: Timestamp) -> Self {
        let mut id = [0; REQUEST.len() + LENGTH];
        let (prefix, rest) = id.split_at_mut(REQUEST.len());
        prefix.copy_from_slice(REQUEST);
        rest.copy_from_slice(&letters());
        let mut ms = at.0.unsigned_abs();
        for letter in rest[..TIME_LENGTH].iter_mut().rev() {
            *letter = ALPHABET[(ms % 58) as usize];
            ms /= 58;
        }
        Self(id)
    }

    /// When the request came in whose id somebody wrote. Absent: it is none.
    pub fn time(text: &str) -> Option<Timestamp> {
        let letters = text.as_bytes().strip_prefix(REQUEST)?;
        let digit = |letter: &u8| ALPHABET.iter().position(|known| known == letter);
        if letters.len() != LENGTH || !letters.iter().all(|letter| digit(letter).is_some()) {
            return None;
        }
        let ms = letters[..TIME_LENGTH].iter().filter_map(digit);
        let ms = ms.fold(0_i64, |ms, digit| ms * 58 + i64::try_from(digit).unwrap_or(0));
        Some(Timestamp(ms))
    }

    pub fn as_str(&self) -> &str {
        // It was made of ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::fmt::Debug for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl serde::Serialize for RequestId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
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
            /// A new one.
            pub fn random() -> Self {
                Self(random($prefix))
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

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
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
    /// A namespace of the standalone limiter.
    NamespaceId "rlns_",
    /// An override in a namespace.
    OverrideId "rlor_",
    /// An audit entry.
    AuditId "log_",
    /// What all audit entries of one act share.
    CorrelationId "cor_",
    /// A key that seals the recoverable keys of a workspace.
    DataKeyId "dk_",
    /// A set of keys that were issued elsewhere.
    MigrationId "mig_",
    /// A person who uses the dashboard.
    PersonId "user_",
    /// A session of a person.
    SessionId "ses_",
    /// A link that makes somebody a member, once.
    InvitationId "inv_",
    /// A process that serves, from its start to its end.
    ReplicaId "rep_",
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

    #[test]
    fn a_request_tells_when_it_came_in_and_sorts_by_it() {
        let times = [0, 1, 57, 58, 1_763_700_000_000, 1_763_700_000_001, 58_i64.pow(8) - 1];
        let ids = times.map(|ms| RequestId::new(Timestamp(ms)));

        for (id, ms) in ids.iter().zip(times) {
            assert_eq!(RequestId::time(id.as_str()), Some(Timestamp(ms)));
        }
        assert!(ids.is_sorted_by(|a, b| a.as_str() < b.as_str()));
        assert_ne!(RequestId::new(Timestamp(7)), RequestId::new(Timestamp(7)));
    }

    #[test]
    fn what_is_no_id_of_a_request_has_no_time() {
        let id = RequestId::new(Timestamp(1_763_700_000_000));
        let short = &id.as_str()[..25];

        for text in ["", "req_", "key_1111111111111111111111", short, "req_000000000000000000000l"]
        {
            assert_eq!(RequestId::time(text), None, "{text}");
        }
    }
}
