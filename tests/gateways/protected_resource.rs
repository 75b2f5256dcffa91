//! `GET /.well-known/oauth-protected-resource/{policy}`, as MCP clients read it.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use super::{Gateway, header, send};
use crate::on_both_stacks;
use crate::support::Keyward;

const RESOURCE: &str = "https://mcp.example.com/mcp";

async fn policy_id(kw: &Keyward) -> String {
    kw.v2("gateways.getPolicy", json!({ "policyId": "edge" })).await.text_of("policyId")
}

fn path(policy: &str) -> String {
    format!("/.well-known/oauth-protected-resource/{policy}")
}

on_both_stacks! {
    async fn metadata_describes_the_policy_that_the_challenge_names(kw) {
        let gateway = Gateway::create(&kw, json!({
            "resource": RESOURCE, "authorizationServers": ["https://auth.example.com"],
            "keyFrom": ["header:x-api-key", "query:access_token", "authorization:bearer", "query:key"],
            "rules": [
                { "path": "/a", "permissions": "documents.write OR admin" },
                { "permissions": "documents.read AND admin" },
            ],
        })).await;
        let id = policy_id(&kw).await;

        let challenge = gateway.ask(&[]).await;

        let public_url = &kw.app.context.settings.public_url;
        let url = format!("{public_url}{}", path(&id));
        let expected =
            format!("Bearer realm=\"edge\", error=\"invalid_token\", resource_metadata=\"{url}\"");
        assert_eq!(challenge.status, 401);
        assert_eq!(header(&challenge, "www-authenticate"), Some(expected.as_str()));
        let reply = send(&kw, "GET", &path(&id), &[]).await;
        assert_eq!(reply.body, json!({
            "resource": RESOURCE, "authorization_servers": ["https://auth.example.com"],
            "bearer_methods_supported": ["query", "header"],
            "scopes_supported": ["admin", "documents.read", "documents.write"],
            "resource_name": "edge",
        }));
        for (name, value) in [
            ("content-type", "application/json"),
            ("cache-control", "public, max-age=60"),
            ("access-control-allow-origin", "*"),
        ] {
            assert_eq!(header(&reply, name), Some(value), "{name}");
        }
        let preflight = Request::options(path(&id)).body(Body::empty()).unwrap();
        let preflight = kw.send(preflight).await;
        assert_eq!(preflight.status, 204);
        assert_eq!(header(&preflight, "access-control-allow-headers"), Some("*"));
        assert_eq!(send(&kw, "POST", &path(&id), &[]).await.status, 405);
    }

    async fn metadata_names_the_resource_of_its_own_url_by_default(kw) {
        let gateway = Gateway::create(&kw, json!({})).await;
        let id = policy_id(&kw).await;
        let status = async |policy: &str| send(&kw, "GET", &path(policy), &[]).await.status.as_u16();
        let update = async |resource: &str| {
            let change = json!({ "policyId": "edge", "resource": resource });
            kw.v2("gateways.updatePolicy", change).await.data().clone()
        };
        let public_url = &kw.app.context.settings.public_url;
        for named in ["edge", &id] {
            let reply = send(&kw, "GET", &path(named), &[]).await;
            assert_eq!(reply.body, json!({
                "resource": format!("{public_url}/{named}"), "bearer_methods_supported": ["header"],
                "resource_name": "edge",
            }));
        }
        let challenge = gateway.ask(&[]).await;
        assert!(!header(&challenge, "www-authenticate").unwrap().contains("resource_metadata"));

        assert_eq!(update(RESOURCE).await["resource"], RESOURCE);

        let reply = send(&kw, "GET", &path(&id), &[]).await;
        assert_eq!(reply.body, json!({
            "resource": RESOURCE, "bearer_methods_supported": ["header"], "resource_name": "edge",
        }));
        for unknown in ["gwp_unknown", "other", "a%00b"] {
            assert_eq!(status(unknown).await, 404, "{unknown}");
        }
        assert_eq!(update("").await.get("resource"), None);
        let challenge = gateway.ask(&[]).await;
        assert!(!header(&challenge, "www-authenticate").unwrap().contains("resource_metadata"));
        kw.v2("gateways.deletePolicy", json!({ "policyId": "edge" })).await.data();
        for deleted in ["edge", &id] {
            assert_eq!(status(deleted).await, 404, "{deleted}");
        }
    }
}
