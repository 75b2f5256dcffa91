//! The name of everything that is counted. No name is made anywhere else.
//!
//! What belongs to one key or one identity shares a hash tag, so that one script may touch all of it
//! on a Redis Cluster. The free part of a name stands last, so that no two subjects share a name.

use sha2::{Digest as _, Sha256};

use super::counter_groups::GroupPeriod;

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

    /// The group of the ad-hoc counters of a key.
    pub fn group(&self, key: &str) -> String {
        format!("{}g:{{{key}}}", self.prefix)
    }

    /// The estimate of how many counters the groups of a workspace have, for one of its periods.
    pub fn group_period(&self, period: &GroupPeriod) -> String {
        format!("{}e:{{{}}}:{}", self.prefix, period.workspace, period.suffix())
    }

    /// A window of the standalone limiter. The identifier, which may be long, is there by 128 bits of
    /// its hash.
    pub fn namespace_window(&self, namespace: &str, identifier: &str, duration_ms: i64) -> String {
        let hash: [u8; 32] = Sha256::digest(identifier).into();
        let half = hash[..16].iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
        format!("{}l:{{{namespace}:{half:032x}}}:{duration_ms}", self.prefix)
    }

    /// A window of attempts to sign in; `whose` is an e-mail or an address.
    pub fn sign_in_attempts(&self, whose: &str, duration_ms: i64) -> String {
        self.namespace_window("people", whose, duration_ms)
    }

    /// A purse of a key, by its number.
    pub fn lease(&self, key: &str, epoch: i64) -> String {
        format!("{}p:{{{key}}}:{epoch}", self.prefix)
    }

    /// What is written to find out whether Redis can be written.
    pub fn probe(&self) -> String {
        format!("{}probe", self.prefix)
    }

    /// The stream in which replicas tell each other what changes.
    pub fn feed(&self) -> String {
        format!("{}feed", self.prefix)
    }

    /// What tells when a replica last read the feed.
    pub fn reader(&self, replica: &str) -> String {
        // On a Redis Cluster, where the feed is.
        format!("{}reader:{{{}}}:{replica}", self.prefix, self.feed())
    }

    /// The channel on which replicas that know no feed are told what has changed.
    pub fn channel(&self) -> String {
        format!("{}changes", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_the_limiter_is_named_by_a_hash_of_its_identifier() {
        let name =
            |identifier: &str| Keyspace::new("kw:").namespace_window("rlns_1", identifier, 1000);

        assert_eq!(name("abc"), "kw:l:{rlns_1:ba7816bf8f01cfea414140de5dae2223}:1000");
        assert_eq!(name("a").len(), name(&"é}".repeat(256)).len());
        assert_ne!(name("a"), name("A"));
    }
}
