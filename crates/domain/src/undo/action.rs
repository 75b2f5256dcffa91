//! The undo action of an audit entry.

use foundation::id::{
    ApiId, IdentityId, InvitationId, KeyId, NamespaceId, PermissionId, RoleId, UserId,
};
use serde_json::Value;
use store::StoredEntry;

/// The operation that reverses an audit entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoAction {
    RevertKey(KeyId),
    /// Adds credits, or removes them if the number is negative. Credits that were used since stay used.
    AddCredits(KeyId, i64),
    DeleteKey(KeyId),
    RestoreKey(KeyId),
    AddPermission(KeyId, PermissionId),
    RemovePermission(KeyId, PermissionId),
    AddRole(KeyId, RoleId),
    RemoveRole(KeyId, RoleId),
    DeletePermission(PermissionId),
    RestorePermission(PermissionId),
    /// Restores the name and the description.
    RevertRole(RoleId),
    DeleteRole(RoleId),
    RestoreRole(RoleId),
    /// The role and the slug of the permission.
    AddPermissionToRole(RoleId, String),
    RemovePermissionFromRole(RoleId, String),
    RevertIdentity(IdentityId),
    DeleteIdentity(IdentityId),
    RestoreIdentity(IdentityId),
    RevertApi(ApiId),
    DeleteApi(ApiId),
    RestoreApi(ApiId),
    RevertNamespace(NamespaceId),
    DeleteNamespace(NamespaceId),
    RestoreNamespace(NamespaceId),
    RevertOverride(NamespaceId),
    /// The namespace and the identifier.
    DeleteOverride(NamespaceId, String),
    RevertMemberRole(UserId),
    RemoveMember(UserId),
    WithdrawInvitation(InvitationId),
    RevokeRootKey(KeyId),
    RestoreRootKey(KeyId),
}

/// The reason why an entry cannot be undone.
pub type UndoRefusal = &'static str;

const NO_PREVIOUS_STATE: UndoRefusal = "the entry does not contain the previous state";

/// The targets of an entry.
struct Targets(Vec<Value>);

impl Targets {
    fn id(&self, index: usize) -> Result<&str, UndoRefusal> {
        self.0.get(index).and_then(|target| target["id"].as_str()).ok_or(NO_PREVIOUS_STATE)
    }

    fn name(&self, index: usize) -> Result<&str, UndoRefusal> {
        self.0.get(index).and_then(|target| target["name"].as_str()).ok_or(NO_PREVIOUS_STATE)
    }
}

/// Returns the action that undoes an entry, or the reason why it cannot be undone.
pub fn plan_undo(entry: &StoredEntry) -> Result<UndoAction, UndoRefusal> {
    use UndoAction as Undo;
    let targets = Targets(serde_json::from_str(&entry.targets).unwrap_or_default());
    let id = targets.id(0)?;
    let if_has_before = |action: Undo| {
        if entry.before.is_some() { Ok(action) } else { Err(NO_PREVIOUS_STATE) }
    };
    Ok(match entry.event.as_str() {
        "key.create" | "key.restore" | "key.migrate" => Undo::DeleteKey(id.into()),
        "key.update" => match find_added_credits(&targets, entry) {
            Some(added) => {
                Undo::AddCredits(id.into(), added.checked_neg().ok_or(NO_PREVIOUS_STATE)?)
            }
            None => if_has_before(Undo::RevertKey(id.into()))?,
        },
        "key.delete" if targets.0[0]["meta"]["permanent"] == true => {
            return Err("the key was deleted permanently");
        }
        "key.delete" => Undo::RestoreKey(id.into()),
        "authorization.connect_permission_and_key" => {
            Undo::RemovePermission(id.into(), targets.id(1)?.into())
        }
        "authorization.disconnect_permission_and_key" => {
            Undo::AddPermission(id.into(), targets.id(1)?.into())
        }
        "authorization.connect_role_and_key" => Undo::RemoveRole(id.into(), targets.id(1)?.into()),
        "authorization.disconnect_role_and_key" => Undo::AddRole(id.into(), targets.id(1)?.into()),
        "permission.create" | "permission.restore" => Undo::DeletePermission(id.into()),
        "permission.delete" => if_has_before(Undo::RestorePermission(id.into()))?,
        "role.create" | "role.restore" => Undo::DeleteRole(id.into()),
        "role.update" => if_has_before(Undo::RevertRole(id.into()))?,
        "role.delete" => if_has_before(Undo::RestoreRole(id.into()))?,
        "authorization.connect_role_and_permission" => {
            Undo::RemovePermissionFromRole(id.into(), targets.name(1)?.to_owned())
        }
        "authorization.disconnect_role_and_permissions" => {
            Undo::AddPermissionToRole(id.into(), targets.name(1)?.to_owned())
        }
        "identity.create" | "identity.restore" => Undo::DeleteIdentity(id.into()),
        "identity.update" => if_has_before(Undo::RevertIdentity(id.into()))?,
        "identity.delete" => if_has_before(Undo::RestoreIdentity(id.into()))?,
        "ratelimit.create" | "ratelimit.update" | "ratelimit.delete" => {
            return Err("it is part of a change to an identity; undo that change");
        }
        "api.create" | "api.restore" => Undo::DeleteApi(id.into()),
        "api.update" => if_has_before(Undo::RevertApi(id.into()))?,
        "api.delete" => Undo::RestoreApi(id.into()),
        "ratelimitNamespace.create" | "ratelimitNamespace.restore" => {
            Undo::DeleteNamespace(id.into())
        }
        "ratelimitNamespace.update" => if_has_before(Undo::RevertNamespace(id.into()))?,
        "ratelimitNamespace.delete" => Undo::RestoreNamespace(id.into()),
        "ratelimit.set_override" if entry.after.is_none() => return Err(NO_PREVIOUS_STATE),
        "ratelimit.set_override" if entry.before.is_none() => {
            Undo::DeleteOverride(id.into(), targets.name(1)?.to_owned())
        }
        "ratelimit.set_override" | "ratelimit.delete_override" => {
            if_has_before(Undo::RevertOverride(id.into()))?
        }
        "member.setRole" => if_has_before(Undo::RevertMemberRole(id.into()))?,
        "member.join" => Undo::RemoveMember(id.into()),
        "member.remove" => return Err("a removed member must be invited again"),
        "member.invite" => Undo::WithdrawInvitation(id.into()),
        "member.withdrawInvitation" => return Err("a withdrawn invitation cannot be restored"),
        "rootKey.create" | "rootKey.restore" => Undo::RevokeRootKey(id.into()),
        "rootKey.revoke" => Undo::RestoreRootKey(id.into()),
        "key.reroll" | "rootKey.reroll" => {
            return Err("the new key may be in use; delete or revoke one of the two instead");
        }
        _ => return Err("the entry has nothing to restore"),
    })
}

/// Returns the number of credits that an entry added, negative if it removed credits. `None`: the entry set the credits
/// or did not change them. An undo by a difference does not restore the other fields.
fn find_added_credits(targets: &Targets, entry: &StoredEntry) -> Option<i64> {
    let meta = targets.0.first()?.pointer("/meta/credits")?;
    let is_relative = !meta["increment"].is_null() || !meta["decrement"].is_null();
    let credits = |snapshot: &Option<String>| {
        serde_json::from_str::<Value>(snapshot.as_deref()?).ok()?["credits"].as_i64()
    };
    if is_relative { credits(&entry.after)?.checked_sub(credits(&entry.before)?) } else { None }
}

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;

    use super::*;

    fn entry(event: &str, targets: &str, before: Option<&str>, after: Option<&str>) -> StoredEntry {
        StoredEntry {
            id: "log_1".into(),
            at: Timestamp(0),
            event: event.into(),
            actor_type: "user".into(),
            actor_id: "user_1".into(),
            actor_name: None,
            remote_address: None,
            user_agent: None,
            targets: targets.into(),
            correlation_id: None,
            before: before.map(Into::into),
            after: after.map(Into::into),
            undoes: None,
            undone_by: None,
        }
    }

    #[test]
    fn plan_undo_adds_difference_when_credits_were_relative_and_restores_key_when_set() {
        let targets =
            |credits: &str| format!(r#"[{{"id":"key_1","meta":{{"credits":{credits}}}}}]"#);
        let (before, after) = (Some(r#"{"credits":5}"#), Some(r#"{"credits":15}"#));

        let added = plan_undo(&entry("key.update", &targets(r#"{"increment":10}"#), before, after));
        let removed =
            plan_undo(&entry("key.update", &targets(r#"{"decrement":99}"#), after, before));
        let set = plan_undo(&entry("key.update", &targets(r#"{"set":15}"#), before, after));

        assert_eq!(added, Ok(UndoAction::AddCredits("key_1".into(), -10)));
        // The decrement removed only the 10 credits that existed.
        assert_eq!(removed, Ok(UndoAction::AddCredits("key_1".into(), 10)));
        assert_eq!(set, Ok(UndoAction::RevertKey("key_1".into())));
    }

    #[test]
    fn plan_undo_restores_previous_override_when_one_was_replaced() {
        let targets = r#"[{"id":"rlns_1"},{"id":"rlor_1","name":"a*"}]"#;
        let (one, other) = (Some(r#"{"limit":1}"#), Some(r#"{"limit":2}"#));
        let event = "ratelimit.set_override";

        let created = plan_undo(&entry(event, targets, None, one));
        let replaced = plan_undo(&entry(event, targets, other, one));

        assert_eq!(created, Ok(UndoAction::DeleteOverride("rlns_1".into(), "a*".into())));
        assert_eq!(replaced, Ok(UndoAction::RevertOverride("rlns_1".into())));
        assert_eq!(plan_undo(&entry(event, targets, None, None)), Err(NO_PREVIOUS_STATE));
    }

    #[test]
    fn plan_undo_is_refused_when_state_is_lost() {
        let target = r#"[{"id":"key_1","meta":{"permanent":true}}]"#;
        let refusal = plan_undo(&entry("key.delete", target, Some("{}"), None));
        assert_eq!(refusal, Err("the key was deleted permanently"));
        for (event, targets) in [
            ("key.update", r#"[{"id":"key_1"}]"#),
            ("role.delete", r#"[{"id":"role_1"}]"#),
            ("key.delete", "[]"),
            ("key.delete", "no list"),
            ("key.decrypt", r#"[{"id":"key_1"}]"#),
        ] {
            assert!(plan_undo(&entry(event, targets, None, None)).is_err(), "{event} {targets}");
        }
    }
}
