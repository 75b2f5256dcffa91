//! The keys by which repeated requests are recognized.

use foundation::secret::KeyHash;
use foundation::vault::Sealer;

/// Identifies a request that may be repeated.
pub struct IdempotencyKey {
    /// A hash of the `Idempotency-Key`.
    pub(super) key_hash: String,
    /// A hash of the operation and its body.
    pub(super) request_hash: String,
    pub(super) sealer: Sealer,
}

impl IdempotencyKey {
    /// Creates a key from `name`, the `Idempotency-Key`, and `bearer`, the root key as it was sent.
    pub fn new(name: &[u8], bearer: &[u8], operation: &str, body: &[u8]) -> Self {
        let hash = |parts: &[&[u8]]| KeyHash::compute(parts.concat());
        Self {
            key_hash: hash(&[name]).to_base64(),
            request_hash: hash(&[operation.as_bytes(), b"\n", body]).to_base64(),
            sealer: Sealer::new(hash(&[b"kept reply\n", bearer, b"\n", name]).to_bytes()),
        }
    }
}

impl std::fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdempotencyKey(…)")
    }
}
