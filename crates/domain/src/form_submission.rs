//! Identifies the forms that a browser submits, and seals the secrets that they create.

use foundation::id::SessionId;
use foundation::secret::KeyHash;
use foundation::vault::Sealer;

/// The result of a form in the session of a browser.
pub struct FormResultKey {
    pub(super) session_id: SessionId,
    /// Identifies the form within the session. It is in the URL of the page that shows the result, and opens nothing.
    pub form_id: String,
    /// Has a key that is derived from the token of the session, which only the cookie of the browser contains.
    pub(super) sealer: Sealer,
}

impl FormResultKey {
    /// Creates the key of a result, for the token of the session as the browser sent it.
    pub fn new(session_id: SessionId, session_token: &str, form_id: String) -> Self {
        let key = KeyHash::compute(format!("form result\n{session_token}\n{form_id}"));
        Self { session_id, form_id, sealer: Sealer::new(key.to_bytes()) }
    }
}

/// A form that a browser submits.
pub struct FormSubmission {
    pub key: FormResultKey,
    /// The URL under which the browser reaches this server.
    pub(super) base_url: String,
}

impl FormSubmission {
    /// Creates the submission of the form at a path, with the one-time token that the page of the form contained.
    pub fn new(
        session_id: SessionId,
        session_token: &str,
        (path, form_token): (&str, &str),
        base_url: String,
    ) -> Self {
        let form_id = KeyHash::compute(format!("form\n{path}\n{form_token}")).to_hex();
        Self { key: FormResultKey::new(session_id, session_token, form_id), base_url }
    }
}

impl std::fmt::Debug for FormSubmission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FormSubmission(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form_id(path: &str, form_token: &str) -> String {
        let session = SessionId::from("ses_1");
        FormSubmission::new(session, "token", (path, form_token), String::new()).key.form_id
    }

    #[test]
    fn form_id_depends_on_path_and_token() {
        let id = form_id("/dashboard/ws/keys", "a");

        assert_eq!(id, form_id("/dashboard/ws/keys", "a"));
        assert_ne!(id, form_id("/dashboard/ws/keys", "b"));
        assert_ne!(id, form_id("/dashboard/ws/apis", "a"));
        assert!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn secret_opens_only_with_the_token_of_its_session_and_its_form() {
        let key = |token: &str, form: &str| {
            FormResultKey::new(SessionId::from("ses_1"), token, form.to_owned()).sealer
        };
        let sealed = key("token", "form").seal(b"secret", "key_1");

        assert_eq!(key("token", "form").open(&sealed, "key_1").as_deref(), Some(&b"secret"[..]));
        for (sealer, context) in [
            (key("other", "form"), "key_1"),
            (key("token", "other"), "key_1"),
            (key("token", "form"), "key_2"),
        ] {
            assert_eq!(sealer.open(&sealed, context), None, "{context}");
        }
    }
}
