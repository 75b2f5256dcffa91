//! Defines rows of users and sessions.

use foundation::clock::Timestamp;
use foundation::id::{SessionId, UserId};
use foundation::model::{Session, User};
use sqlx_macros::FromRow;

#[derive(FromRow)]
pub struct UserWithPasswordRow {
    #[sqlx(flatten)]
    user: User,
    /// The hash of the password. Empty if the user has none.
    password: String,
}

impl UserWithPasswordRow {
    pub fn into_parts(self) -> (User, Option<String>) {
        (self.user, Some(self.password).filter(|password| !password.is_empty()))
    }
}

#[derive(FromRow)]
pub struct SessionRow {
    id: SessionId,
    person_id: UserId,
    created_at: Timestamp,
    seen_at: Timestamp,
    address: Option<String>,
    user_agent: Option<String>,
    email: String,
    joined_at: Timestamp,
}

impl SessionRow {
    pub fn into_parts(self) -> (Session, User) {
        let user =
            User { id: self.person_id.clone(), email: self.email, created_at: self.joined_at };
        let session = Session {
            id: self.id,
            person_id: self.person_id,
            created_at: self.created_at,
            seen_at: self.seen_at,
            address: self.address,
            user_agent: self.user_agent,
        };
        (session, user)
    }
}
