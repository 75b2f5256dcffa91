//! Defines the users of the dashboard, their sessions, memberships and invitations.

use std::str::FromStr;

use crate::clock::Timestamp;
use crate::id::{InvitationId, SessionId, UserId, WorkspaceId};

/// A user who signs in to the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct User {
    pub id: UserId,
    /// The e-mail, in lower case.
    pub email: String,
    pub created_at: Timestamp,
}

/// What a member of a workspace may do in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberRole {
    /// Read-only access.
    Viewer,
    /// Everything except managing members.
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

/// Converts a role from a database column.
impl TryFrom<String> for MemberRole {
    type Error = UnknownValueError;

    fn try_from(text: String) -> Result<Self, UnknownValueError> {
        text.parse().map_err(|_| UnknownValueError(text))
    }
}

crate::read_from_column!(MemberRole, String);

/// The error for a value in the database that this version does not support.
#[derive(Debug, thiserror::Error)]
#[error("the database contains {0:?}, which this version does not support")]
pub struct UnknownValueError(String);

/// The membership of a user in a workspace.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Membership {
    pub workspace_id: WorkspaceId,
    pub workspace_name: String,
    pub workspace_enabled: bool,
    pub role: MemberRole,
}

/// A member of a workspace, as shown to the others.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Member {
    #[sqlx(flatten)]
    pub user: User,
    pub role: MemberRole,
    pub joined_at: Timestamp,
    /// When one of the user's sessions was last used.
    pub seen_at: Option<Timestamp>,
}

/// A browser session of a signed-in user.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Session {
    pub id: SessionId,
    pub person_id: UserId,
    pub created_at: Timestamp,
    /// When it was last used, accurate to a minute.
    pub seen_at: Timestamp,
    /// The address from which it was last used.
    pub address: Option<String>,
    pub user_agent: Option<String>,
}

/// Why an invitation was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvitationKind {
    /// For the first user; void once a user exists.
    Setup,
    /// Created by an operator with shell access to the server.
    Operator,
    /// Created by an owner.
    Member,
}

impl InvitationKind {
    const ALL: [Self; 3] = [Self::Setup, Self::Operator, Self::Member];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "first",
            Self::Operator => "operator",
            Self::Member => "member",
        }
    }
}

impl TryFrom<String> for InvitationKind {
    type Error = UnknownValueError;

    fn try_from(text: String) -> Result<Self, UnknownValueError> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or(UnknownValueError(text))
    }
}

crate::read_from_column!(InvitationKind, String);

/// An invitation: a single-use URL that makes a user a member.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Invitation {
    pub id: InvitationId,
    pub workspace_id: WorkspaceId,
    pub workspace_name: String,
    pub kind: InvitationKind,
    pub role: MemberRole,
    /// The e-mail of the member who created it.
    pub invited_by: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}
