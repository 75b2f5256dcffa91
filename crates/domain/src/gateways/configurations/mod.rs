//! The configurations of gateways in `deploy/gateways`, filled in for a policy. Each line of a file is adapted alone, so
//! what is shown is what the tests run with the real programs.

mod fill_in;
mod keyward_servers;
mod server_address;

pub use keyward_servers::{
    KeywardAddress, KeywardServers, KeywardServersError, KeywardTls, PUBLIC_AUTHORITIES, TlsOptions,
};
pub use server_address::ServerAddress;

use foundation::model::GatewayPolicy;

use fill_in::fill_in;

use super::is_like_id;

/// A gateway, or a way to connect it, that has a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayProgram {
    Nginx,
    HaProxy,
    Caddy,
    Traefik,
    /// Envoy that asks over HTTP.
    Envoy,
    /// Envoy that asks over gRPC.
    EnvoyGrpc,
    /// Envoy Gateway, Istio, Traefik or ingress-nginx in a cluster.
    Kubernetes,
}

impl GatewayProgram {
    pub const ALL: [Self; 7] = [
        Self::Nginx,
        Self::HaProxy,
        Self::Caddy,
        Self::Traefik,
        Self::Envoy,
        Self::EnvoyGrpc,
        Self::Kubernetes,
    ];

    /// Returns the name on the command line and in URLs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::HaProxy => "haproxy",
            Self::Caddy => "caddy",
            Self::Traefik => "traefik",
            Self::Envoy => "envoy",
            Self::EnvoyGrpc => "envoy-grpc",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// Returns the name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::HaProxy => "HAProxy",
            Self::Caddy => "Caddy",
            Self::Traefik => "Traefik",
            Self::Envoy => "Envoy (HTTP)",
            Self::EnvoyGrpc => "Envoy (gRPC)",
            Self::Kubernetes => "Kubernetes",
        }
    }

    /// Returns the gateway with this name on the command line and in URLs.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }

    /// Returns the files: their names, where they are installed, and their texts as shipped.
    fn shipped_files(self) -> &'static [(&'static str, Option<&'static str>, &'static str)] {
        macro_rules! shipped {
            ($directory:literal, $name:literal, $install_path:expr) => {
                (
                    $name,
                    $install_path,
                    include_str!(concat!(
                        "../../../../../deploy/gateways/",
                        $directory,
                        "/",
                        $name
                    )),
                )
            };
        }
        match self {
            Self::Nginx => {
                &[shipped!("nginx", "keyward.conf", Some("/etc/nginx/conf.d/keyward.conf"))]
            }
            Self::HaProxy => &[
                shipped!("haproxy", "haproxy.cfg", Some("/etc/haproxy/haproxy.cfg")),
                shipped!("haproxy", "keyward.lua", Some("/etc/haproxy/keyward.lua")),
            ],
            Self::Caddy => &[shipped!("caddy", "Caddyfile", Some("/etc/caddy/Caddyfile"))],
            Self::Traefik => &[
                shipped!("traefik", "traefik.yml", Some("/etc/traefik/traefik.yml")),
                shipped!("traefik", "keyward.yml", Some("/etc/traefik/keyward.yml")),
            ],
            Self::Envoy => &[shipped!("envoy", "envoy.yaml", Some("/etc/envoy/envoy.yaml"))],
            Self::EnvoyGrpc => {
                &[shipped!("envoy", "envoy-grpc.yaml", Some("/etc/envoy/envoy.yaml"))]
            }
            Self::Kubernetes => &[
                shipped!("kubernetes", "network-policy.yaml", None),
                shipped!("kubernetes", "envoy-gateway.yaml", None),
                shipped!("kubernetes", "istio-mesh-config.yaml", None),
                shipped!("kubernetes", "istio.yaml", None),
                shipped!("kubernetes", "traefik.yaml", None),
                shipped!("kubernetes", "ingress-nginx.yaml", None),
            ],
        }
    }
}

/// What a configuration is filled in with.
#[derive(Debug, Clone, Copy)]
pub struct ConfigurationValues<'a> {
    pub policy: &'a GatewayPolicy,
    /// Keyward: its listeners for HTTP, or those for gRPC if Envoy asks over gRPC. Manifests for Kubernetes name a Service
    /// instead.
    pub keyward: &'a KeywardServers,
    /// The address of the service behind the gateway. Absent: it stays `service:8080`.
    pub service: Option<&'a ServerAddress>,
}

/// A file of a configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigurationFile {
    pub name: &'static str,
    /// Where the gateway expects it. Absent: it is applied to a cluster.
    pub install_path: Option<&'static str>,
    pub text: String,
}

/// Returns the files that configure a gateway to ask for decisions by a policy. They contain no secret.
pub fn configuration(
    program: GatewayProgram,
    values: ConfigurationValues<'_>,
) -> Vec<ConfigurationFile> {
    let GatewayPolicy { id, name, .. } = values.policy;
    // Without a secret, a name stands for the oldest policy of any workspace that has it.
    let policy = match program == GatewayProgram::Kubernetes || is_like_id(name) {
        true => id.as_str(),
        false => name.as_str(),
    };
    let file = |&(name, install_path, shipped): &(_, _, &str)| ConfigurationFile {
        name,
        install_path,
        text: fill_in(shipped, values, policy),
    };
    program.shipped_files().iter().map(file).collect()
}

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;
    use foundation::id::{GatewayPolicyId, WorkspaceId};
    use foundation::model::{GatewayPolicyConfig, IdentityHeaders};

    use super::*;

    fn policy(name: &str, key_from: &[&str], meta: &[&str]) -> GatewayPolicy {
        let meta = meta.iter().map(|name| (*name).to_owned()).collect();
        GatewayPolicy {
            id: GatewayPolicyId::from("gwp_1"),
            workspace_id: WorkspaceId::from("ws_1"),
            name: name.to_owned(),
            config: GatewayPolicyConfig {
                key_from: key_from.iter().map(|text| text.parse().expect("a source")).collect(),
                identity_headers: IdentityHeaders { meta, ..IdentityHeaders::default() },
                ..GatewayPolicyConfig::default()
            },
            created_at: Timestamp(0),
            updated_at: None,
        }
    }

    fn servers(texts: &[&str]) -> KeywardServers {
        let entered = texts.iter().map(|text| text.parse().expect("an address")).collect();
        let options =
            TlsOptions { server_name: Some("keys.internal"), ca_file: Some("/etc/keys-ca.pem") };
        KeywardServers::new(entered, options, false).expect("servers")
    }

    /// Returns the lines of a file that are not comments.
    fn directives(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !fill_in::is_comment(line)).collect()
    }

    /// Returns all files of a gateway as one text.
    fn text(program: GatewayProgram, policy: &GatewayPolicy, texts: &[&str]) -> String {
        let keyward = &servers(texts);
        let service = &"10.0.0.7:80".parse().expect("an address");
        let values = ConfigurationValues { policy, keyward, service: Some(service) };
        let files = configuration(program, values);
        files.into_iter().map(|file| file.text).collect()
    }

    #[test]
    fn configuration_is_the_shipped_one_when_its_names_are_filled_in() {
        let policy = policy("edge", &["authorization:bearer", "header:x-api-key"], &["Plan"]);
        for program in GatewayProgram::ALL {
            let port = if program == GatewayProgram::EnvoyGrpc { 3001 } else { 3000 };
            let keyward = servers(&[&format!("keyward-1:{port}"), &format!("keyward-2:{port}")]);
            let values = ConfigurationValues { policy: &policy, keyward: &keyward, service: None };
            if program == GatewayProgram::Kubernetes {
                continue;
            }
            for (file, (.., shipped)) in
                configuration(program, values).iter().zip(program.shipped_files())
            {
                let (filled_in, shipped) = (directives(&file.text), directives(shipped));
                let difference =
                    filled_in.iter().zip(&shipped).find(|(ours, theirs)| ours != theirs);
                assert_eq!(difference, None, "{}", file.name);
                assert_eq!(filled_in.len(), shipped.len(), "{}", file.name);
            }
        }
    }

    #[test]
    fn configuration_names_every_server_and_no_other() {
        let policy = policy("orders", &["header:x-key", "cookie:k", "query:k"], &[]);
        for program in GatewayProgram::ALL {
            let one = text(program, &policy, &["10.0.0.1:3005"]);
            let three = text(program, &policy, &["10.0.0.1:3005", "b.internal:3006", "[::1]:3007"]);
            for known in
                ["keyward-1:", "keyward-1,", "keyward-2", "edge", "Keyward-Meta-Plan", "x-api-key"]
            {
                // Descriptions may name what a policy can have.
                let lines = directives(&one);
                let found = lines.iter().find(|line| line.contains(known));
                assert_eq!(found, None, "{known} of {program:?}");
            }
            if program == GatewayProgram::Kubernetes {
                continue;
            }
            assert!(one.contains("10.0.0.1") && !one.contains("3006"), "{one}");
            for server in ["10.0.0.1", "3005", "b.internal", "3006", "::1", "3007", "10.0.0.7"] {
                assert!(three.contains(server), "{server} is not in {three}");
            }
        }
    }

    #[test]
    fn configuration_passes_on_keys_and_meta_of_the_policy() {
        let sources = ["header:x-key", "cookie:k", "query:k"];
        let policy = policy("orders", &sources, &["plan", "cost-center"]);
        let of = |program| text(program, &policy, &["10.0.0.1:3000"]);

        let nginx = of(GatewayProgram::Nginx);
        for line in [
            "proxy_set_header X-Key $http_x_key;",
            "proxy_set_header Cookie $http_cookie;",
            "proxy_set_header Keyward-Meta-cost-center $keyward_meta_cost_center;",
            "auth_request_set $keyward_meta_cost_center $upstream_http_keyward_meta_cost_center;",
            "proxy_pass http://keyward/gateway/orders?mode=nginx;",
        ] {
            assert!(nginx.contains(line), "{line} is not in {nginx}");
        }
        let lists = [
            (GatewayProgram::HaProxy, r#"{ "x-key", "cookie" }"#),
            (GatewayProgram::Traefik, "authRequestHeaders: [X-Key, Cookie]"),
            (GatewayProgram::Envoy, "[{ exact: x-key }, { exact: cookie }, { exact: x-for"),
            (GatewayProgram::EnvoyGrpc, r#"value: "orders" }"#),
            (GatewayProgram::Caddy, "Keyward-Meta-cost-center\n"),
            (GatewayProgram::Kubernetes, "- keyward-meta-cost-center\n"),
            (GatewayProgram::Kubernetes, ",Keyward-Meta-plan,Keyward-Meta-cost-center\n"),
            (GatewayProgram::Kubernetes, "headersToExtAuth: [x-key, cookie, x-forw"),
        ];
        for (program, part) in lists {
            let text = of(program);
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn manifests_name_the_policy_by_its_id_because_they_have_no_secret() {
        let policy = policy("orders", &["authorization:bearer"], &[]);

        let text = text(GatewayProgram::Kubernetes, &policy, &["10.0.0.1:3000"]);

        assert_eq!(text.matches("/gateway/gwp_1").count(), 4, "{text}");
        assert!(!text.contains("/gateway/orders"), "{text}");
    }

    #[test]
    fn configuration_names_the_policy_by_its_id_when_its_name_is_like_an_id() {
        let policy = policy("gwp_orders", &["authorization:bearer"], &[]);

        let text = text(GatewayProgram::Nginx, &policy, &["10.0.0.1:3000"]);

        assert!(text.contains("/gateway/gwp_1"), "{text}");
        assert!(!text.contains("/gateway/gwp_orders"), "{text}");
    }

    #[test]
    fn configuration_over_tls_verifies_the_name_and_the_authority() {
        let policy = policy("edge", &["authorization:bearer"], &[]);
        for program in GatewayProgram::ALL {
            if program == GatewayProgram::Kubernetes {
                continue;
            }
            let plain = text(program, &policy, &["http://10.0.0.1:3000"]);
            let secure =
                text(program, &policy, &["https://10.0.0.1:3000", "https://10.0.0.2:3000"]);

            assert!(plain.contains("#tls") && !plain.contains("keys.internal"), "{plain}");
            for known in
                ["#tls", "#plain", "listens with TLS", "keyward.example", "ca-certificates"]
            {
                assert!(!secure.contains(known), "{known} of {program:?}: {secure}");
            }
            for part in ["10.0.0.2", "over TLS", "keys.internal", "/etc/keys-ca.pem"] {
                assert!(secure.contains(part), "{part} of {program:?}: {secure}");
            }
        }
        let nginx = text(GatewayProgram::Nginx, &policy, &["https://10.0.0.1:3000"]);
        assert!(
            nginx.contains("        proxy_pass https://keyward/gateway/edge?mode=nginx;\n"),
            "{nginx}"
        );
        assert!(!nginx.contains("http://keyward/"), "{nginx}");
    }

    #[test]
    fn no_list_of_headers_is_empty_when_keys_are_read_from_the_query() {
        let policy = policy("orders", &["query:k"], &[]);

        let text = text(GatewayProgram::Traefik, &policy, &["10.0.0.1:3000"]);

        assert!(text.contains("authRequestHeaders: [Authorization]"), "{text}");
    }

    #[test]
    fn every_program_is_found_by_its_name() {
        for program in GatewayProgram::ALL {
            assert_eq!(GatewayProgram::parse(program.name()), Some(program));
        }
        assert_eq!(GatewayProgram::parse("apache"), None);
    }
}
