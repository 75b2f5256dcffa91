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

pub const RATELIMIT_HEADERS: ChoiceSetting<RatelimitHeaders> = ChoiceSetting {
    name: "KEYWARD_RATELIMIT_HEADERS",
    default: "off",
    choices: &[
        ("draft", RatelimitHeaders::Draft),
        ("legacy", RatelimitHeaders::Legacy),
        ("off", RatelimitHeaders::Off),
    ],
};
