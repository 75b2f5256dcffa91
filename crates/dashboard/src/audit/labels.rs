//! The labels of audit events, undo actions and field values.

use domain::audit::{AuditEvent, OPERATOR, StoredEntry, UNNAMED_ROOT_KEY};
use domain::undo::UndoAction;
use foundation::clock::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::format::{format_json, format_utc};

/// Returns the label of an event; its text if another version recorded it and this one does not know it.
pub fn event_label(text: &str) -> &str {
    match AuditEvent::parse(text) {
        Some(event) => event.label(),
        None => text,
    }
}

/// What pages call a root key without a name.
const UNNAMED_ROOT_KEY_LABEL: &str = "Unnamed root key";
/// What pages call an operator, and the commands that record no caller.
const OPERATOR_LABEL: &str = "Command line";

/// Returns what pages call the actor of an entry: a user by e-mail, anything else by its kind and name.
pub fn actor_label(entry: &StoredEntry) -> String {
    let name = entry.actor_name.as_deref().unwrap_or(&entry.actor_id);
    match (entry.actor_type.as_str(), name) {
        ("rootkey", UNNAMED_ROOT_KEY) => UNNAMED_ROOT_KEY_LABEL.to_owned(),
        ("rootkey", name) => format!("Root key \"{name}\""),
        ("gatewayPolicy", id) => format!("Gateway policy {id}"),
        ("system", OPERATOR) => OPERATOR_LABEL.to_owned(),
        _ => name.to_owned(),
    }
}

/// Returns the name or ID by which entries of an actor are found, from what pages call it. Any other text stays itself.
pub fn actor_from_label(label: &str) -> &str {
    match label {
        UNNAMED_ROOT_KEY_LABEL => UNNAMED_ROOT_KEY,
        OPERATOR_LABEL => OPERATOR,
        _ => {
            let quoted = label.strip_prefix("Root key \"");
            let root_key = quoted.and_then(|rest| rest.strip_suffix('"'));
            let name = root_key.or_else(|| label.strip_prefix("Gateway policy "));
            name.filter(|name| !name.is_empty()).unwrap_or(label)
        }
    }
}

/// Describes the effect of an undo action.
pub fn undo_description(action: &UndoAction) -> &'static str {
    match action {
        UndoAction::RevertKey(_)
        | UndoAction::RevertIdentity(_)
        | UndoAction::RevertApi(_)
        | UndoAction::RevertNamespace(_)
        | UndoAction::RevertGatewayPolicy(_)
        | UndoAction::RevertMemberRole(_)
        | UndoAction::RevertWorkspaceName(_) => {
            "The fields above are restored to their previous values. Other fields stay unchanged."
        }
        UndoAction::AddCredits(_, credits) if *credits < 0 => {
            "The added credits are removed, up to the remaining ones. Spent credits stay spent."
        }
        UndoAction::AddCredits(..) => {
            "The removed credits are added again. Spent credits stay spent."
        }
        UndoAction::DeleteKey(_) => "The key is deleted and no longer accepted.",
        UndoAction::RestoreKey(_) => "The key is restored with its remaining credits.",
        UndoAction::RemoveImportedKeys(..) => "Unused keys are removed permanently; others stay.",
        UndoAction::AddPermission(..) => "The permission is assigned to the key again.",
        UndoAction::RemovePermission(..) => "The permission is removed from the key.",
        UndoAction::AddRole(..) => "The role is assigned to the key again.",
        UndoAction::RemoveRole(..) => "The role is removed from the key.",
        UndoAction::DeletePermission(_) => "The permission is removed from all keys and roles.",
        UndoAction::RestorePermission(_) => {
            "The permission is restored and assigned again to the keys and roles that had it and still exist."
        }
        UndoAction::RevertRole(_) => "The previous name and description of the role are restored.",
        UndoAction::DeleteRole(_) => "The role is deleted and removed from all keys.",
        UndoAction::RestoreRole(_) => {
            "The role is restored with its permissions and assigned again to the keys that had it and still exist."
        }
        UndoAction::AddPermissionToRole(..) => {
            "The permission is assigned to the role again. The keys of the role have it again."
        }
        UndoAction::RemovePermissionFromRole(..) => {
            "The permission is removed from the role. The keys of the role lose it."
        }
        UndoAction::DeleteIdentity(_) => {
            "The identity is deleted with its limits. Its keys remain valid."
        }
        UndoAction::RestoreIdentity(_) => {
            "The identity is restored with its metadata and limits, and linked again to its keys that have no identity now."
        }
        UndoAction::DeleteApi(_) => "The API is deleted. Its keys no longer work.",
        UndoAction::RestoreApi(_) => {
            "The API is restored. Its keys work again, except those that were deleted individually."
        }
        UndoAction::DeleteGatewayPolicy(_) => {
            "The gateway policy is deleted. Its gateways lose access."
        }
        UndoAction::RestoreGatewayPolicy(_) => {
            "The gateway policy is restored with its secret. Its gateways have access again."
        }
        UndoAction::DeleteNamespace(_) => "The namespace is deleted. Checks in it are rejected.",
        UndoAction::RestoreNamespace(_) => "The namespace is restored with its overrides.",
        UndoAction::RevertOverride(_) => "The previous values of the override are restored.",
        UndoAction::DeleteOverride(..) => {
            "The override is deleted. Checks use the limit in the request."
        }
        UndoAction::RemoveMember(_) => "The member is removed and loses access immediately.",
        UndoAction::WithdrawInvitation(_) => {
            "The invitation is withdrawn, if it has not been used."
        }
        UndoAction::RevokeRootKey(_) => "The root key is revoked and no longer accepted.",
        UndoAction::RestoreRootKey(_) => {
            "The root key is accepted again. Do not undo this if the root key may be compromised."
        }
    }
}

/// Formats a field value for display.
pub fn format_value(name: &str, raw: Option<&RawValue>) -> String {
    let Some(raw) = raw else { return String::new() };
    match serde_json::from_str::<Value>(raw.get()) {
        Ok(Value::Null) => "none".to_owned(),
        Ok(Value::String(text)) => text,
        Ok(Value::Number(at)) if name == "expires" => {
            at.as_i64().map_or_else(|| at.to_string(), |at| format_utc(Timestamp(at)))
        }
        _ => format_json(raw.get()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_value_formats_strings_times_and_json() {
        let shown = |name, text: &str| {
            let raw = RawValue::from_string(text.to_owned()).expect("JSON");
            format_value(name, Some(&raw))
        };

        assert_eq!(shown("name", r#""a \"b\"""#), r#"a "b""#);
        assert_eq!(shown("name", "null"), "none");
        assert_eq!(shown("expires", "1773144000000"), "2026-03-10 12:00:00 UTC");
        assert_eq!(shown("meta", r#"{"n":1.50}"#), "{\n  \"n\": 1.50\n}");
        assert_eq!(format_value("meta", None), "");
    }

    #[test]
    fn actor_label_names_kind_unless_actor_is_user() {
        let label = |actor_type: &str, actor_name: &str| {
            actor_label(&StoredEntry {
                id: "log_1".into(),
                at: Timestamp(0),
                event: "key.create".into(),
                actor_type: actor_type.into(),
                actor_id: "key_1".into(),
                actor_name: Some(actor_name.into()),
                remote_address: None,
                user_agent: None,
                targets: "[]".into(),
                correlation_id: None,
                before: None,
                after: None,
                undoes: None,
                undone_by: None,
            })
        };

        let first = label("rootkey", "created at the first start");
        assert_eq!(first, "Root key \"created at the first start\"");
        assert_eq!(label("rootkey", "root key"), "Unnamed root key");
        assert_eq!(label("user", "ada@example.com"), "ada@example.com");
        assert_eq!(label("gatewayPolicy", "gwp_1"), "Gateway policy gwp_1");
        assert_eq!(label("system", "cli"), "Command line");
    }

    #[test]
    fn actor_from_label_returns_what_entries_contain() {
        for (label, name) in [
            ("Root key \"created at the first start\"", "created at the first start"),
            ("Unnamed root key", "root key"),
            ("Gateway policy gwp_1", "gwp_1"),
            ("Command line", "cli"),
            ("ada@example.com", "ada@example.com"),
            ("Root key \"x", "Root key \"x"),
            ("Root key \"\"", "Root key \"\""),
        ] {
            assert_eq!(actor_from_label(label), name);
        }
    }

    #[test]
    fn event_label_is_text_when_event_is_unknown() {
        assert_eq!(event_label("key.create"), "Key created");
        assert_eq!(event_label("what.ever"), "what.ever");
    }
}
