//! Permissions and roles as the audit log keeps them, with who had them when they were deleted.

use foundation::model::{Permission, Role};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub struct PermissionState {
    pub slug: String,
    pub name: String,
    pub description: Option<String>,
    /// The keys that had it of themselves, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// The roles that held it, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct RoleState {
    pub name: String,
    pub description: Option<String>,
    /// Slugs.
    pub permissions: Vec<String>,
    /// The keys that had it, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

impl PermissionState {
    pub fn of(permission: &Permission) -> Self {
        let Permission { slug, name, description, .. } = permission.clone();
        Self { slug, name, description, keys: Vec::new(), roles: Vec::new() }
    }
}

impl RoleState {
    pub fn of(role: &Role) -> Self {
        let permissions = role.permissions.iter().map(|permission| permission.slug.clone());
        Self {
            description: role.description.clone(),
            permissions: permissions.collect(),
            ..Self::bare(&role.name)
        }
    }

    /// Of a role that has nothing but a name.
    pub fn bare(name: &str) -> Self {
        let (permissions, keys) = (Vec::new(), Vec::new());
        Self { name: name.to_owned(), description: None, permissions, keys }
    }
}
