//! Passwords: hashed with argon2id, a few at a time, away from the threads that answer requests.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use argon2::{Argon2, PasswordHasher as _, PasswordVerifier as _};
use foundation::error::{Error, Result};
use foundation::secret::salt;
use tokio::sync::Semaphore;

/// The bounds of a password, in characters.
pub const PASSWORD_MIN: usize = 12;
pub const PASSWORD_MAX: usize = 128;
/// How long somebody waits for a turn before being told to come back.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// A hash of nobody's password, with the parameters of all others: whoever signs in with an e-mail that nobody has
/// waits as long as with one that somebody has.
const DUMMY_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdCBvZiBub2JvZHkhIQ\
    $bm9ib2R5J3MgaGFzaDogbm90aGluZyBjb21lcyB0byE";

/// Who may hash at this moment. A hash takes a core for tens of milliseconds: three quarters of the cores are left to
/// everything else, and of two, one.
#[derive(Debug)]
pub struct PasswordHasher(Arc<Semaphore>);

impl Default for PasswordHasher {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new((cores / 4).max(1))))
    }
}

impl PasswordHasher {
    /// The hash of a password, as it is kept. The parameters are those that OWASP names for argon2id: 19 MiB, two passes.
    pub async fn hash(&self, password: &str) -> Result<String> {
        let password = password.to_owned();
        let hash = move || {
            let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt());
            hash.map(|hash| hash.to_string())
        };
        let hashed = self.in_turn(hash).await?;
        hashed.map_err(|e| Error::Internal(format!("cannot hash a password: {e}")))
    }

    /// Whether this is the password of the hash; of nobody's, where there is none.
    pub async fn verify(&self, hash: Option<String>, password: &str) -> Result<bool> {
        let password = password.to_owned();
        let is_somebody = hash.is_some();
        let hash = hash.unwrap_or_else(|| DUMMY_HASH.to_owned());
        let verify =
            move || Argon2::default().verify_password(password.as_bytes(), hash.as_str()).is_ok();
        Ok(self.in_turn(verify).await? && is_somebody)
    }

    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let turn = tokio::time::timeout(TURN_TIMEOUT, self.0.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(Error::TooManyRequests(
                "many people sign in at this moment; try again in a moment",
            ));
        };
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        done.await.map_err(|e| Error::Internal(format!("cannot hash a password: {e}")))
    }
}

/// Whether somebody may have this password.
pub fn check(password: &str, email: &str) -> Result<()> {
    let length = password.chars().count();
    if !(PASSWORD_MIN..=PASSWORD_MAX).contains(&length) {
        let message = format!("the password must have {PASSWORD_MIN} to {PASSWORD_MAX} characters");
        return Err(Error::invalid("password", message));
    }
    if password.to_lowercase() == email {
        return Err(Error::invalid("password", "the password must not be the e-mail address"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_known_by_its_hash_and_nobody_has_one() {
        let passwords = PasswordHasher::default();

        let hash = passwords.hash("correct horse battery").await.expect("a hash");

        let verify = |hash: Option<&String>, password| passwords.verify(hash.cloned(), password);
        assert!(verify(Some(&hash), "correct horse battery").await.expect("an answer"));
        assert!(!verify(Some(&hash), "correct horse battery!").await.expect("an answer"));
        assert!(!verify(None, "correct horse battery").await.expect("an answer"));
        assert_ne!(hash, passwords.hash("correct horse battery").await.expect("a hash"));
    }

    #[test]
    fn nobodys_hash_costs_as_much_as_any_other() {
        let made = Argon2::default().hash_password_with_salt(b"a", &[7; 16]).expect("a hash");
        let parameters =
            |hash: &str| hash.split('$').take(4).map(str::to_owned).collect::<Vec<_>>();

        assert_eq!(parameters(DUMMY_HASH), parameters(&made.to_string()));
        assert_eq!(DUMMY_HASH.len(), made.to_string().len());
        assert!(argon2::password_hash::phc::PasswordHash::new(DUMMY_HASH).is_ok());
    }

    #[test]
    fn a_password_has_12_to_128_characters_and_is_not_the_email() {
        let check = |password: &str| check(password, "ada@example.com");

        assert!(check(&"ü".repeat(12)).is_ok() && check(&"x".repeat(128)).is_ok());
        assert!(check(&"ü".repeat(11)).is_err() && check(&"x".repeat(129)).is_err());
        assert!(check("Ada@Example.com").is_err());
    }
}
