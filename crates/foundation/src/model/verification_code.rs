//! The outcomes of verifications.

use crate::metrics::{Counter, Verifications};

macro_rules! codes {
    ($($(#[$attribute:meta])* $name:ident $text:literal $label:literal $counter:ident,)*) => {
        /// The result of a verification. A rejection is not an error.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub enum VerificationCode { $($(#[$attribute])* $name,)* }

        impl VerificationCode {
            /// Parses the code of an event. `None`: another version recorded it, and this one does not know it.
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Returns the code as all API versions show it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the label for users.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Returns the metric that counts this outcome.
            pub fn counter(self, verifications: &Verifications) -> &Counter {
                match self { $(Self::$name => &verifications.$counter,)* }
            }
        }
    };
}

codes! {
    Valid "VALID" "Valid" valid,
    #[default]
    NotFound "NOT_FOUND" "Not found" not_found,
    InsufficientPermissions "INSUFFICIENT_PERMISSIONS" "Insufficient permissions" insufficient_permissions,
    UsageExceeded "USAGE_EXCEEDED" "Credits exhausted" usage_exceeded,
    RateLimited "RATE_LIMITED" "Rate limited" rate_limited,
    Disabled "DISABLED" "Disabled" disabled,
    Expired "EXPIRED" "Expired" expired,
    /// The key may not be used from this address, or for the API in the request.
    Forbidden "FORBIDDEN" "Forbidden" forbidden,
}
