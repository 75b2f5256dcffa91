//! Estimates the size of cached rows: what their texts and lists take.
//!
//! Every field is named, so that a new one is not forgotten.

use foundation::model::{Identity, Override, Permission, Ratelimit, Role};

use super::CacheValue;
use crate::StoredNamespace;

impl CacheValue for Identity {
    fn heap_size(&self) -> usize {
        let Self { id, external_id, meta, ratelimits, home } = self;
        id.as_str().len()
            + external_id.len()
            + meta.as_ref().map_or(0, |meta| meta.as_str().len())
            + list_size(ratelimits, ratelimit_size)
            + home.as_ref().map_or(0, |home| home.region.len())
    }
}

impl CacheValue for Role {
    fn heap_size(&self) -> usize {
        let Self { id, name, description, permissions } = self;
        let description = description.as_ref().map_or(0, String::len);
        id.as_str().len() + name.len() + description + list_size(permissions, permission_size)
    }
}

impl CacheValue for StoredNamespace {
    fn heap_size(&self) -> usize {
        let Self { namespace, overrides } = self;
        // The identifier is also the name by which the override is found.
        let override_size = |item: &Override| item.id.as_str().len() + 2 * item.identifier.len();
        namespace.id.as_str().len()
            + namespace.workspace_id.as_str().len()
            + namespace.name.len()
            + 2 * list_size(overrides.as_slice(), override_size)
    }
}

fn ratelimit_size(limit: &Ratelimit) -> usize {
    limit.id.as_str().len() + limit.name.len()
}

fn permission_size(permission: &Permission) -> usize {
    let Permission { id, slug, name, description } = permission;
    let description = description.as_ref().map_or(0, String::len);
    id.as_str().len() + slug.len() + name.len() + description
}

/// Returns the size of a list: that of its items, and of the heap of each.
fn list_size<T>(items: &[T], heap_size: impl Fn(&T) -> usize) -> usize {
    size_of_val(items) + items.iter().map(heap_size).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;
    use foundation::home::Home;
    use foundation::model::{Meta, Namespace, OutagePolicy, Overrides};

    use super::*;

    /// Returns a text of this length.
    fn text(length: usize) -> String {
        "x".repeat(length)
    }

    /// Returns a limit with texts of these lengths.
    fn ratelimit(id: usize, name: usize) -> Ratelimit {
        Ratelimit {
            id: text(id).into(),
            name: text(name),
            limit: 1,
            duration_ms: 1,
            auto_apply: false,
            is_approximate: false,
        }
    }

    /// Returns a permission with texts of these lengths.
    fn permission([id, slug, name, description]: [usize; 4]) -> Permission {
        let description = Some(text(description));
        Permission { id: text(id).into(), slug: text(slug), name: text(name), description }
    }

    fn meta() -> Option<Meta> {
        Meta::from_stored(r#"{"a":1}"#.to_owned())
    }

    #[test]
    fn identity_and_role_take_the_length_of_each_text_and_the_size_of_each_list() {
        let identity = Identity {
            id: text(1).into(),
            external_id: text(2),
            meta: meta(),
            ratelimits: vec![ratelimit(20, 21)],
            home: Some(Home::new(text(50))),
        };
        let role = Role {
            id: text(1).into(),
            name: text(2),
            description: Some(text(3)),
            permissions: vec![permission([30, 31, 32, 33])],
        };

        let limit = size_of::<Ratelimit>() + 20 + 21;
        assert_eq!(identity.heap_size(), 1 + 2 + 7 + limit + 50);
        let permission = size_of::<Permission>() + 30 + 31 + 32 + 33;
        assert_eq!(role.heap_size(), 1 + 2 + 3 + permission);
    }

    #[test]
    fn namespace_takes_twice_the_size_of_its_overrides() {
        let item = Override {
            id: text(20).into(),
            identifier: text(21),
            limit: 1,
            duration_ms: 1,
            expires_at: None,
            is_approximate: false,
            created_at: Timestamp(0),
            updated_at: None,
        };
        let namespace = Namespace {
            id: text(1).into(),
            workspace_id: text(2).into(),
            name: text(3),
            outage_policy: OutagePolicy::Local,
            home: None,
            created_at: Timestamp(0),
            deleted_at: None,
        };
        let row = StoredNamespace { namespace, overrides: Overrides::new(vec![item]) };

        assert_eq!(row.heap_size(), 1 + 2 + 3 + 2 * (size_of::<Override>() + 20 + 2 * 21));
    }
}
