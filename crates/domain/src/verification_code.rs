//! The outcomes of verifications.

use foundation::metrics::{Counter, Verifications};

/// The result of a verification. A rejection is not an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum VerificationCode {
    Valid,
    #[default]
    NotFound,
    InsufficientPermissions,
    UsageExceeded,
    RateLimited,
    Disabled,
    Expired,
    /// The key may not be used from this address, or for the API in the request.
    Forbidden,
}

impl VerificationCode {
    /// Returns the code as all API versions show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "VALID",
            Self::NotFound => "NOT_FOUND",
            Self::InsufficientPermissions => "INSUFFICIENT_PERMISSIONS",
            Self::UsageExceeded => "USAGE_EXCEEDED",
            Self::RateLimited => "RATE_LIMITED",
            Self::Disabled => "DISABLED",
            Self::Expired => "EXPIRED",
            Self::Forbidden => "FORBIDDEN",
        }
    }

    /// Returns the metric that counts this outcome.
    pub fn counter(self, verifications: &Verifications) -> &Counter {
        match self {
            Self::Valid => &verifications.valid,
            Self::NotFound => &verifications.not_found,
            Self::InsufficientPermissions => &verifications.insufficient_permissions,
            Self::UsageExceeded => &verifications.usage_exceeded,
            Self::RateLimited => &verifications.rate_limited,
            Self::Disabled => &verifications.disabled,
            Self::Expired => &verifications.expired,
            Self::Forbidden => &verifications.forbidden,
        }
    }
}
