//! Members of a workspace and their roles.

use foundation::error::{Error, Refusal, ResourceRef, Result};
use foundation::id::{InvitationId, UserId};
use foundation::model::{Invitation, InvitationKind, Member, MemberRole};
use foundation::secret::Plaintext;
use serde_json::{Value, json};
use store::Tx;

use super::invitations::{NewInvitation, insert_invitation};
use super::sessions::delete_expired;
use super::{role_grants, user_target};
use crate::audit::{AuditBatch, AuditEvent, FieldChanges, Target};
use crate::caller::Caller;
use crate::context::Context;
use crate::form_results::{self, CreatedSecret};
use crate::page::{Page, Paging};
use crate::permission::Action;

/// The maximum number of pending invitations of a workspace, all of which are listed.
const INVITATIONS_MAX: i64 = 1_000;

/// Lists a page of the members of the workspace, sorted by e-mail in the direction of the page.
pub async fn list_members(
    context: &Context,
    caller: &Caller,
    paging: &Paging,
) -> Result<Page<Member>> {
    caller.require(Action::ReadMember)?;
    let found = context
        .store
        .read()
        .await?
        .list_members(caller.workspace_id(), &paging.to_page_query())
        .await?;
    Ok(Page::new(found, paging, |member| &member.user.id))
}

/// Returns a member of the workspace.
pub async fn get_member(context: &Context, caller: &Caller, id: &UserId) -> Result<Member> {
    caller.require(Action::ReadMember)?;
    let found = context.store.read().await?.find_member(caller.workspace_id(), id).await?;
    found.ok_or_else(|| Error::not_found(ResourceRef::Member(id.clone())))
}

/// Lists the pending invitations of the workspace, the latest first.
pub async fn list_invitations(context: &Context, caller: &Caller) -> Result<Vec<Invitation>> {
    caller.require(Action::ReadMember)?;
    let now = context.clock.now();
    let mut found = context.store.read().await?.list_invitations(caller.workspace_id()).await?;
    found.retain(|invitation| invitation.expires_at >= now);
    Ok(found)
}

/// Creates an invitation for a new member, unless the workspace has the maximum number. Returns it and its token, which is shown
/// once.
pub async fn invite(
    context: &Context,
    caller: &Caller,
    role: MemberRole,
) -> Result<(Invitation, Plaintext)> {
    let mut tx = begin_managing(context, caller).await?;
    let now = context.clock.now();
    delete_expired(&mut tx, now).await?;
    if tx.count_invitations(caller.workspace_id()).await? >= INVITATIONS_MAX {
        return Err(Error::PreconditionFailed(Refusal::TooManyInvitations(INVITATIONS_MAX)));
    }
    let new = NewInvitation {
        workspace: caller.workspace_id(),
        kind: InvitationKind::Member,
        role,
        invited_by: caller.principal.value.user().map(|user| user.email.as_str()),
    };
    let (invitation, token) = insert_invitation(&mut tx, &new, now).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add(AuditEvent::MemberInvited, &[invitation_target(&invitation)]);
    entries.write(&mut tx).await?;
    let secret = CreatedSecret::new(&token);
    form_results::record(&mut tx, caller, &invitation.id, Some(secret), now).await?;
    context.commit(tx).await?;
    Ok((invitation, token))
}

/// Begins a change of members or invitations: locks the members of the workspace, and requires that the caller may manage them
/// then. A user may have lost the role since the caller was loaded.
async fn begin_managing(context: &Context, caller: &Caller) -> Result<Tx> {
    caller.require(Action::ManageMembers)?;
    let mut tx = context.store.begin().await?;
    tx.lock_members(caller.workspace_id()).await?;
    if let Some(user) = caller.principal.value.user() {
        let membership = tx.find_membership(caller.workspace_id(), &user.id).await?;
        let grants = membership.map(|membership| role_grants(membership.role));
        if !grants.is_some_and(|grants| grants.is_allowed(Action::ManageMembers)) {
            return Err(Error::Forbidden(Action::ManageMembers.to_wildcard_tuple()));
        }
    }
    Ok(tx)
}

/// Returns an invitation as an audit target.
pub fn invitation_target(invitation: &Invitation) -> Target<'_> {
    let role = json!({ "role": invitation.role.as_str() });
    Target::new("invitation", invitation.id.as_str()).with_meta(role)
}

/// Withdraws an invitation.
pub async fn withdraw_invitation(
    context: &Context,
    caller: &Caller,
    id: &InvitationId,
) -> Result<()> {
    let mut tx = begin_managing(context, caller).await?;
    let now = context.clock.now();
    if !tx.delete_invitation(caller.workspace_id(), id).await? {
        return Err(Error::not_found(ResourceRef::Invitation(id.clone())));
    }
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add(AuditEvent::InvitationWithdrawn, &[Target::new("invitation", id.as_str())]);
    entries.write(&mut tx).await?;
    context.commit(tx).await
}

/// Changes the role of a member. Fails if the workspace would lose its last owner.
pub async fn set_member_role(
    context: &Context,
    caller: &Caller,
    id: &UserId,
    role: MemberRole,
) -> Result<()> {
    let mut tx = begin_managing(context, caller).await?;
    let now = context.clock.now();
    let member = get_replaceable(&mut tx, caller, id, Some(role)).await?;
    tx.set_member_role(caller.workspace_id(), id, role).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    add_role_change(&mut entries, &member, role)?;
    if role != MemberRole::Owner {
        withdraw_invitations_of(&mut tx, caller, &member, &mut entries).await?;
    }
    entries.write(&mut tx).await?;
    context.commit(tx).await
}

/// Adds the entry of a changed role. `member` is as it was before.
pub fn add_role_change(
    entries: &mut AuditBatch<'_>,
    member: &Member,
    role: MemberRole,
) -> Result<()> {
    let meta = json!({ "role": role.as_str(), "before": member.role.as_str() });
    let change = FieldChanges::updated(&member_snapshot(member.role), &member_snapshot(role))?;
    let target = user_target(&member.user).with_meta(meta);
    entries.add_change(AuditEvent::MemberRoleChanged, &[target], change);
    Ok(())
}

/// Withdraws the invitations that a member has created who may no longer do so: by such a link, the member could return.
async fn withdraw_invitations_of(
    tx: &mut Tx,
    caller: &Caller,
    member: &Member,
    entries: &mut AuditBatch<'_>,
) -> Result<()> {
    for id in tx.delete_invitations_of(caller.workspace_id(), &member.user.email).await? {
        entries.add(AuditEvent::InvitationWithdrawn, &[Target::new("invitation", id.as_str())]);
    }
    Ok(())
}

/// Removes a member, and withdraws the invitations that the member has created. A user without a workspace is deleted. Fails if
/// the workspace would lose its last owner.
pub async fn remove_member(context: &Context, caller: &Caller, id: &UserId) -> Result<()> {
    let mut tx = begin_managing(context, caller).await?;
    let now = context.clock.now();
    let member = get_replaceable(&mut tx, caller, id, None).await?;
    tx.delete_member(caller.workspace_id(), id).await?;
    tx.delete_orphaned_user(id).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let change = FieldChanges::deleted(&member_snapshot(member.role))?;
    entries.add_change(AuditEvent::MemberRemoved, &[user_target(&member.user)], change);
    withdraw_invitations_of(&mut tx, caller, &member, &mut entries).await?;
    entries.write(&mut tx).await?;
    context.commit(tx).await
}

/// Returns the audit snapshot of a member.
fn member_snapshot(role: MemberRole) -> Value {
    json!({ "role": role.as_str() })
}

/// Returns the member, and locks the user, if the workspace would still have an owner after the member gets `role`, or is
/// removed (`None`). The members must be locked.
async fn get_replaceable(
    tx: &mut Tx,
    caller: &Caller,
    id: &UserId,
    role: Option<MemberRole>,
) -> Result<Member> {
    tx.lock_user(id).await?;
    let member = tx.find_member(caller.workspace_id(), id).await?;
    let member = member.ok_or_else(|| Error::not_found(ResourceRef::Member(id.clone())))?;
    let steps_down = member.role == MemberRole::Owner && role != Some(MemberRole::Owner);
    if steps_down && !tx.has_other_owner(caller.workspace_id(), id).await? {
        return Err(Error::PreconditionFailed(Refusal::LastOwner));
    }
    Ok(member)
}
