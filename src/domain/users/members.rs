//! Members of a workspace and their roles.

use foundation::error::{Error, Refusal, Result, Subject};
use foundation::id::{InvitationId, PersonId};
use foundation::model::{Invitation, InvitationKind, Member, MemberRole};
use foundation::secret::Plaintext;
use serde_json::{Value, json};
use store::Tx;

use super::super::audit::{AuditBatch, FieldChanges, Target};
use super::super::caller::Caller;
use super::super::page::{Page, Paging};
use super::super::permission::Action;
use super::invitations::{NewLink, add};
use super::target;
use crate::app::App;

/// Lists a page of the members of the workspace, sorted by e-mail.
pub async fn members(app: &App, caller: &Caller, paging: &Paging) -> Result<Page<Member>> {
    caller.require(Action::ReadMember)?;
    let found = app.store.read().await?.members(caller.workspace(), &paging.listing()).await?;
    Ok(Page::new(found, paging, |member| &member.person.id))
}

/// Returns a member of the workspace.
pub async fn member(app: &App, caller: &Caller, id: &PersonId) -> Result<Member> {
    caller.require(Action::ReadMember)?;
    let found = app.store.read().await?.member(caller.workspace(), id).await?;
    found.ok_or_else(|| Error::not_found(Subject::Member(id.clone())))
}

/// Lists the pending invitations of the workspace, the latest first.
pub async fn invitations(app: &App, caller: &Caller) -> Result<Vec<Invitation>> {
    caller.require(Action::ReadMember)?;
    let now = app.clock.now();
    let mut found = app.store.read().await?.invitations(caller.workspace()).await?;
    found.retain(|invitation| invitation.expires_at >= now);
    Ok(found)
}

/// Creates an invitation for a new member. Returns it and its token, which is shown once.
pub async fn invite(
    app: &App,
    caller: &Caller,
    role: MemberRole,
) -> Result<(Invitation, Plaintext)> {
    caller.require(Action::ManageMembers)?;
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let new = NewLink {
        workspace: caller.workspace(),
        kind: InvitationKind::Member,
        role,
        invited_by: caller.authority.value.person().map(|user| user.email.as_str()),
    };
    let (invitation, token) = add(&mut tx, &new, now).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add("member.invite", &[invited(&invitation)]);
    entries.write(&mut tx).await?;
    app.commit(tx).await?;
    Ok((invitation, token))
}

/// Returns an invitation as an audit target.
pub fn invited(invitation: &Invitation) -> Target<'_> {
    let role = json!({ "role": invitation.role.as_str() });
    Target::new("invitation", invitation.id.as_str()).with_meta(role)
}

/// Withdraws an invitation.
pub async fn withdraw(app: &App, caller: &Caller, id: &InvitationId) -> Result<()> {
    caller.require(Action::ManageMembers)?;
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    if !tx.delete_invitation(caller.workspace(), id).await? {
        return Err(Error::not_found(Subject::Invitation(id.clone())));
    }
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add("member.withdrawInvitation", &[Target::new("invitation", id.as_str())]);
    entries.write(&mut tx).await?;
    app.commit(tx).await
}

/// Changes the role of a member. Fails if the workspace would lose its last owner.
pub async fn set_role(app: &App, caller: &Caller, id: &PersonId, role: MemberRole) -> Result<()> {
    caller.require(Action::ManageMembers)?;
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let member = replaceable(&mut tx, caller, id, Some(role)).await?;
    tx.set_member_role(caller.workspace(), id, role).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let meta = json!({ "role": role.as_str(), "before": member.role.as_str() });
    let change = FieldChanges::updated(&state(member.role), &state(role))?;
    entries.add_change("member.setRole", &[target(&member.person).with_meta(meta)], change);
    entries.write(&mut tx).await?;
    app.commit(tx).await
}

/// Removes a member. A user without a workspace is deleted. Fails if the workspace would lose its last owner.
pub async fn remove(app: &App, caller: &Caller, id: &PersonId) -> Result<()> {
    caller.require(Action::ManageMembers)?;
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let member = replaceable(&mut tx, caller, id, None).await?;
    tx.delete_member(caller.workspace(), id).await?;
    tx.delete_orphaned_user(id).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let change = FieldChanges::deleted(&state(member.role))?;
    entries.add_change("member.remove", &[target(&member.person)], change);
    entries.write(&mut tx).await?;
    app.commit(tx).await
}

/// Returns the audit snapshot of a member.
fn state(role: MemberRole) -> Value {
    json!({ "role": role.as_str() })
}

/// Returns the member, locked, if the workspace would still have an owner after the member gets `role`, or is removed
/// (`None`).
async fn replaceable(
    tx: &mut Tx,
    caller: &Caller,
    id: &PersonId,
    role: Option<MemberRole>,
) -> Result<Member> {
    tx.lock_members(caller.workspace()).await?;
    let member = tx.member(caller.workspace(), id).await?;
    let member = member.ok_or_else(|| Error::not_found(Subject::Member(id.clone())))?;
    let steps_down = member.role == MemberRole::Owner && role != Some(MemberRole::Owner);
    if steps_down && !tx.has_other_owner(caller.workspace(), id).await? {
        return Err(Error::Refused(Refusal::LastOwner));
    }
    Ok(member)
}
