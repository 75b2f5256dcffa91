//! Builds the Redis names of everything that is counted. Names are built nowhere else.
//!
//! Names that belong to one key or one identity share a hash tag, so that one script can access all of them on a Redis
//! Cluster. The variable part of a name comes last, so that no two owners share a name.

use sha2::{Digest as _, Sha256};

use super::counter_groups::GroupPeriod;

/// Builds names with a prefix, so that several programs can share a Redis.
#[derive(Debug, Clone)]
pub struct Keyspace {
    prefix: String,
}

impl Keyspace {
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// Returns the name of a window. `owner` is the ID of the key or identity that is counted. The limit is not part of
    /// the name, so a changed limit keeps the count.
    pub fn window(&self, owner: &str, duration_ms: i64, name: &str) -> String {
        format!("{}w:{{{owner}}}:{duration_ms}:{name}", self.prefix)
    }

    /// Returns the name of this region's lease of a window that is counted in another region.
    pub fn window_lease(&self, window: &str) -> String {
        format!("{}a{}", self.prefix, window.strip_prefix(&self.prefix).unwrap_or(window))
    }

    /// Returns the name of the last count of a window whose counter has moved to another region.
    pub fn closed_window(&self, window: &str) -> String {
        format!("{}c{}", self.prefix, window.strip_prefix(&self.prefix).unwrap_or(window))
    }

    /// Returns the name that holds the number of the first window that has begun here after its home moved.
    pub fn begun_window(&self, window: &str) -> String {
        format!("{}b{}", self.prefix, window.strip_prefix(&self.prefix).unwrap_or(window))
    }

    /// Returns the name of the group of a key's ad-hoc counters.
    pub fn group(&self, key: &str) -> String {
        format!("{}g:{{{key}}}", self.prefix)
    }

    /// Returns the name of the estimate of how many counters the groups of a workspace have in one of its periods.
    pub fn group_period(&self, period: &GroupPeriod) -> String {
        format!("{}e:{{{}}}:{}", self.prefix, period.workspace, period.suffix())
    }

    /// Returns the name of a window of the standalone limiter. The identifier, which may be long, is represented by 128
    /// bits of its hash.
    pub fn namespace_window(&self, namespace: &str, identifier: &str, duration_ms: i64) -> String {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
        let hash: [u8; 32] = Sha256::digest(identifier).into();
        // Built by hand: every check needs one, and formatting costs several times as much.
        let mut name = String::with_capacity(self.prefix.len() + namespace.len() + 64);
        for text in [self.prefix.as_str(), "l:{", namespace, ":"] {
            name.push_str(text);
        }
        for byte in &hash[..16] {
            name.push(DIGITS[usize::from(byte >> 4)]);
            name.push(DIGITS[usize::from(byte & 15)]);
        }
        name.push_str("}:");
        name.push_str(itoa::Buffer::new().format(duration_ms));
        name
    }

    /// Returns the name of a window of sign-in attempts, by e-mail or address.
    pub fn sign_in_attempts(&self, email_or_address: &str, duration_ms: i64) -> String {
        self.namespace_window("people", email_or_address, duration_ms)
    }

    /// Returns the name of a key's lease with this lease number.
    pub fn lease(&self, key: &str, lease_number: i64) -> String {
        format!("{}p:{{{key}}}:{lease_number}", self.prefix)
    }

    /// Returns the name that is written to check whether Redis accepts writes.
    pub fn probe(&self) -> String {
        format!("{}probe", self.prefix)
    }

    /// Returns the name that holds the region whose Redis this is.
    pub fn region(&self) -> String {
        format!("{}region", self.prefix)
    }

    /// Returns the name of the stream in which replicas announce changes to each other.
    pub fn feed(&self) -> String {
        format!("{}feed", self.prefix)
    }

    /// Returns the name that records when a replica last read the feed.
    pub fn reader(&self, replica: &str) -> String {
        // The hash tag puts it on the feed's node of a Redis Cluster.
        format!("{}reader:{{{}}}:{replica}", self.prefix, self.feed())
    }

    /// Returns the name of the channel that replicas of the version before the feed subscribe to.
    pub fn channel(&self) -> String {
        format!("{}changes", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;

    use super::*;

    #[test]
    fn namespace_window_contains_hash_of_identifier() {
        let name =
            |identifier: &str| Keyspace::new("kw:").namespace_window("rlns_1", identifier, 1000);

        assert_eq!(name("abc"), "kw:l:{rlns_1:ba7816bf8f01cfea414140de5dae2223}:1000");
        assert_eq!(name("a").len(), name(&"é}".repeat(256)).len());
        assert_ne!(name("a"), name("A"));
    }

    /// Replicas of several versions share a Redis, so these never change.
    #[test]
    fn names_are_those_of_every_version() {
        let keys = Keyspace::new("kw:");
        let window = keys.window("key_1", 1000, "requests");
        let period = GroupPeriod::list_live(&"ws_1".into(), Timestamp(0)).last().expect("a period");

        for (name, expected) in [
            (keys.window_lease(&window), "kw:aw:{key_1}:1000:requests"),
            (keys.closed_window(&window), "kw:cw:{key_1}:1000:requests"),
            (keys.begun_window(&window), "kw:bw:{key_1}:1000:requests"),
            (keys.group("key_1"), "kw:g:{key_1}"),
            (keys.group_period(&period), "kw:e:{ws_1}:21:0"),
            (keys.lease("key_1", 7), "kw:p:{key_1}:7"),
            (keys.probe(), "kw:probe"),
            (keys.region(), "kw:region"),
            (keys.feed(), "kw:feed"),
            (keys.reader("rep_1"), "kw:reader:{kw:feed}:rep_1"),
            (keys.channel(), "kw:changes"),
            (window, "kw:w:{key_1}:1000:requests"),
        ] {
            assert_eq!(name, expected);
        }
        let attempts = keys.sign_in_attempts("abc", 1000);
        assert_eq!(attempts, "kw:l:{people:ba7816bf8f01cfea414140de5dae2223}:1000");
    }
}
