//! Defines the keys that cases use, their requests, and the responses that these must get.

use serde_json::{Value, json};

/// A set of keys with the same properties.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeySet {
    Plain,
    Permitted,
    OneLimit,
    FiveLimits,
    FiveLimitsAndCredits,
    /// No keys, but identifiers for the standalone limiter.
    Identifiers,
    /// A hundred identifiers that are requested continuously.
    FewIdentifiers,
    /// The same identifiers with approximate limits.
    QuickIdentifiers,
    /// A single key.
    HotLimit,
    /// A single key.
    HotCredits,
    /// Keys with credits and no limits.
    Credits,
    /// No keys, but the API in which every request creates one.
    Creations,
}

/// A limit or balance that no run uses up: benchmarks measure admitted requests, never rejected ones.
pub const PLENTY: u64 = 1_000_000_000;
pub const WINDOW_MS: u64 = 60_000;

pub const PERMISSIONS: [&str; 3] = ["documents.read", "documents.write", "documents.delete"];
pub const ROLE: &str = "editor";

impl KeySet {
    pub const ALL: [Self; 12] = [
        Self::Plain,
        Self::Permitted,
        Self::OneLimit,
        Self::FiveLimits,
        Self::FiveLimitsAndCredits,
        Self::Identifiers,
        Self::FewIdentifiers,
        Self::QuickIdentifiers,
        Self::HotLimit,
        Self::HotCredits,
        Self::Credits,
        Self::Creations,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Permitted => "permitted",
            Self::OneLimit => "one-limit",
            Self::FiveLimits => "five-limits",
            Self::FiveLimitsAndCredits => "five-limits-and-credits",
            Self::Identifiers => "identifiers",
            Self::FewIdentifiers => "few-identifiers",
            Self::QuickIdentifiers => "quick-identifiers",
            Self::HotLimit => "hot-limit",
            Self::HotCredits => "hot-credits",
            Self::Credits => "credits",
            Self::Creations => "creations",
        }
    }

    /// Returns the body of `keys.createKey` that creates key `number` of this set.
    pub fn creation(self, api_id: &str, number: usize) -> Value {
        let mut body =
            json!({ "apiId": api_id, "prefix": "prod", "name": format!("bench {number}") });
        if self == Self::Permitted {
            body["permissions"] = json!([PERMISSIONS[0]]);
            body["roles"] = json!([ROLE]);
        }
        if self.limits() > 0 {
            body["ratelimits"] = (1..=self.limits())
                .map(|n| {
                    json!({ "name": format!("requests{n}"), "limit": PLENTY,
                            "duration": WINDOW_MS, "autoApply": true })
                })
                .collect();
        }
        if self.has_credits() {
            body["credits"] = json!({ "remaining": PLENTY });
        }
        body
    }

    /// Returns the parts of a request body before and after the key. The query needs a direct permission of the key and
    /// one that only the role grants.
    pub fn body(self) -> (&'static str, &'static str) {
        match self {
            Self::Permitted => (
                r#"{"key":""#,
                r#"","permissions":"documents.read AND (documents.write OR documents.admin)"}"#,
            ),
            Self::Identifiers | Self::FewIdentifiers => (
                r#"{"namespace":"bench","limit":1000000000,"duration":60000,"identifier":""#,
                r#""}"#,
            ),
            Self::QuickIdentifiers => (
                r#"{"async":true,"namespace":"bench","limit":1000000000,"duration":60000,"identifier":""#,
                r#""}"#,
            ),
            Self::Plain
            | Self::OneLimit
            | Self::FiveLimits
            | Self::FiveLimitsAndCredits
            | Self::HotLimit
            | Self::HotCredits
            | Self::Credits => (r#"{"key":""#, r#""}"#),
            Self::Creations => (r#"{"apiId":""#, r#"","prefix":"prod","name":"bench"}"#),
        }
    }

    /// Returns the body of a request.
    pub fn request(self, key: &str) -> String {
        let (head, tail) = self.body();
        format!("{head}{key}{tail}")
    }

    /// Returns a text that the body of every correct response contains.
    pub fn marker(self) -> &'static str {
        match self {
            Self::Creations => r#""keyId":"key_"#,
            _ if self.is_made() => r#""code":"VALID""#,
            _ => r#""success":true"#,
        }
    }

    /// Returns whether the keys must exist on the server.
    pub fn is_made(self) -> bool {
        !matches!(
            self,
            Self::Identifiers | Self::FewIdentifiers | Self::QuickIdentifiers | Self::Creations
        )
    }

    pub fn limits(self) -> usize {
        match self {
            Self::Plain
            | Self::Permitted
            | Self::Identifiers
            | Self::FewIdentifiers
            | Self::QuickIdentifiers
            | Self::Credits
            | Self::Creations => 0,
            Self::OneLimit | Self::HotLimit | Self::HotCredits => 1,
            Self::FiveLimits | Self::FiveLimitsAndCredits => 5,
        }
    }

    pub fn has_credits(self) -> bool {
        matches!(self, Self::FiveLimitsAndCredits | Self::HotCredits | Self::Credits)
    }

    /// Returns the number of keys in this set, given the usual number per case.
    pub fn count(self, usual: usize) -> usize {
        match self {
            Self::HotLimit | Self::HotCredits | Self::Creations => 1,
            Self::FewIdentifiers | Self::QuickIdentifiers => usual.min(100),
            Self::Plain
            | Self::Permitted
            | Self::OneLimit
            | Self::FiveLimits
            | Self::FiveLimitsAndCredits
            | Self::Credits
            | Self::Identifiers => usual,
        }
    }
}
