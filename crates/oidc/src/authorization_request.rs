//! One way to the issuer and back.

use foundation::secret::{KeyHash, Plaintext};

/// Random bytes in the secret of a trip.
const SECRET_BYTES: u8 = 32;

/// One way to the issuer and back, known by a secret that the browser keeps meanwhile. What is shown to the issuer is
/// made from that and from the visitor's own token, so an answer is good only in the browser that asked, for whoever
/// asked there, and once: the browser is told to forget the secret when the answer comes.
#[derive(Debug)]
pub struct AuthorizationRequest(Plaintext);

impl AuthorizationRequest {
    /// A secret for the browser to keep.
    pub fn secret() -> Plaintext {
        Plaintext::random(None, SECRET_BYTES)
    }

    /// The trip of a browser that keeps `secret`, for the visitor whose forms show `csrf`.
    pub fn of(secret: &str, csrf: &str) -> Self {
        Self(Plaintext::from(format!("{csrf}\n{secret}")))
    }

    fn part(&self, name: &str) -> String {
        KeyHash::of(format!("oidc {name}\n{}", self.0.expose())).hex()
    }

    /// What the issuer hands back with its answer.
    pub fn state(&self) -> String {
        self.part("state")
    }

    /// What stands in the token that it makes.
    pub fn nonce(&self) -> String {
        self.part("nonce")
    }

    /// By which the issuer knows that who began also ends it (PKCE).
    pub fn verifier(&self) -> String {
        self.part("verifier")
    }

    /// Whether an answer belongs to it. Compared by their hashes, which nobody can steer towards each other.
    pub fn is_answered_by(&self, state: &str) -> bool {
        KeyHash::of(state) == KeyHash::of(self.state())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_one_secret_and_one_visitor() {
        let trip = AuthorizationRequest::of("secret", "csrf");

        assert!(trip.is_answered_by(&AuthorizationRequest::of("secret", "csrf").state()));
        for other in
            [AuthorizationRequest::of("secret", "other"), AuthorizationRequest::of("other", "csrf")]
        {
            assert!(!trip.is_answered_by(&other.state()));
        }
        assert!(!trip.is_answered_by("") && !trip.is_answered_by(&trip.nonce()));
    }

    #[test]
    fn the_parts_differ_and_are_as_long_as_pkce_wants() {
        let trip = AuthorizationRequest::of(AuthorizationRequest::secret().expose(), "csrf");

        let parts = [trip.state(), trip.nonce(), trip.verifier()];

        assert!(parts.iter().all(|part| (43..=128).contains(&part.len())));
        assert!(parts[0] != parts[1] && parts[1] != parts[2] && parts[0] != parts[2]);
    }
}
