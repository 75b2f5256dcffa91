//! What the audit log tells, in words.

use foundation::clock::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::format::{json, utc};
use crate::domain::undo::UndoAction;

/// Every event, and what it was.
pub const EVENTS: [(&str, &str); 55] = [
    ("api.create", "API made"),
    ("api.update", "API changed"),
    ("api.delete", "API deleted"),
    ("api.restore", "API brought back"),
    ("key.create", "Key made"),
    ("key.update", "Key changed"),
    ("key.delete", "Key deleted"),
    ("key.restore", "Key brought back"),
    ("key.reroll", "Key re-rolled"),
    ("key.migrate", "Key taken in"),
    ("key.decrypt", "Key shown again"),
    ("authorization.connect_permission_and_key", "Permission given to a key"),
    ("authorization.disconnect_permission_and_key", "Permission taken from a key"),
    ("authorization.connect_role_and_key", "Role given to a key"),
    ("authorization.disconnect_role_and_key", "Role taken from a key"),
    ("authorization.connect_role_and_permission", "Permission given to a role"),
    ("authorization.disconnect_role_and_permissions", "Permission taken from a role"),
    ("permission.create", "Permission made"),
    ("permission.delete", "Permission deleted"),
    ("permission.restore", "Permission brought back"),
    ("role.create", "Role made"),
    ("role.update", "Role changed"),
    ("role.delete", "Role deleted"),
    ("role.restore", "Role brought back"),
    ("identity.create", "Identity made"),
    ("identity.update", "Identity changed"),
    ("identity.delete", "Identity deleted"),
    ("identity.restore", "Identity brought back"),
    ("ratelimit.create", "Limit given to an identity"),
    ("ratelimit.update", "Limit of an identity changed"),
    ("ratelimit.delete", "Limit taken from an identity"),
    ("ratelimitNamespace.create", "Namespace made"),
    ("ratelimitNamespace.update", "Namespace changed"),
    ("ratelimitNamespace.delete", "Namespace deleted"),
    ("ratelimitNamespace.restore", "Namespace brought back"),
    ("ratelimit.set_override", "Override set"),
    ("ratelimit.delete_override", "Override deleted"),
    ("rootKey.create", "Root key made"),
    ("rootKey.reroll", "Root key rotated"),
    ("rootKey.revoke", "Root key revoked"),
    ("rootKey.restore", "Root key good again"),
    ("migration.create", "Import begun"),
    ("member.invite", "Member invited"),
    ("member.withdrawInvitation", "Invitation withdrawn"),
    ("member.join", "Member joined"),
    ("member.setRole", "Role of a member changed"),
    ("member.remove", "Member removed"),
    ("user.login", "Signed in"),
    ("user.changePassword", "Password changed"),
    ("user.linkLogin", "Single sign-on linked"),
    ("user.unlinkLogin", "Single sign-on unlinked"),
    ("user.endSession", "Session ended"),
    ("user.endOtherSessions", "Other sessions ended"),
    ("workspace.create", "Workspace made"),
    ("vault.rotate", "Vault sealed anew"),
];

/// What an event was; one that is not known by its name.
pub fn event(name: &str) -> &str {
    EVENTS.iter().find(|(known, _)| *known == name).map_or(name, |(_, words)| words)
}

/// What undoing would come to.
pub fn undo_description(way: &UndoAction) -> &'static str {
    match way {
        UndoAction::SetKey(_)
        | UndoAction::SetIdentity(_)
        | UndoAction::SetApi(_)
        | UndoAction::SetNamespace(_) => {
            "The fields above are set to what they were before. Other fields stay as they are."
        }
        UndoAction::AddCredits(_, credits) if *credits < 0 => {
            "The credits that were added are taken away again, as far as there are any. What was used stays used."
        }
        UndoAction::AddCredits(..) => {
            "The credits that were taken away are added again. What was used stays used."
        }
        UndoAction::DeleteKey(_) => "The key is deleted: whoever uses it is refused.",
        UndoAction::RestoreKey(_) => {
            "The key is good again, as it was, with the credits that it had left."
        }
        UndoAction::GivePermission(..) => "The key gets the permission again.",
        UndoAction::TakePermission(..) => "The permission is taken from the key.",
        UndoAction::GiveRole(..) => "The key gets the role again.",
        UndoAction::TakeRole(..) => "The role is taken from the key.",
        UndoAction::DeletePermission(_) => {
            "The permission is deleted, and taken from every key and every role."
        }
        UndoAction::RestorePermission(_) => {
            "The permission is there again, and so have it the keys and roles that had it and are there still."
        }
        UndoAction::SetRole(_) => "The role is called and described as before.",
        UndoAction::DeleteRole(_) => "The role is deleted, and taken from every key.",
        UndoAction::RestoreRole(_) => {
            "The role is there again, with its permissions, and so have it the keys that had it and are there still."
        }
        UndoAction::GiveToRole(..) => "The role gets the permission again, and so do its keys.",
        UndoAction::TakeFromRole(..) => {
            "The permission is taken from the role, and so from its keys."
        }
        UndoAction::DeleteIdentity(_) => "The identity is deleted with its limits. Its keys go on.",
        UndoAction::RestoreIdentity(_) => {
            "The identity is there again with its meta and its limits, and so are those of its keys that are nobody’s now."
        }
        UndoAction::DeleteApi(_) => "The API is deleted: none of its keys works any more.",
        UndoAction::RestoreApi(_) => {
            "The API is there again, and every key of it that was not deleted by itself works again."
        }
        UndoAction::DeleteNamespace(_) => "The namespace is deleted: checks in it are refused.",
        UndoAction::RestoreNamespace(_) => "The namespace is there again, with its overrides.",
        UndoAction::SetOverride(_) => "The override is set as it was before.",
        UndoAction::DeleteOverride(..) => {
            "The override is deleted: checks count with the limit that they ask for."
        }
        UndoAction::SetMemberRole(_) => "The member gets the role that they had before.",
        UndoAction::RemoveMember(_) => "The member is removed, and out at once.",
        UndoAction::WithdrawInvitation(_) => "The link is taken back, if nobody has used it.",
        UndoAction::RevokeRootKey(_) => "The root key is revoked: nothing accepts it any more.",
        UndoAction::RestoreRootKey(_) => {
            "The root key is accepted again. Do not, if it was revoked because somebody else may know it."
        }
    }
}

/// A value of a field as a person reads it.
pub fn value(name: &str, raw: Option<&RawValue>) -> String {
    let Some(raw) = raw else { return String::new() };
    match serde_json::from_str::<Value>(raw.get()) {
        Ok(Value::Null) => "none".to_owned(),
        Ok(Value::String(text)) => text,
        Ok(Value::Number(at)) if name == "expires" => {
            at.as_i64().map_or_else(|| at.to_string(), |at| utc(Timestamp(at)))
        }
        _ => json(raw.get()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_a_person_reads_them() {
        let shown = |name, text: &str| {
            let raw = RawValue::from_string(text.to_owned()).expect("JSON");
            value(name, Some(&raw))
        };

        assert_eq!(shown("name", r#""a \"b\"""#), r#"a "b""#);
        assert_eq!(shown("name", "null"), "none");
        assert_eq!(shown("expires", "1773144000000"), "2026-03-10 12:00:00 UTC");
        assert_eq!(shown("meta", r#"{"n":1.50}"#), "{\n  \"n\": 1.50\n}");
        assert_eq!(value("meta", None), "");
    }

    #[test]
    fn every_event_is_told_once() {
        let mut names: Vec<_> = EVENTS.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EVENTS.len());
        assert_eq!(event("key.create"), "Key made");
        assert_eq!(event("what.ever"), "what.ever");
    }
}
