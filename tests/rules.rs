//! Rules that many operations of both versions share: a table each. To add a case, add a row. A request names what it
//! is about by a placeholder, such as `{api}`, which [`World`] replaces.

mod absence;
mod creation;
mod deletion;
mod grants;
mod page_bytes;
mod pages;
mod reading;

use serde_json::{Value, json};

use crate::support::Keyward;
use crate::support::seed::merge_fields;

/// One of everything, by its placeholder.
pub struct World(Vec<(&'static str, String)>);

impl World {
    /// Creates one of everything; `name` is in each name that must be unique.
    pub async fn create(kw: &Keyward, name: &str) -> Self {
        let api = kw.create_api().await;
        let external_id = format!("user_{name}");
        let identity = kw.create_identity(&external_id, json!({})).await;
        let key = kw
            .create_key_in(
                &api,
                json!({ "externalId": external_id, "name": format!("key {name}") }),
            )
            .await;
        let (slug, role, namespace) =
            (format!("docs.{name}"), format!("Role_{name}"), format!("namespace_{name}"));
        kw.check_limit(&namespace, "user_1", json!({ "cost": 0 })).await.data();
        let namespace_id = kw.find_namespace_id(&namespace).await;
        Self(vec![
            ("{api}", api),
            ("{keyId}", key.id),
            ("{key}", key.key),
            ("{keyName}", format!("key {name}")),
            ("{identityId}", identity),
            ("{externalId}", external_id),
            ("{permissionId}", kw.create_permission(&slug).await),
            ("{slug}", slug),
            ("{roleId}", kw.create_role(&role, []).await),
            ("{role}", role),
            ("{override}", kw.set_override(&namespace, "user_1", json!({})).await),
            ("{namespaceId}", namespace_id),
            ("{namespace}", namespace),
        ])
    }

    /// Ids and names of things that were never created.
    pub fn nowhere() -> Self {
        Self(
            [
                ("{api}", "api_nowhere"),
                ("{keyId}", "key_nowhere"),
                ("{key}", "prod_neverIssued"),
                ("{identityId}", "id_nowhere"),
                ("{externalId}", "nobody"),
                ("{permissionId}", "perm_nowhere"),
                ("{slug}", "docs.nowhere"),
                ("{roleId}", "role_nowhere"),
                ("{role}", "nowhere"),
            ]
            .map(|(placeholder, value)| (placeholder, value.to_owned()))
            .to_vec(),
        )
    }

    /// The same ids and names in upper and in lower case.
    pub fn misspelled(&self) -> [Self; 2] {
        let spell = |change: fn(&str) -> String| {
            Self(self.0.iter().map(|(placeholder, value)| (*placeholder, change(value))).collect())
        };
        [spell(str::to_uppercase), spell(str::to_lowercase)]
    }

    pub fn get(&self, placeholder: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| *known == placeholder);
        &found.unwrap_or_else(|| panic!("there is no {placeholder}")).1
    }

    /// Replaces the placeholders in a text.
    pub fn fill(&self, text: &str) -> String {
        let replace =
            |text: String, (placeholder, value): &(&str, String)| text.replace(placeholder, value);
        self.0.iter().fold(text.to_owned(), replace)
    }

    /// Replaces the placeholders in a request.
    pub fn request(&self, request: &Value) -> Value {
        serde_json::from_str(&self.fill(&request.to_string())).expect("JSON")
    }
}

/// A request with further fields.
pub fn with(request: Value, fields: Value) -> Value {
    merge_fields(request, fields)
}
