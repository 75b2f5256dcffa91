//! The setting of rate-limit headers.

use super::setting::ChoiceSetting;

/// Which headers describe the limits that a request was checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RatelimitHeaders {
    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11.
    Draft,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, for the tightest limit.
    Legacy,
    Off,
}

impl RatelimitHeaders {
    /// Returns the headers of answers to gateways. Gateways are made for them, so they are never off.
    pub fn for_gateways(self) -> Self {
        match self {
            Self::Legacy => Self::Legacy,
            Self::Draft | Self::Off => Self::Draft,
        }
    }
}

pub const RATELIMIT_HEADERS: ChoiceSetting<RatelimitHeaders> = ChoiceSetting {
    name: "KEYWARD_RATELIMIT_HEADERS",
    default: "off",
    choices: &[
        ("draft", RatelimitHeaders::Draft),
        ("legacy", RatelimitHeaders::Legacy),
        ("off", RatelimitHeaders::Off),
    ],
};
