//! People who use the dashboard, and what they belong to.

use std::str::FromStr;

use crate::clock::Timestamp;
use crate::id::{InvitationId, PersonId, SessionId, WorkspaceId};

/// Somebody who signs in.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct User {
    pub id: PersonId,
    /// In lower case.
    pub email: String,
    pub created_at: Timestamp,
}

/// What a member of a workspace may do in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberRole {
    /// Only look.
    Viewer,
    /// All but manage members.
    Admin,
    /// Everything.
    Owner,
}

impl MemberRole {
    pub const ALL: [Self; 3] = [Self::Owner, Self::Admin, Self::Viewer];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Admin => "admin",
            Self::Viewer => "viewer",
        }
    }
}

impl FromStr for MemberRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| "must be owner, admin or viewer".to_owned())
    }
}

/// A role as a row holds it.
impl TryFrom<String> for MemberRole {
    type Error = Unreadable;

    fn try_from(text: String) -> Result<Self, Unreadable> {
        text.parse().map_err(|_| Unreadable(text))
    }
}

/// A row holds a word that this version does not know.
#[derive(Debug, thiserror::Error)]
#[error("the database holds {0:?}, which this version does not know")]
pub struct Unreadable(String);

/// That somebody is a member of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Membership {
    pub workspace_id: WorkspaceId,
    pub workspace_name: String,
    pub workspace_enabled: bool,
    #[sqlx(try_from = "String")]
    pub role: MemberRole,
}

/// A member of a workspace, as the others see it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Member {
    #[sqlx(flatten)]
    pub person: User,
    #[sqlx(try_from = "String")]
    pub role: MemberRole,
    pub joined_at: Timestamp,
    /// When one of the person's sessions was last used.
    pub seen_at: Option<Timestamp>,
}

/// A browser in which somebody is signed in.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Session {
    pub id: SessionId,
    pub person_id: PersonId,
    pub created_at: Timestamp,
    /// When it was last used, within a minute.
    pub seen_at: Timestamp,
    /// From where it was last used.
    pub address: Option<String>,
    pub user_agent: Option<String>,
}

/// Why there is a link that makes somebody a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvitationKind {
    /// For the first person; worth nothing once there is one.
    First,
    /// From somebody with a shell on the server.
    Operator,
    /// From an owner.
    Member,
}

impl InvitationKind {
    const ALL: [Self; 3] = [Self::First, Self::Operator, Self::Member];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Operator => "operator",
            Self::Member => "member",
        }
    }
}

impl TryFrom<String> for InvitationKind {
    type Error = Unreadable;

    fn try_from(text: String) -> Result<Self, Unreadable> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or(Unreadable(text))
    }
}

/// A link that makes somebody a member, once.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Invitation {
    pub id: InvitationId,
    pub workspace_id: WorkspaceId,
    pub workspace_name: String,
    #[sqlx(try_from = "String")]
    pub kind: InvitationKind,
    #[sqlx(try_from = "String")]
    pub role: MemberRole,
    /// The e-mail of the member who made it.
    pub invited_by: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}
