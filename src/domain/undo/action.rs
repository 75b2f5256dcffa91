//! What undoing an entry of the audit log comes to.

use foundation::id::{
    ApiId, IdentityId, InvitationId, KeyId, NamespaceId, PermissionId, PersonId, RoleId,
};
use serde_json::Value;
use store::StoredEntry;

/// The act that brings things back to what they were before an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoAction {
    SetKey(KeyId),
    /// So many credits more, or less where it is negative: what was used meanwhile stays used.
    AddCredits(KeyId, i64),
    DeleteKey(KeyId),
    RestoreKey(KeyId),
    GivePermission(KeyId, PermissionId),
    TakePermission(KeyId, PermissionId),
    GiveRole(KeyId, RoleId),
    TakeRole(KeyId, RoleId),
    DeletePermission(PermissionId),
    RestorePermission(PermissionId),
    /// Its name and its description.
    SetRole(RoleId),
    DeleteRole(RoleId),
    RestoreRole(RoleId),
    /// The role, and the slug of the permission.
    GiveToRole(RoleId, String),
    TakeFromRole(RoleId, String),
    SetIdentity(IdentityId),
    DeleteIdentity(IdentityId),
    RestoreIdentity(IdentityId),
    SetApi(ApiId),
    DeleteApi(ApiId),
    RestoreApi(ApiId),
    SetNamespace(NamespaceId),
    DeleteNamespace(NamespaceId),
    RestoreNamespace(NamespaceId),
    SetOverride(NamespaceId),
    /// The namespace, and the identifier.
    DeleteOverride(NamespaceId, String),
    SetMemberRole(PersonId),
    RemoveMember(PersonId),
    WithdrawInvitation(InvitationId),
    RevokeRootKey(KeyId),
    RestoreRootKey(KeyId),
}

/// Why an entry cannot be undone.
pub type UndoRefusal = &'static str;

const UNTOLD: UndoRefusal = "the entry does not tell what was there before";

/// The targets of an entry, as it names them.
struct Targets(Vec<Value>);

impl Targets {
    fn id(&self, place: usize) -> Result<&str, UndoRefusal> {
        self.0.get(place).and_then(|target| target["id"].as_str()).ok_or(UNTOLD)
    }

    fn name(&self, place: usize) -> Result<&str, UndoRefusal> {
        self.0.get(place).and_then(|target| target["name"].as_str()).ok_or(UNTOLD)
    }
}

/// How an entry can be undone.
pub fn plan_undo(entry: &StoredEntry) -> Result<UndoAction, UndoRefusal> {
    let targets = Targets(serde_json::from_str(&entry.targets).unwrap_or_default());
    let id = targets.id(0)?;
    let knows = |action: UndoAction| if entry.before.is_some() { Ok(action) } else { Err(UNTOLD) };
    Ok(match entry.event.as_str() {
        "key.create" | "key.restore" | "key.migrate" => UndoAction::DeleteKey(id.into()),
        "key.update" => match added(&targets, entry) {
            Some(added) => UndoAction::AddCredits(id.into(), added.checked_neg().ok_or(UNTOLD)?),
            None => knows(UndoAction::SetKey(id.into()))?,
        },
        "key.delete" if targets.0[0]["meta"]["permanent"] == true => {
            return Err("the key was deleted for good");
        }
        "key.delete" => UndoAction::RestoreKey(id.into()),
        "authorization.connect_permission_and_key" => {
            UndoAction::TakePermission(id.into(), targets.id(1)?.into())
        }
        "authorization.disconnect_permission_and_key" => {
            UndoAction::GivePermission(id.into(), targets.id(1)?.into())
        }
        "authorization.connect_role_and_key" => {
            UndoAction::TakeRole(id.into(), targets.id(1)?.into())
        }
        "authorization.disconnect_role_and_key" => {
            UndoAction::GiveRole(id.into(), targets.id(1)?.into())
        }
        "permission.create" | "permission.restore" => UndoAction::DeletePermission(id.into()),
        "permission.delete" => knows(UndoAction::RestorePermission(id.into()))?,
        "role.create" | "role.restore" => UndoAction::DeleteRole(id.into()),
        "role.update" => knows(UndoAction::SetRole(id.into()))?,
        "role.delete" => knows(UndoAction::RestoreRole(id.into()))?,
        "authorization.connect_role_and_permission" => {
            UndoAction::TakeFromRole(id.into(), targets.name(1)?.to_owned())
        }
        "authorization.disconnect_role_and_permissions" => {
            UndoAction::GiveToRole(id.into(), targets.name(1)?.to_owned())
        }
        "identity.create" | "identity.restore" => UndoAction::DeleteIdentity(id.into()),
        "identity.update" => knows(UndoAction::SetIdentity(id.into()))?,
        "identity.delete" => knows(UndoAction::RestoreIdentity(id.into()))?,
        "ratelimit.create" | "ratelimit.update" | "ratelimit.delete" => {
            return Err("it is part of a change of an identity: undo that");
        }
        "api.create" | "api.restore" => UndoAction::DeleteApi(id.into()),
        "api.update" => knows(UndoAction::SetApi(id.into()))?,
        "api.delete" => UndoAction::RestoreApi(id.into()),
        "ratelimitNamespace.create" | "ratelimitNamespace.restore" => {
            UndoAction::DeleteNamespace(id.into())
        }
        "ratelimitNamespace.update" => knows(UndoAction::SetNamespace(id.into()))?,
        "ratelimitNamespace.delete" => UndoAction::RestoreNamespace(id.into()),
        "ratelimit.set_override" if entry.after.is_none() => return Err(UNTOLD),
        "ratelimit.set_override" if entry.before.is_none() => {
            UndoAction::DeleteOverride(id.into(), targets.name(1)?.to_owned())
        }
        "ratelimit.set_override" | "ratelimit.delete_override" => {
            knows(UndoAction::SetOverride(id.into()))?
        }
        "member.setRole" => knows(UndoAction::SetMemberRole(id.into()))?,
        "member.join" => UndoAction::RemoveMember(id.into()),
        "member.remove" => return Err("who was removed must be invited again"),
        "member.invite" => UndoAction::WithdrawInvitation(id.into()),
        "member.withdrawInvitation" => return Err("a link that was taken back is gone"),
        "rootKey.create" | "rootKey.restore" => UndoAction::RevokeRootKey(id.into()),
        "rootKey.revoke" => UndoAction::RestoreRootKey(id.into()),
        "key.reroll" | "rootKey.reroll" => {
            return Err("the new key is in use by now: delete or revoke one of the two instead");
        }
        _ => return Err("there is nothing in it that could be brought back"),
    })
}

/// How many credits an entry added, where it added some or took some: with them the rest is not set back.
fn added(targets: &Targets, entry: &StoredEntry) -> Option<i64> {
    let told = targets.0.first()?.pointer("/meta/credits")?;
    let is_relative = !told["increment"].is_null() || !told["decrement"].is_null();
    let credits = |kept: &Option<String>| {
        serde_json::from_str::<Value>(kept.as_deref()?).ok()?["credits"].as_i64()
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
    fn credits_that_were_added_are_taken_and_those_that_were_set_are_set_back() {
        let of = |credits: &str| format!(r#"[{{"id":"key_1","meta":{{"credits":{credits}}}}}]"#);
        let (before, after) = (Some(r#"{"credits":5}"#), Some(r#"{"credits":15}"#));

        let added = plan_undo(&entry("key.update", &of(r#"{"increment":10}"#), before, after));
        let taken = plan_undo(&entry("key.update", &of(r#"{"decrement":99}"#), after, before));
        let set = plan_undo(&entry("key.update", &of(r#"{"set":15}"#), before, after));

        assert_eq!(added, Ok(UndoAction::AddCredits("key_1".into(), -10)));
        // As far as there were any.
        assert_eq!(taken, Ok(UndoAction::AddCredits("key_1".into(), 10)));
        assert_eq!(set, Ok(UndoAction::SetKey("key_1".into())));
    }

    #[test]
    fn an_override_that_took_the_place_of_another_one_gives_it_back() {
        let targets = r#"[{"id":"rlns_1"},{"id":"rlor_1","name":"a*"}]"#;
        let (one, other) = (Some(r#"{"limit":1}"#), Some(r#"{"limit":2}"#));
        let event = "ratelimit.set_override";

        let new = plan_undo(&entry(event, targets, None, one));
        let put = plan_undo(&entry(event, targets, other, one));

        assert_eq!(new, Ok(UndoAction::DeleteOverride("rlns_1".into(), "a*".into())));
        assert_eq!(put, Ok(UndoAction::SetOverride("rlns_1".into())));
        assert_eq!(plan_undo(&entry(event, targets, None, None)), Err(UNTOLD));
    }

    #[test]
    fn what_is_gone_for_good_is_not_brought_back_and_says_why() {
        let target = r#"[{"id":"key_1","meta":{"permanent":true}}]"#;
        let why = plan_undo(&entry("key.delete", target, Some("{}"), None));
        assert_eq!(why, Err("the key was deleted for good"));
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
