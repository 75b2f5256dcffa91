//! The configurations of gateways on the page of a policy.

use domain::gateways::configurations::GatewayProgram;

use super::super::Browser;
use super::create;
use crate::on_both_stacks;

on_both_stacks! {
    async fn page_has_the_configuration_of_each_gateway_for_this_policy(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let (path, secret) = create(&mut owner, "my-edge", &api).await;
        let first = owner.get(&path).await.text;
        assert!(first.contains("http://keyward/gateway/my-edge?mode=nginx"), "{first}");
        let by_id = format!("path: /gateway/{}", path.rsplit('/').next().unwrap());

        for (program, parts) in [
            (GatewayProgram::Nginx, &["gateway/my-edge?mode=nginx", "server 10.0.0.5:3005", "server 10.0.0.7:80;", "keyward-secret.conf"][..]),
            (GatewayProgram::HaProxy, &["lua.keyward my-edge", "keyward-1 10.0.0.5:3005", "/etc/haproxy/keyward.lua", "KEYWARD_GATEWAY_SECRET=SECRET"]),
            (GatewayProgram::Caddy, &["uri /gateway/my-edge", "to 10.0.0.5:3005", "KEYWARD_GATEWAY_SECRET=SECRET"]),
            (GatewayProgram::Traefik, &["/gateway/my-edge", "http://10.0.0.5:3005", "/etc/traefik/traefik.yml"]),
            (GatewayProgram::Envoy, &["path_prefix: /gateway/my-edge", "10.0.0.5", "port_value: 3005"]),
            (GatewayProgram::EnvoyGrpc, &["keyward-policy", "my-edge", "port_value: 3005", "Also set KEYWARD_GRPC_LISTEN"]),
            (GatewayProgram::Kubernetes, &[by_id.as_str(), "ingress-nginx.yaml", "cannot read a secret"]),
        ] {
            let query = format!("for={}&keyward=10.0.0.5:3005&service=10.0.0.7:80", program.name());
            let page = owner.get(&format!("{path}?{query}")).await.text;
            let text = page.replace("&#34;", "\"");
            for part in parts {
                assert!(text.contains(part), "{part} of {program:?}: {text}");
            }
            assert!(!text.contains("edge?mode=nginx") || program == GatewayProgram::Nginx);
            assert!(!page.contains(&secret), "{program:?}");
            let current = format!("?for={}#configuration\" aria-current=\"page\"", program.name());
            assert!(page.contains(&current), "{page}");
        }
    }

    async fn address_that_is_none_is_told_at_its_field(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let (path, _) = create(&mut owner, "edge", &api).await;

        for (field, value) in [("keyward", "nowhere"), ("keyward", "ftp://a:1"), ("keyward", "https://a:1,b:1"), ("server-name", "a%20b&keyward=https://a:1"), ("ca-file", "ca.pem&keyward=https://a:1"), ("server-name", "&keyward=https://10.0.0.5:1"), ("service", "a:0"), ("service", "%3Cb%3E:1")] {
            let page = owner.get(&format!("{path}?{field}={value}")).await;
            assert_eq!(page.status, 200);
            let wrong = format!("aria-describedby=\"{field}-hint {field}-error\" aria-invalid=\"true\"");
            assert!(page.text.contains(&wrong), "{field} {value}: {}", page.text);
            assert!(!page.text.contains("proxy_pass") && !page.text.contains("<b>"), "{}", page.text);
        }
    }

    async fn configuration_uses_tls_when_an_address_has_https(kw) {
        let mut owner = Browser::sign_in_owner(&kw).await;
        let api = kw.create_api().await;
        let (path, _) = create(&mut owner, "edge", &api).await;
        let plain = owner.get(&path).await.text;
        assert!(!plain.contains("name=\"server-name\""), "{plain}");

        let secure = owner.get(&format!("{path}?keyward=https://keys.example:3000")).await.text;
        assert!(secure.contains("name=\"server-name\" autocomplete=\"off\" value=\"keys.example\""), "{secure}");
        assert!(secure.contains("proxy_ssl_name keys.example;") && !secure.contains("#plain"), "{secure}");

        let named = format!("{path}?keyward=https://10.0.0.5:3000&server-name=keys.internal&ca-file=/etc/keys.pem");
        let named = owner.get(&named).await.text;
        assert!(named.contains("proxy_ssl_name keys.internal;"), "{named}");
        assert!(named.contains("proxy_ssl_trusted_certificate /etc/keys.pem;"), "{named}");
    }
}
