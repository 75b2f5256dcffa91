//! Defines reads and writes of what the forms of the dashboard created.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::SessionId;
use sqlx_macros::FromRow;

/// What a form created.
#[derive(Debug, Clone, FromRow)]
pub struct FormResult {
    pub created_id: String,
    /// The sealed secret of what was created. `None`: there is none, it was shown, or its time is over.
    pub sealed: Option<String>,
    /// The time when the secret was shown.
    pub shown_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

#[async_trait]
pub trait FormResultReads: Send {
    /// Returns what a form of a session created. `form` identifies the form within the session.
    async fn find_form_result(
        &mut self,
        session: &SessionId,
        form: &str,
    ) -> Result<Option<FormResult>>;
}

#[async_trait]
pub trait FormResultWrites: FormResultReads {
    /// Stores what a form of a session created, unless the form has created something already. Returns whether it was
    /// stored.
    async fn insert_form_result(
        &mut self,
        session: &SessionId,
        form: &str,
        result: &FormResult,
    ) -> Result<bool>;
    /// Like [`FormResultReads::find_form_result`], and no other transaction changes it until this one ends.
    async fn lock_form_result(
        &mut self,
        session: &SessionId,
        form: &str,
    ) -> Result<Option<FormResult>>;
    /// Deletes the secret of a result and records when it was shown.
    async fn delete_form_secret(
        &mut self,
        session: &SessionId,
        form: &str,
        shown_at: Timestamp,
    ) -> Result<()>;
    /// Deletes up to `max` secrets of results from before `secrets_until`, and up to `max` results from before
    /// `until`.
    async fn prune_form_results(
        &mut self,
        secrets_until: Timestamp,
        until: Timestamp,
        max: i64,
    ) -> Result<()>;
}
