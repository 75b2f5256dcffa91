//! Defines reads and writes of users and their sessions.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{SessionId, UserId, WorkspaceId};
use foundation::model::{Session, User};

#[async_trait]
pub trait UserReads: Send {
    /// Returns the user with this e-mail address, and the hash of the password if the user has one.
    async fn find_user_by_email(&mut self, email: &str) -> Result<Option<(User, Option<String>)>>;
    /// Returns the user with this id, and the hash of the password if the user has one.
    async fn find_user(&mut self, id: &UserId) -> Result<Option<(User, Option<String>)>>;
    /// Returns the user whom an issuer identifies by this subject.
    async fn find_user_by_login(&mut self, issuer: &str, subject: &str) -> Result<Option<User>>;
    /// Returns the subject by which an issuer identifies a user.
    async fn find_login_subject(&mut self, user: &UserId, issuer: &str) -> Result<Option<String>>;
    async fn has_users(&mut self) -> Result<bool>;
    /// Returns the session with this hash of its token, and its user.
    async fn find_session(&mut self, hash: &str) -> Result<Option<(Session, User)>>;
    /// Returns whether a user has this session, which may have expired.
    async fn has_session(&mut self, user: &UserId, id: &SessionId) -> Result<bool>;
    /// Returns up to a hundred sessions of a user, the most recently used first.
    async fn list_sessions(&mut self, user: &UserId) -> Result<Vec<Session>>;
    /// Counts the APIs, keys and identities of a workspace, each up to `max`.
    async fn count_resources(
        &mut self,
        workspace: &WorkspaceId,
        max: i64,
    ) -> Result<(i64, i64, i64)>;
}

#[async_trait]
pub trait UserWrites: UserReads {
    /// Inserts a user unless the e-mail address is in use. `password` is the hash of the password, if the user has one. Returns
    /// whether it was inserted.
    async fn insert_user(&mut self, user: &User, password: Option<&str>) -> Result<bool>;
    /// Returns the user with this id, and the hash of the password if the user has one, and locks the user until the
    /// transaction ends. Members are locked before their users.
    async fn lock_user(&mut self, id: &UserId) -> Result<Option<(User, Option<String>)>>;
    async fn set_password(&mut self, user: &UserId, password: Option<&str>) -> Result<()>;
    /// Sets the subject by which an issuer identifies a user, and replaces the previous one.
    async fn set_login(
        &mut self,
        user: &UserId,
        issuer: &str,
        subject: &str,
        now: Timestamp,
    ) -> Result<()>;
    /// Deletes the subject by which an issuer identifies a user.
    async fn delete_login(&mut self, user: &UserId, issuer: &str) -> Result<()>;
    /// Deletes the subjects by which all issuers identify a user. Returns whether there were any.
    async fn delete_logins(&mut self, user: &UserId) -> Result<bool>;
    /// Deletes a user who is no longer a member of any workspace, with all sessions.
    async fn delete_orphaned_user(&mut self, user: &UserId) -> Result<()>;
    async fn insert_session(&mut self, session: &Session, hash: &str) -> Result<()>;
    /// Records the time, address and user agent of the last use of a session.
    async fn touch_session(&mut self, session: &Session) -> Result<()>;
    /// Ends one session of a user. Returns whether it existed.
    async fn delete_session(&mut self, user: &UserId, id: &SessionId) -> Result<bool>;
    /// Ends all sessions of a user except one.
    async fn delete_other_sessions(
        &mut self,
        user: &UserId,
        except: Option<&SessionId>,
    ) -> Result<()>;
    /// Deletes sessions that began before `began` or were last used before `seen`, and invitations that expired
    /// before `now`.
    async fn prune_sessions_and_invitations(
        &mut self,
        began: Timestamp,
        seen: Timestamp,
        now: Timestamp,
    ) -> Result<()>;
}
