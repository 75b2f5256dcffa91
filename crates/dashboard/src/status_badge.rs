//! The badge with the status of a key or root key: green if it is accepted, red if it needs attention, else gray.

use domain::keys::details::KeyStatus;

use super::keys::status_label;

pub struct StatusBadge {
    pub label: &'static str,
    /// The class of its color; empty for gray.
    pub class: &'static str,
}

impl StatusBadge {
    pub fn good(label: &'static str) -> Self {
        Self { label, class: "good" }
    }

    pub fn bad(label: &'static str) -> Self {
        Self { label, class: "bad" }
    }

    pub fn neutral(label: &'static str) -> Self {
        Self { label, class: "" }
    }
}

impl From<KeyStatus> for StatusBadge {
    fn from(status: KeyStatus) -> Self {
        let label = status_label(status);
        match status {
            KeyStatus::Active => Self::good(label),
            KeyStatus::Disabled => Self::neutral(label),
            KeyStatus::Expired | KeyStatus::Exhausted => Self::bad(label),
        }
    }
}
