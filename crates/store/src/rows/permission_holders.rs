//! Defines rows of the keys that hold a permission.

use foundation::error::{Error, Result};
use foundation::id::{KeyId, RoleId};
use foundation::model::PermissionAssignment;
use sqlx_macros::FromRow;

use super::parse_json;

#[derive(FromRow)]
pub struct AssignmentRow {
    role_id: Option<RoleId>,
    role_name: Option<String>,
    key_ids: String,
}

impl TryFrom<AssignmentRow> for PermissionAssignment {
    type Error = Error;

    fn try_from(row: AssignmentRow) -> Result<Self> {
        let key_ids = parse_json::<Vec<String>>(&row.key_ids)?.into_iter().map(KeyId::from);
        Ok(Self { role: row.role_id.zip(row.role_name), key_ids: key_ids.collect() })
    }
}
