//! Defines identifiers: a prefix that names the type, and 22 characters from a cryptographic generator.

use rand::Rng as _;

use crate::clock::Timestamp;

/// The alphabet of identifiers: no look-alikes, no characters that need escaping in a shell or a URL.
const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// The number of random characters in an identifier: about 128 bits.
const RANDOM_CHARS: usize = 22;

/// How many characters 64 random bits yield, and the number of their combinations.
const CHARS_PER_DRAW: usize = 10;
const DRAW_RANGE: u64 = 58_u64.pow(10);

/// Returns random characters, uniformly distributed.
#[expect(clippy::disallowed_methods, reason = "the one place that generates identifiers")]
fn random_chars() -> [u8; RANDOM_CHARS] {
    let mut rng = rand::rng();
    let mut letters = [0; RANDOM_CHARS];
    let mut filled = 0;
    while filled < RANDOM_CHARS {
        let mut bits = rng.next_u64();
        if bits >= u64::MAX / DRAW_RANGE * DRAW_RANGE {
            // The last, incomplete range of numbers would make some characters more likely.
            continue;
        }
        for letter in letters.iter_mut().skip(filled).take(CHARS_PER_DRAW) {
            *letter = ALPHABET[(bits % 58) as usize];
            bits /= 58;
        }
        filled += CHARS_PER_DRAW;
    }
    letters
}

fn random(prefix: &str) -> String {
    let mut id = String::with_capacity(prefix.len() + RANDOM_CHARS);
    id.push_str(prefix);
    id.extend(random_chars().map(char::from));
    id
}

/// The ID of a request, in every response and in the log. Every request has one, so it needs no allocation.
///
/// It begins with the time of the request, so analytics events are found by time and need no index of random IDs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId([u8; REQUEST_PREFIX.len() + RANDOM_CHARS]);

const REQUEST_PREFIX: &[u8; 4] = b"req_";
/// How many characters encode the time in milliseconds: enough for four thousand years.
const TIME_CHARS: usize = 8;

impl RequestId {
    /// Returns a new ID for a request that arrives at this time.
    pub fn new(at: Timestamp) -> Self {
        let mut id = [0; REQUEST_PREFIX.len() + RANDOM_CHARS];
        let (prefix, rest) = id.split_at_mut(REQUEST_PREFIX.len());
        prefix.copy_from_slice(REQUEST_PREFIX);
        rest.copy_from_slice(&random_chars());
        let mut ms = at.0.unsigned_abs();
        for letter in rest[..TIME_CHARS].iter_mut().rev() {
            *letter = ALPHABET[(ms % 58) as usize];
            ms /= 58;
        }
        Self(id)
    }

    /// Returns the time of the request with this ID, or `None` if the text is not a request ID.
    pub fn parse_time(text: &str) -> Option<Timestamp> {
        let letters = text.as_bytes().strip_prefix(REQUEST_PREFIX)?;
        let digit = |letter: &u8| ALPHABET.iter().position(|candidate| candidate == letter);
        if letters.len() != RANDOM_CHARS || !letters.iter().all(|letter| digit(letter).is_some()) {
            return None;
        }
        let ms = letters[..TIME_CHARS].iter().filter_map(digit);
        let ms = ms.fold(0_i64, |ms, digit| ms * 58 + i64::try_from(digit).unwrap_or(0));
        Some(Timestamp(ms))
    }

    pub fn as_str(&self) -> &str {
        // The bytes are ASCII.
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
            Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize,
            serde::Deserialize, sqlx_macros::Type,
        )]
        #[serde(transparent)]
        #[sqlx(transparent)]
        pub struct $name(String);

        impl $name {
            /// What every ID of this type begins with.
            pub const PREFIX: &'static str = $prefix;

            /// Returns a new random ID.
            pub fn random() -> Self {
                Self(random(Self::PREFIX))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        /// Converts text from a request. Whether it identifies anything is checked by the store.
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
    /// The ID of a key. It is not secret.
    KeyId "key_",
    /// The ID of an API: the set of keys that a backend accepts.
    ApiId "api_",
    /// The ID of a workspace: everything that one customer of Keyward owns.
    WorkspaceId "ws_",
    /// The ID of an identity: an end user of the customer, with limits that all its keys share.
    IdentityId "id_",
    /// The ID of a permission.
    PermissionId "perm_",
    /// The ID of a role.
    RoleId "role_",
    /// The ID of a rate limit of a key or an identity.
    RatelimitId "rl_",
    /// The ID of a namespace of the standalone limiter.
    NamespaceId "rlns_",
    /// The ID of an override in a namespace.
    OverrideId "rlor_",
    /// The ID of a gateway policy.
    GatewayPolicyId "gwp_",
    /// The ID of an audit entry.
    AuditId "log_",
    /// The ID that all audit entries of one audit group share.
    CorrelationId "cor_",
    /// The ID of a data key, which seals the recoverable keys of a workspace.
    DataKeyId "dk_",
    /// The ID of a signing key, which signs assertions for upstreams.
    SigningKeyId "sgk_",
    /// The ID of a migration: a set of keys that were issued elsewhere.
    MigrationId "mig_",
    /// The ID of a user of the dashboard.
    UserId "user_",
    /// The ID of a user's session.
    SessionId "ses_",
    /// The ID of an invitation: a single-use URL that makes a user a member.
    InvitationId "inv_",
    /// The ID of a replica: a server process from its start to its end.
    ReplicaId "rep_",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_id_has_prefix_and_22_characters() {
        let id = KeyId::random();

        let tail = id.as_str().strip_prefix("key_").expect("the prefix");
        assert_eq!(tail.len(), 22);
        assert!(tail.bytes().all(|b| ALPHABET.contains(&b)), "{tail}");
        assert_ne!(id, KeyId::random());
    }

    #[test]
    fn request_id_contains_time_and_sorts_by_it() {
        let times = [0, 1, 57, 58, 1_763_700_000_000, 1_763_700_000_001, 58_i64.pow(8) - 1];
        let ids = times.map(|ms| RequestId::new(Timestamp(ms)));

        for (id, ms) in ids.iter().zip(times) {
            assert_eq!(RequestId::parse_time(id.as_str()), Some(Timestamp(ms)));
        }
        assert!(ids.is_sorted_by(|a, b| a.as_str() < b.as_str()));
        assert_ne!(RequestId::new(Timestamp(7)), RequestId::new(Timestamp(7)));
    }

    #[test]
    fn request_id_time_is_none_when_text_is_no_request_id() {
        let id = RequestId::new(Timestamp(1_763_700_000_000));
        let short = &id.as_str()[..25];

        for text in ["", "req_", "key_1111111111111111111111", short, "req_000000000000000000000l"]
        {
            assert_eq!(RequestId::parse_time(text), None, "{text}");
        }
    }
}
