//! The roles and permissions of a resolved key.

use foundation::id::RoleId;

/// The roles and permissions of a key that has any.
#[derive(Debug)]
pub struct KeyPermissions {
    /// Names, sorted.
    pub roles: Box<[String]>,
    /// Slugs of the key's direct permissions and of its roles' permissions, sorted, without duplicates.
    pub permissions: Box<[String]>,
    /// The positions of the direct permissions among all.
    direct: Box<[usize]>,
    /// All roles that the key's row names, even if they do not exist.
    pub role_ids: Box<[RoleId]>,
}

impl KeyPermissions {
    /// Returns the permissions of a key with these roles, direct permissions, and permissions of its roles. `None`: it has
    /// neither roles nor permissions.
    pub fn new(
        role_ids: Vec<RoleId>,
        mut roles: Vec<String>,
        direct: &[String],
        mut permissions: Vec<String>,
    ) -> Option<Box<Self>> {
        if role_ids.is_empty() && direct.is_empty() {
            return None;
        }
        roles.sort();
        permissions.extend_from_slice(direct);
        permissions.sort();
        permissions.dedup();
        let position = |slug: &String| permissions.binary_search(slug).ok();
        let direct = direct.iter().filter_map(position).collect();
        Some(Box::new(Self {
            roles: roles.into(),
            permissions: permissions.into(),
            direct,
            role_ids: role_ids.into(),
        }))
    }

    /// Returns the number of direct permissions.
    pub fn direct_count(&self) -> usize {
        self.direct.len()
    }

    /// Returns the slugs of the direct permissions.
    pub fn direct_slugs(&self) -> impl Iterator<Item = &String> {
        self.direct.iter().filter_map(|at| self.permissions.get(*at))
    }

    /// Returns the approximate size in bytes.
    pub fn size(&self) -> usize {
        let names = self.roles.iter().chain(&self.permissions);
        let ids = self.role_ids.iter().map(|id| size_of_val(id) + id.as_str().len());
        size_of::<Self>()
            + size_of_val(&*self.direct)
            + names.map(|name| size_of_val(name) + name.len()).sum::<usize>()
            + ids.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
        texts.map(str::to_owned).to_vec()
    }

    #[test]
    fn permissions_are_sorted_and_direct_ones_are_found_again() {
        let ids = vec![RoleId::from("role_2"), RoleId::from("role_1")];
        let (roles, direct) = (texts(["b", "a"]), texts(["x", "c"]));

        let found = KeyPermissions::new(ids.clone(), roles, &direct, texts(["d", "c", "a", "d"]));

        let found = found.expect("permissions");
        assert_eq!(*found.roles, texts(["a", "b"]));
        assert_eq!(*found.permissions, texts(["a", "c", "d", "x"]));
        assert_eq!(found.direct_slugs().cloned().collect::<Vec<_>>(), direct);
        assert_eq!((found.direct_count(), &*found.role_ids), (2, &*ids));
    }

    #[test]
    fn permissions_are_none_when_key_has_neither_roles_nor_permissions() {
        assert!(KeyPermissions::new(Vec::new(), Vec::new(), &[], Vec::new()).is_none());
        let deleted = vec![RoleId::from("role_1")];
        assert!(KeyPermissions::new(deleted, Vec::new(), &[], Vec::new()).is_some());
    }
}
