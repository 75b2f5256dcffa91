use serde_json::{Value, json};

use crate::on_both_stacks;
use crate::support::Keyward;

async fn found(kw: &Keyward, search: &str) -> Vec<String> {
    let page = kw.v2("permissions.listPermissions", json!({ "search": search })).await;
    let slug = |item: &Value| item["slug"].as_str().unwrap().to_owned();
    let mut slugs: Vec<_> = page.data().as_array().unwrap().iter().map(slug).collect();
    slugs.sort();
    slugs
}

async fn planted(kw: &Keyward) -> String {
    for (slug, name, description) in [
        ("docs.read", "Read documents", "harmless"),
        ("docs.write", "Write documents", "100%_sure"),
        ("users.ban", "Benutzer sperren", "ÄRGER"),
    ] {
        kw.v2(
            "permissions.createPermission",
            json!({ "slug": slug, "name": name, "description": description }),
        )
        .await
        .data();
    }
    let request = json!({ "permission": "docs.read" });
    kw.v2("permissions.getPermission", request).await.text_of("id")
}

on_both_stacks! {
    async fn a_search_looks_through_every_text_in_whatever_case(kw) {
        let id = planted(&kw).await;

        assert_eq!(found(&kw, "DOCS.").await, ["docs.read", "docs.write"]);
        assert_eq!(found(&kw, " write doc ").await, ["docs.write"]);
        assert_eq!(found(&kw, "HARM").await, ["docs.read"]);
        assert_eq!(found(&kw, "ärger").await, ["users.ban"]);
        assert_eq!(found(&kw, &id.to_uppercase()).await, ["docs.read"]);
        assert_eq!(found(&kw, "  ").await.len(), 3);
        assert!(found(&kw, "nothing").await.is_empty());
    }

    async fn no_letter_of_a_search_has_a_meaning_of_its_own(kw) {
        planted(&kw).await;

        assert_eq!(found(&kw, "100%_").await, ["docs.write"]);
        assert!(found(&kw, "d%s").await.is_empty());
        assert!(found(&kw, "docs_read").await.is_empty());
        assert!(found(&kw, "*").await.is_empty());
        assert!(found(&kw, "\\").await.is_empty());
        assert!(found(&kw, "'").await.is_empty());
    }
}
