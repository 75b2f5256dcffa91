use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::json::Fields as _;
use crate::support::{Keyward, Reply};

async fn create(kw: &Keyward, fields: Value) -> Reply {
    kw.v1("permissions.createRole", fields).await
}

/// What is told of the role that was made.
async fn told(kw: &Keyward, made: &Reply) -> Value {
    let query = format!("roleId={}", made.v1_body()["roleId"].as_str().unwrap());
    kw.v1_get("permissions.getRole", &query).await.v1_body().clone()
}

on_both_stacks! {
    async fn a_key_can_be_given_it(kw) {
        let api = kw.create_api().await;
        create(&kw, json!({ "name": "editor" })).await.v1_body();
        let key = kw.v1("keys.createKey", json!({ "apiId": api, "roles": ["editor"] })).await;
        let verified = kw.verify_v1(key.v1_body()["key"].as_str().unwrap(), json!({})).await;
        verified.assert_v1_code("VALID").assert_has(json!({ "roles": ["editor"], "permissions": [] }));
    }

    async fn only_its_id_names_it(kw) {
        let id = create(&kw, json!({ "name": "editor" })).await.v1_body()["roleId"].clone();
        let delete = async |id: &Value| kw.v1("permissions.deleteRole", json!({ "roleId": id })).await;

        let got = kw.v1_get("permissions.getRole", "roleId=editor").await;
        let deleted = delete(&json!("editor")).await;

        for reply in [got, deleted] {
            reply.assert_v1_error_about(404, "NOT_FOUND", &["editor"]);
        }
        assert_eq!(kw.count_rows("roles").await, 1);
        delete(&id).await.v1_body();
        assert_eq!(kw.count_rows("roles").await, 0);
    }

    async fn its_name_may_have_any_characters(kw) {
        let name = "Chefredakteur:in 'Süd' 🖋 *";
        let made = create(&kw, json!({ "name": name })).await;
        assert_eq!(told(&kw, &made).await["name"], name);
    }

    async fn a_description_is_empty_or_three_characters_or_more(kw) {
        let empty = create(&kw, json!({ "name": "editor", "description": "" })).await;
        let short = create(&kw, json!({ "name": "short", "description": "ab" })).await;
        let some = create(&kw, json!({ "name": "reader", "description": "«ü»" })).await;

        assert_eq!(told(&kw, &empty).await.get("description"), None);
        assert!(short.assert_v1_error(400, "BAD_REQUEST").starts_with("description: "));
        assert_eq!(told(&kw, &some).await["description"], "«ü»");
    }
}
