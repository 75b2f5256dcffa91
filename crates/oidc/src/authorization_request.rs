//! Derives the parameters of an authorization request to the OIDC provider.

use foundation::secret::{KeyHash, Plaintext};

/// The number of random bytes in the secret of a request.
const SECRET_BYTES: u8 = 32;

/// An authorization request, identified by a secret that the browser stores until the callback. Its parameters are
/// derived from that secret and the visitor's own CSRF token, so a callback is valid only in the browser that made the
/// request, for the user who made it, and once: the browser deletes the secret when the callback arrives.
#[derive(Debug)]
pub struct AuthorizationRequest(Plaintext);

impl AuthorizationRequest {
    /// Generates a secret for the browser to store.
    pub fn generate_secret() -> Plaintext {
        Plaintext::generate(None, SECRET_BYTES)
    }

    /// Returns the request of a browser that stores `secret`, for the visitor whose forms contain `csrf`.
    pub fn from_secret(secret: &str, csrf: &str) -> Self {
        Self(Plaintext::from(format!("{csrf}\n{secret}")))
    }

    fn derive(&self, name: &str) -> String {
        KeyHash::compute(format!("oidc {name}\n{}", self.0.expose())).to_hex()
    }

    /// Returns the `state`, which the provider returns with the callback.
    pub fn state(&self) -> String {
        self.derive("state")
    }

    /// Returns the `nonce`, which the provider includes in the ID token.
    pub fn nonce(&self) -> String {
        self.derive("nonce")
    }

    /// Returns the PKCE verifier, which proves that the callback belongs to the same client.
    pub fn verifier(&self) -> String {
        self.derive("verifier")
    }

    /// Returns whether a callback belongs to this request. The hashes are compared, which leaks nothing because a hash
    /// cannot be steered toward another.
    pub fn matches_state(&self, state: &str) -> bool {
        KeyHash::compute(state) == KeyHash::compute(self.state())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_matches_only_the_same_secret_and_csrf_token() {
        let request = AuthorizationRequest::from_secret("secret", "csrf");

        assert!(
            request.matches_state(&AuthorizationRequest::from_secret("secret", "csrf").state())
        );
        for other in [
            AuthorizationRequest::from_secret("secret", "other"),
            AuthorizationRequest::from_secret("other", "csrf"),
        ] {
            assert!(!request.matches_state(&other.state()));
        }
        assert!(!request.matches_state("") && !request.matches_state(&request.nonce()));
    }

    #[test]
    fn derived_values_differ_and_have_the_length_that_pkce_requires() {
        let request = AuthorizationRequest::from_secret(
            AuthorizationRequest::generate_secret().expose(),
            "csrf",
        );

        let parts = [request.state(), request.nonce(), request.verifier()];

        assert!(parts.iter().all(|part| (43..=128).contains(&part.len())));
        assert!(parts[0] != parts[1] && parts[1] != parts[2] && parts[0] != parts[2]);
    }
}
