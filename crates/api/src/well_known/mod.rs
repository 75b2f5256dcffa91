//! What servers publish at well-known paths (RFC 8615) for programs that trust them.

pub mod jwks;
pub mod protected_resource;
