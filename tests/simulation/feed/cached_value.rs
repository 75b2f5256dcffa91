//! The values of keys, as a replica caches them.

use foundation::secret::KeyHash;
use store::cache::CacheValue;

/// Room for some hundred values.
pub const CACHE_BYTES: u64 = 50_000;

/// The value of a key.
#[derive(Debug)]
pub struct SimulatedValue(pub i64);

impl CacheValue for SimulatedValue {
    fn heap_size(&self) -> usize {
        0
    }
}

/// Returns the name by which the value of a key is cached.
pub fn hash_of(key: usize) -> KeyHash {
    KeyHash::compute(key.to_string())
}
