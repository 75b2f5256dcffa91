//! The name of everything that is counted. No name is made anywhere else.
//!
//! What belongs to one key or one identity shares a hash tag, so that one script may touch all of it
//! on a Redis Cluster. The free part of a name stands last, so that no two subjects share a name.

/// Names behind a prefix, so that a Redis can be shared.
#[derive(Debug, Clone)]
pub struct Keyspace {
    prefix: String,
}

impl Keyspace {
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// A window: `owner` is the id of the key or the identity that is counted. The limit is not part
    /// of it: a changed limit keeps the count.
    pub fn window(&self, owner: &str, duration_ms: i64, name: &str) -> String {
        format!("{}w:{{{owner}}}:{duration_ms}:{name}", self.prefix)
    }

    /// A purse of a key, by its number.
    pub fn purse(&self, key: &str, epoch: i64) -> String {
        format!("{}p:{{{key}}}:{epoch}", self.prefix)
    }

    /// The channel on which replicas tell each other what has changed.
    pub fn channel(&self) -> String {
        format!("{}changes", self.prefix)
    }
}
