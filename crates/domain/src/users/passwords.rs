//! Password hashing with argon2id, with bounded concurrency and off the threads that serve requests.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use argon2::{Argon2, PasswordHasher as _, PasswordVerifier as _};
use foundation::error::{Error, Result, RetryAfter};
use foundation::metrics::Counter;
use foundation::secret::generate_salt;
use tokio::sync::Semaphore;

/// The minimum and maximum lengths of a password, in characters.
pub const PASSWORD_LENGTH_MIN: usize = 12;
pub const PASSWORD_LENGTH_MAX: usize = 128;
/// How long a request waits for a permit to hash before it fails with 429.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long such a request should wait before it is sent again.
const PERMIT_RETRY_MS: i64 = 5_000;
/// A hash that no password has, with the same parameters and length as all others: a sign-in with an unknown e-mail
/// takes as long as one with a known e-mail.
const DUMMY_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdCBvZiBub2JvZHkhIQ\
    $bm9ib2R5J3MgaGFzaDogbm90aGluZyBjb21lcyB0byE";

/// Hashes and verifies passwords with bounded concurrency. A hash occupies a core for tens of milliseconds, so at most
/// a quarter of the cores, and at least one, hash at the same time.
#[derive(Debug)]
pub struct PasswordHasher {
    permits: Arc<Semaphore>,
    hash_counter: Counter,
}

impl PasswordHasher {
    /// Creates a hasher that counts the hashes that it computes.
    pub fn new(hash_counter: Counter) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let permits = Arc::new(Semaphore::new((cores / 4).max(1)));
        Self { permits, hash_counter }
    }

    /// Returns the hash of a password in its stored form. The parameters are those that OWASP recommends for argon2id:
    /// 19 MiB, two passes.
    pub async fn hash(&self, password: &str) -> Result<String> {
        let password = password.to_owned();
        let hash = move || {
            let hash =
                Argon2::default().hash_password_with_salt(password.as_bytes(), &generate_salt());
            hash.map(|hash| hash.to_string())
        };
        let hashed = self.run_with_permit(hash).await?;
        hashed.map_err(|e| Error::Internal(format!("failed to hash a password: {e}")))
    }

    /// Reports whether the password has this hash. Without a hash, verifies against a dummy hash and returns false.
    pub async fn verify(&self, hash: Option<String>, password: &str) -> Result<bool> {
        let password = password.to_owned();
        let has_hash = hash.is_some();
        let hash = hash.unwrap_or_else(|| DUMMY_HASH.to_owned());
        let verify =
            move || Argon2::default().verify_password(password.as_bytes(), hash.as_str()).is_ok();
        Ok(self.run_with_permit(verify).await? && has_hash)
    }

    async fn run_with_permit<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let permit =
            tokio::time::timeout(PERMIT_TIMEOUT, self.permits.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(Error::TooManyRequests {
                reason: "too many users are signing in",
                retry_after: RetryAfter::from_ms(PERMIT_RETRY_MS),
            });
        };
        self.hash_counter.inc();
        let task = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        });
        task.await.map_err(|e| Error::Internal(format!("failed to hash a password: {e}")))
    }
}

/// Validates a new password: its length, and that it is not the e-mail address.
pub fn validate_password(password: &str, email: &str) -> Result<()> {
    let length = password.chars().count();
    if !(PASSWORD_LENGTH_MIN..=PASSWORD_LENGTH_MAX).contains(&length) {
        let message =
            format!("password must have {PASSWORD_LENGTH_MIN} to {PASSWORD_LENGTH_MAX} characters");
        return Err(Error::invalid("password", message));
    }
    if password.to_lowercase() == email {
        return Err(Error::invalid("password", "password must not be the e-mail address"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn verify_accepts_only_the_hashed_password_and_rejects_when_hash_is_missing() {
        let hasher = PasswordHasher::new(Counter::default());

        let hash = hasher.hash("correct horse battery").await.expect("a hash");

        let verify = |hash: Option<&String>, password| hasher.verify(hash.cloned(), password);
        assert!(verify(Some(&hash), "correct horse battery").await.expect("a result"));
        assert!(!verify(Some(&hash), "correct horse battery!").await.expect("a result"));
        assert!(!verify(None, "correct horse battery").await.expect("a result"));
        assert_ne!(hash, hasher.hash("correct horse battery").await.expect("a hash"));
    }

    #[test]
    fn dummy_hash_has_same_parameters_and_length_as_other_hashes() {
        let hash = Argon2::default().hash_password_with_salt(b"a", &[7; 16]).expect("a hash");
        let parameters =
            |hash: &str| hash.split('$').take(4).map(str::to_owned).collect::<Vec<_>>();

        assert_eq!(parameters(DUMMY_HASH), parameters(&hash.to_string()));
        assert_eq!(DUMMY_HASH.len(), hash.to_string().len());
        assert!(argon2::password_hash::phc::PasswordHash::new(DUMMY_HASH).is_ok());
    }

    #[test]
    fn password_is_rejected_when_length_is_out_of_bounds_or_equal_to_email() {
        let check = |password: &str| validate_password(password, "ada@example.com");

        assert!(check(&"ü".repeat(12)).is_ok() && check(&"x".repeat(128)).is_ok());
        assert!(check(&"ü".repeat(11)).is_err() && check(&"x".repeat(129)).is_err());
        assert!(check("Ada@Example.com").is_err());
    }
}
