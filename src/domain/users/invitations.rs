//! Links that make somebody a member, once: for the first person, from an operator, from an owner. Of a link there is
//! only the hash of its token.

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, Result, Subject};
use foundation::id::{InvitationId, PersonId, WorkspaceId};
use foundation::model::{Invitation, InvitationKind, MemberRole, User};
use foundation::secret::{KeyHash, Plaintext};
use store::{Store, Tx};

use super::super::audit::{Actor, AuditBatch};
use super::super::caller::ClientInfo;
use super::super::root_keys::default_workspace;
use super::passwords;
use super::sessions::{begin, prune};
use super::sign_in::{SignedIn, attempt, require_passwords_enabled};
use super::{email, target};
use crate::app::App;

/// Random bytes in the token of a link.
const TOKEN_BYTES: u8 = 32;
/// How long a link of the server lasts, and one of a member.
const SET_UP_MS: i64 = 24 * 60 * 60_000;
const INVITATION_MS: i64 = 3 * 24 * 60 * 60_000;
/// How many members a workspace may have.
const MEMBERS_MAX: i64 = 10_000;

/// A link as it is made.
pub struct NewLink<'a> {
    pub workspace: &'a WorkspaceId,
    pub kind: InvitationKind,
    pub role: MemberRole,
    pub invited_by: Option<&'a str>,
}

/// Writes a link; its token, which nothing keeps.
pub async fn add(
    tx: &mut Tx,
    link: &NewLink<'_>,
    now: Timestamp,
) -> Result<(Invitation, Plaintext)> {
    let token = Plaintext::random(None, TOKEN_BYTES);
    let lasts_ms = match link.kind {
        InvitationKind::First | InvitationKind::Operator => SET_UP_MS,
        InvitationKind::Member => INVITATION_MS,
    };
    let invitation = Invitation {
        id: InvitationId::random(),
        workspace_id: link.workspace.clone(),
        workspace_name: String::new(),
        kind: link.kind,
        role: link.role,
        invited_by: link.invited_by.map(str::to_owned),
        created_at: now,
        expires_at: now.plus_ms(lasts_ms),
    };
    let added = tx.insert_invitation(&invitation, &token.hash().base64()).await;
    added.map_err(|e| match e.is_foreign_key_violation() {
        true => Error::not_found(Subject::Workspace(link.workspace.clone())),
        false => e,
    })?;
    Ok((invitation, token))
}

/// A link for the first person, where there is none yet. Each start makes one, and all are good until one is used. The
/// store is not open to requests yet.
pub async fn at_start(app: &App, store: &Store) -> Result<Option<Plaintext>> {
    let now = app.clock.now();
    let mut tx = store.begin().await?;
    if tx.has_users().await? {
        return Ok(None);
    }
    prune(&mut tx, now).await?;
    let workspace = default_workspace();
    let (kind, role) = (InvitationKind::First, MemberRole::Owner);
    let link = NewLink { workspace: &workspace, kind, role, invited_by: None };
    let (_, token) = add(&mut tx, &link, now).await?;
    app.commit_in(store, tx).await?;
    Ok(Some(token))
}

/// A link that makes an owner. The caller is somebody with a shell on the server, who may do anything: who opens it
/// with an e-mail that is known gives that a new password.
pub async fn operator_link(app: &App, workspace: &WorkspaceId) -> Result<Plaintext> {
    let now = app.clock.now();
    let (kind, role) = (InvitationKind::Operator, MemberRole::Owner);
    let mut tx = app.store.begin().await?;
    let (invitation, token) =
        add(&mut tx, &NewLink { workspace, kind, role, invited_by: None }, now).await?;
    let mut entries = AuditBatch::new(Actor::Command("cli"), workspace, now);
    entries.add("member.invite", &[super::members::invited(&invitation)]);
    entries.write(&mut tx).await?;
    app.commit(tx).await?;
    Ok(token)
}

/// The link of a token, if it is good.
pub async fn find_invitation(app: &App, token: &str) -> Result<Option<Invitation>> {
    let found = app.store.read().await?.invitation(&KeyHash::of(token).base64()).await?;
    Ok(found.filter(|link| link.expires_at >= app.clock.now()))
}

/// Whether who opens a link may choose a password: with those of the server always, for they are an operator's way in.
pub fn takes_password(app: &App, link: &Invitation) -> bool {
    link.kind != InvitationKind::Member || require_passwords_enabled(app).is_ok()
}

/// What came of opening a link.
#[derive(Debug)]
pub enum AcceptResult {
    /// The person, who is new or not, belongs to the workspace and is signed in.
    In(SignedIn, WorkspaceId),
    /// The e-mail is known, and its password is another one.
    WrongPassword,
    /// The link has been used, is too old, or never was.
    NoLink,
}

/// Makes a member of who has the link. A new e-mail gets the password; a known one must have it, unless the link is an
/// operator's, which sets it.
pub async fn accept(
    app: &App,
    token: &str,
    given: &str,
    password: &str,
    origin: &ClientInfo,
) -> Result<AcceptResult> {
    let Some(link) = find_invitation(app, token).await? else { return Ok(AcceptResult::NoLink) };
    if !takes_password(app, &link) {
        require_passwords_enabled(app)?;
    }
    let given = email(given)?;
    let known = app.store.read().await?.person_of(&given).await?;
    let keeps_password = known.is_some() && link.kind != InvitationKind::Operator;
    if !keeps_password {
        passwords::check(password, &given)?;
    }
    attempt(app, &given, origin).await?;
    let hash = match known {
        Some((_, hash)) if keeps_password => {
            if !app.password_hasher.verify(hash, password).await? {
                return Ok(AcceptResult::WrongPassword);
            }
            None
        }
        Some(_) | None => Some(app.password_hasher.hash(password).await?),
    };
    join(app, token, &given, hash, origin).await
}

/// `hash`: of the password that the person gets; absent for one whose password stays.
async fn join(
    app: &App,
    token: &str,
    given: &str,
    hash: Option<String>,
    origin: &ClientInfo,
) -> Result<AcceptResult> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let Some(link) = redeem(&mut tx, token, now).await? else { return Ok(AcceptResult::NoLink) };
    let person = match (tx.person_of(given).await?, hash) {
        (Some((person, _)), None) => person,
        (Some((person, _)), Some(hash)) => {
            tx.set_password(&person.id, Some(&hash)).await?;
            tx.end_other_sessions(&person.id, None).await?;
            person
        }
        (None, Some(hash)) => {
            let person = User { id: PersonId::random(), email: given.to_owned(), created_at: now };
            tx.insert_person(&person, Some(&hash)).await?;
            person
        }
        // Removed at this very moment.
        (None, None) => return Ok(AcceptResult::WrongPassword),
    };
    add_member(&mut tx, &link, &person, origin, now).await?;
    let token = begin(&mut tx, &person, origin, now).await?;
    app.commit(tx).await?;
    Ok(AcceptResult::In(SignedIn { person, token }, link.workspace_id))
}

/// Uses up a link, and holds the members of its workspace until the transaction ends. `None`: it is not good.
pub async fn redeem(tx: &mut Tx, token: &str, now: Timestamp) -> Result<Option<Invitation>> {
    let stored = KeyHash::of(token).base64();
    let Some(link) = tx.invitation(&stored).await?.filter(|link| link.expires_at >= now) else {
        return Ok(None);
    };
    // One at a time: of two that use one link, or two links for the first person, one is later.
    tx.lock_members(&link.workspace_id).await?;
    let is_late = link.kind == InvitationKind::First && tx.has_users().await?;
    let is_there = tx.delete_invitation(&link.workspace_id, &link.id).await?;
    Ok(Some(link).filter(|_| is_there && !is_late))
}

/// Makes a member of who has used up a link.
pub async fn add_member(
    tx: &mut Tx,
    link: &Invitation,
    person: &User,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<()> {
    tx.delete_first_invitations().await?;
    let is_new = join_as(tx, &link.workspace_id, link.role, person, origin, now).await?;
    if !is_new && link.kind == InvitationKind::Operator {
        tx.set_member_role(&link.workspace_id, &person.id, link.role).await?;
    }
    Ok(())
}

/// Makes a member of somebody, where there is room; whether the person was none. The members are held.
pub async fn join_as(
    tx: &mut Tx,
    workspace: &WorkspaceId,
    role: MemberRole,
    person: &User,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<bool> {
    if tx.count_members(workspace).await? >= MEMBERS_MAX {
        return Err(Error::Refused(Refusal::TooManyMembers(MEMBERS_MAX)));
    }
    let is_new = tx.insert_member(workspace, &person.id, role, now).await?;
    let mut entries = AuditBatch::new(Actor::Person(person, origin), workspace, now);
    entries.add("member.join", &[target(person)]);
    entries.write(tx).await?;
    Ok(is_new)
}
