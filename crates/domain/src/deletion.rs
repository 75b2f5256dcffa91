//! What a deletion removes.

use serde_json::{Value, json};

/// What a deletion removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// The key stops verifying. Its row stays, and its hash stays reserved.
    Soft,
    /// The key and all its data.
    Permanent,
}

impl Deletion {
    /// Returns the metadata of the audit entry.
    pub fn audit_meta(self) -> Value {
        json!({ "permanent": self == Self::Permanent })
    }
}
