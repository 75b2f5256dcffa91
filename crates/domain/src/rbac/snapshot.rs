//! The snapshots of permissions and roles in the audit log, with their holders at deletion.

use foundation::model::{Permission, Role};
use serde::{Deserialize, Serialize};

/// The fields of a permission, as the audit log stores them.
#[derive(Debug, Serialize, Deserialize)]
pub struct PermissionSnapshot {
    pub slug: String,
    pub name: String,
    pub description: Option<String>,
    /// The ids of the keys that had it directly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// The ids of the roles that had it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

/// The fields of a role, as the audit log stores them.
#[derive(Debug, Serialize, Deserialize)]
pub struct RoleSnapshot {
    pub name: String,
    pub description: Option<String>,
    /// The slugs of its permissions.
    pub permissions: Vec<String>,
    /// The ids of the keys that had it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

impl PermissionSnapshot {
    pub fn from_permission(permission: &Permission) -> Self {
        let Permission { slug, name, description, .. } = permission.clone();
        Self { slug, name, description, keys: Vec::new(), roles: Vec::new() }
    }
}

impl RoleSnapshot {
    pub fn from_role(role: &Role) -> Self {
        let permissions = role.permissions.iter().map(|permission| permission.slug.clone());
        Self {
            description: role.description.clone(),
            permissions: permissions.collect(),
            ..Self::from_name(&role.name)
        }
    }

    /// Returns the snapshot of a role that has only a name.
    pub fn from_name(name: &str) -> Self {
        let (permissions, keys) = (Vec::new(), Vec::new());
        Self { name: name.to_owned(), description: None, permissions, keys }
    }
}
