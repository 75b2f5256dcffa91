//! How a gateway proves itself over HTTP.

use std::net::SocketAddr;

use domain::gateways;
use domain::gateways::configurations::{
    ConfigurationValues, GatewayProgram, KeywardServers, TlsOptions, configuration,
};
use request::PEER;
use serde_json::json;

use super::hang_up::operator;
use super::{Gateway, send};
use crate::on_both_stacks;

on_both_stacks! {
    async fn gateway_is_refused_without_the_secret_of_its_policy(kw) {
        let gateway = Gateway::create(&kw, json!({})).await;
        let other = json!({ "name": "other", "apiIds": [gateway.api] });
        let other = kw.v2("gateways.createPolicy", other).await.text_of("secret");
        let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);
        let bearer = ("authorization", bearer.as_str());

        let mut refusals = Vec::new();
        for (target, secret) in [
            ("/gateway/edge", None),
            ("/gateway/edge", Some("wrong")),
            ("/gateway/edge", Some("")),
            ("/gateway/edge", Some(other.as_str())),
            ("/gateway/edge", Some(kw.root_key.as_str())),
            ("/gateway/unknown", Some(gateway.secret.as_str())),
            ("/gateway/unknown", None),
            ("/gateway/", Some(gateway.secret.as_str())),
        ] {
            let mut headers = vec![bearer];
            headers.extend(secret.map(|secret| ("keyward-gateway-secret", secret)));
            let reply = send(&kw, "GET", target, &headers).await;
            assert_eq!(reply.status, 403, "{target} {secret:?}");
            let mut body = reply.body;
            body["requestId"].take();
            refusals.push(body);
        }
        refusals.dedup();
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        assert_eq!(gateway.ask(&[bearer]).await.status, 200);
    }

    async fn secret_is_replaced_by_a_rotation(kw) {
        let mut gateway = Gateway::create(&kw, json!({})).await;
        let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);
        let headers = [("authorization", bearer.as_str())];
        assert_eq!(gateway.ask(&headers).await.status, 200);
        let rotate = json!({ "policyId": "edge", "expiration": 1000 });

        let new = kw.v2("gateways.rotateSecret", rotate).await.text_of("secret");
        kw.clock.advance_ms(999);
        assert_eq!(gateway.ask(&headers).await.status, 200);
        kw.clock.advance_ms(1);
        assert_eq!(gateway.ask(&headers).await.status, 403);
        gateway.secret = new;
        assert_eq!(gateway.ask(&headers).await.status, 200);
        kw.v2("gateways.rotateSecret", json!({ "policyId": "edge" })).await.data();
        assert_eq!(gateway.ask(&headers).await.status, 403);
        let out_of_bounds = json!({ "policyId": "edge", "expiration": 604_800_001 });
        kw.v2("gateways.rotateSecret", out_of_bounds).await.assert_error(400, "invalid_input");
    }

    async fn gateway_needs_no_secret_from_allowed_networks(kw) {
        let gateway = Gateway::create(&kw, json!({ "allowFrom": ["10.0.0.0/8"] })).await;
        let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);
        let forwarded = [("authorization", bearer.as_str()), ("x-forwarded-for", "10.0.0.1")];

        for (peer, status) in [("10.0.0.1:1", 200), ("[::ffff:10.1.2.3]:1", 200), ("192.0.2.1:1", 403)] {
            let peer: SocketAddr = peer.parse().unwrap();
            let reply = PEER.scope(peer, send(&kw, "GET", "/gateway/edge", &forwarded)).await;
            assert_eq!(reply.status.as_u16(), status, "{peer}");
        }
        assert_eq!(send(&kw, "GET", "/gateway/edge", &forwarded).await.status, 403);
    }

    async fn stored_name_that_is_like_an_id_names_no_policy(kw) {
        let gateway = Gateway::create(&kw, json!({ "allowFrom": ["10.0.0.0/8"] })).await;
        let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);
        let bearer = ("authorization", bearer.as_str());
        let secret = ("keyward-gateway-secret", gateway.secret.as_str());
        let policy = kw.v2("gateways.getPolicy", json!({ "policyId": "edge" })).await.text_of("policyId");
        kw.execute_sql("UPDATE gateway_policies SET name = 'gwp_other'".into()).await;
        let peer: SocketAddr = "10.0.0.1:1".parse().unwrap();

        for (named, status) in [("gwp_other", 403), (policy.as_str(), 200)] {
            let target = format!("/gateway/{named}");
            for headers in [vec![bearer], vec![bearer, secret]] {
                let reply = PEER.scope(peer, send(&kw, "GET", &target, &headers)).await;
                assert_eq!(reply.status.as_u16(), status, "{named} {}", headers.len());
            }
        }
    }

    async fn manifest_is_judged_by_its_policy_when_an_older_one_of_another_workspace_has_its_name(kw) {
        let (peer, networks) = ("10.0.0.1:1".parse::<SocketAddr>().unwrap(), json!(["10.0.0.0/8"]));
        let stranger = kw.create_other_workspace().await;
        let api = kw.v2_as(&stranger, "apis.createApi", json!({ "name": "other" })).await.text_of("apiId");
        let older = json!({ "name": "edge", "apiIds": [api], "allowFrom": networks });
        kw.v2_as(&stranger, "gateways.createPolicy", older).await.data();
        kw.clock.advance_ms(1);
        let gateway = Gateway::create(&kw, json!({ "allowFrom": networks })).await;
        let bearer = format!("Bearer {}", gateway.create_key(json!({})).await.key);
        let policy = gateways::get(&kw.app.context, &operator(&kw), "edge").await.unwrap();
        let addresses = vec!["10.0.0.2:3000".parse().unwrap()];
        let keyward = KeywardServers::new(addresses, TlsOptions::default(), false).unwrap();
        let values = ConfigurationValues { policy: &policy, keyward: &keyward, service: None };

        let files = configuration(GatewayProgram::Kubernetes, values);

        let url = "address: http://keyward.keyward.svc.cluster.local:3000";
        let mut lines = files.iter().flat_map(|file| file.text.lines());
        let path = lines.find_map(|line| line.trim().strip_prefix(url)).unwrap();
        for (target, status) in [(path, 200), ("/gateway/edge", 401)] {
            let headers = [("authorization", bearer.as_str())];
            let reply = PEER.scope(peer, send(&kw, "GET", target, &headers)).await;
            assert_eq!(reply.status.as_u16(), status, "{target}");
        }
    }
}
