//! Defines gateway policies: how the requests of a gateway are judged.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::AllowedChars;
use crate::clock::Timestamp;
use crate::id::{ApiId, GatewayPolicyId, WorkspaceId};

/// A gateway policy without its secret.
#[derive(Debug, Clone)]
pub struct GatewayPolicy {
    pub id: GatewayPolicyId,
    pub workspace_id: WorkspaceId,
    pub name: String,
    pub config: GatewayPolicyConfig,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

/// The settings of a gateway policy, as the database and the audit log store them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayPolicyConfig {
    /// The APIs whose keys are accepted.
    pub api_ids: Vec<ApiId>,
    /// Where the key is read; the first source that a request has counts.
    pub key_from: Vec<KeySource>,
    /// The first rule that matches a request applies. Empty: every valid key passes.
    pub rules: Vec<GatewayRule>,
    pub identity_headers: IdentityHeaders,
    pub on_failure: FailureFormat,
    /// The networks from which no secret is required.
    pub allow_from: Vec<IpNet>,
    /// The namespaces that the rate-limit service may use.
    pub namespaces: Vec<GatewayNamespace>,
    /// The URL by which clients know what the gateway protects. Empty: no metadata is published.
    pub resource: String,
    /// The issuers of the authorization servers that the metadata names.
    pub authorization_servers: Vec<String>,
}

/// A place in a request where the key is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeySource {
    /// The token of `Authorization: Bearer <key>`.
    Bearer,
    /// The value of a header, by its name in lower case.
    Header(String),
    /// The value of a query parameter.
    Query(String),
    /// The value of a cookie.
    Cookie(String),
}

impl KeySource {
    /// The maximum length of the name of a header, a parameter or a cookie.
    pub const NAME_MAX: usize = 128;

    /// Returns the sources of a policy that names none.
    pub fn defaults() -> Vec<Self> {
        vec![Self::Bearer, Self::Header("x-api-key".to_owned())]
    }
}

impl FromStr for KeySource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |name: &str| is_token(name).then(|| name.to_owned());
        let source = match text.split_once(':') {
            Some(("authorization", "bearer")) => Some(Self::Bearer),
            Some(("header", name)) => named(&name.to_ascii_lowercase()).map(Self::Header),
            Some(("query", name)) => named(name).map(Self::Query),
            Some(("cookie", name)) => named(name).map(Self::Cookie),
            _ => None,
        };
        source.ok_or_else(|| {
            format!(
                "must be authorization:bearer, header:<name>, query:<name> or cookie:<name> with a name of 1 to {} \
                letters, digits and !#$%&'*+-.^_`|~",
                Self::NAME_MAX
            )
        })
    }
}

/// Returns whether a text is a token as RFC 9110 defines it, and not too long.
pub fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=KeySource::NAME_MAX).contains(&text.len()) && text.bytes().all(is_tchar)
}

impl TryFrom<String> for KeySource {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<KeySource> for String {
    fn from(source: KeySource) -> Self {
        source.to_string()
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bearer => f.write_str("authorization:bearer"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

/// What a request to certain paths requires and costs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayRule {
    /// In upper case. Empty: every method.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// A pattern in which `*` stands for one segment and `**` for any number of them. Absent: every path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A permission query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// The credits that a request costs. Absent: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ratelimits: Vec<GatewayLimit>,
    /// Labels for analytics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// A rate limit that a rule checks: one of the key or its identity or, with `limit` and `duration`, one of the rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayLimit {
    pub name: String,
    /// Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// The window length in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<i64>,
}

/// Which headers tell the upstream who calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IdentityHeaders {
    /// The names of the headers that have a value; the others are empty. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<String>>,
    /// The fields of the meta of keys that have a header of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub meta: Vec<String>,
    /// Whether a signed assertion is added.
    pub signed: bool,
}

/// The format of the body of refusals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureFormat {
    /// Problem details (RFC 9457).
    #[default]
    #[serde(rename = "problem+json")]
    ProblemJson,
    #[serde(rename = "text")]
    Text,
    #[serde(rename = "empty")]
    Empty,
}

/// A namespace that the rate-limit service may use through a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayNamespace {
    /// The id or name of the namespace.
    pub namespace: String,
    /// The limit of a descriptor that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_limit: Option<DefaultLimit>,
    #[serde(default)]
    pub mode: EnforcementMode,
    /// Whether the units of a refused call count, too.
    #[serde(default)]
    pub count_refused: bool,
}

/// A limit and the length of its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultLimit {
    pub limit: i64,
    /// In milliseconds.
    pub duration: i64,
}

/// Whether the limits of a namespace reject requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnforcementMode {
    #[default]
    Enforce,
    /// Requests are counted and all admitted; their events hold what would have been decided.
    Shadow,
}

/// Returns whether a text can be the name of a field of the meta in the name of a header: 1 to 64 letters, digits, `-` and
/// `_`.
pub fn is_header_name_part(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.chars().all(|c| c == '-' || AllowedChars::Word.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_source_parses_what_it_displays() {
        for text in ["authorization:bearer", "header:x-api-key", "query:api_key", "cookie:key"] {
            let source: KeySource = text.parse().expect("a source");
            assert_eq!(source.to_string(), text);
        }
        assert_eq!("header:X-Api-Key".parse(), Ok(KeySource::Header("x-api-key".into())));
    }

    #[test]
    fn key_source_is_rejected_when_it_is_not_a_token() {
        let longest = format!("header:{}", "a".repeat(KeySource::NAME_MAX));
        assert!(longest.parse::<KeySource>().is_ok());
        for text in
            ["", "bearer", "authorization:basic", "header:", "query:a b", "cookie:a=b", "body:key"]
        {
            assert!(text.parse::<KeySource>().is_err(), "{text}");
        }
        assert!(format!("{longest}a").parse::<KeySource>().is_err());
    }
}
