//! The configuration of each gateway, filled in for a policy.

use domain::gateways::configurations::{
    ConfigurationFile, ConfigurationValues, GatewayProgram, ServerAddress, configuration,
};
use foundation::config::Settings;
use foundation::model::GatewayPolicy;

use super::super::form::FormErrors;
use super::super::page_request::WorkspaceRequest;
use super::policy_path;

/// The number of replicas that a configuration names.
const SERVERS_MAX: usize = 16;
/// The port that Envoy asks if the gRPC listener is off.
const GRPC_PORT: u16 = 3001;

/// The section with a configuration.
pub struct ConfigurationView {
    pub tabs: Vec<ProgramTab>,
    /// The name of the selected gateway, as in URLs.
    pub program: &'static str,
    /// Where the secret of the policy is put, and the line with it; empty if the gateway cannot read one.
    pub secret_place: &'static str,
    pub secret_line: &'static str,
    /// The address of Keyward, as entered; empty if the files do not name one.
    pub servers: String,
    pub service: String,
    pub has_servers: bool,
    pub needs_grpc: bool,
    pub files: Vec<FileView>,
    pub errors: FormErrors,
}

pub struct ProgramTab {
    pub title: &'static str,
    pub path: String,
    pub is_current: bool,
}

pub struct FileView {
    /// Identifies the file in the page.
    pub id: String,
    pub name: &'static str,
    pub install_path: Option<&'static str>,
    pub text: String,
}

impl ConfigurationView {
    /// Creates the section from the query: the gateway and the addresses.
    pub fn new(request: &WorkspaceRequest, policy: &GatewayPolicy) -> Self {
        let query = &request.page_request.query;
        let program = GatewayProgram::parse(query.text("for")).unwrap_or(GatewayProgram::Nginx);
        let settings = &request.page_request.app.context.settings;
        let servers = match query.text("keyward").trim() {
            "" => default_server(settings, program),
            text => text.to_owned(),
        };
        let service = query.text("service").trim().to_owned();
        let read = read_addresses(&servers, &service);
        let (addresses, errors) = match read {
            Ok(addresses) => (Some(addresses), FormErrors::default()),
            Err(errors) => (None, errors),
        };
        let files = addresses.map(|(servers, service)| {
            let service = service.as_ref();
            let values = ConfigurationValues { policy, servers: &servers, service };
            configuration(program, values)
        });
        let file = |(at, file): (usize, ConfigurationFile)| {
            let (name, install_path, text) = (file.name, file.install_path, file.text);
            FileView { id: format!("file-{at}"), name, install_path, text }
        };
        let path = policy_path(request, &policy.id);
        let tab = |of: GatewayProgram| ProgramTab {
            title: of.title(),
            path: format!("{path}?for={}#configuration", of.name()),
            is_current: of == program,
        };
        let (secret_place, secret_line) = secret_place(program);
        Self {
            tabs: GatewayProgram::ALL.into_iter().map(tab).collect(),
            program: program.name(),
            secret_place,
            secret_line,
            has_servers: program != GatewayProgram::Kubernetes,
            needs_grpc: program == GatewayProgram::EnvoyGrpc
                && settings.security.grpc_listen.is_none(),
            files: files.unwrap_or_default().into_iter().enumerate().map(file).collect(),
            servers,
            service,
            errors,
        }
    }
}

/// Returns where a gateway reads the secret of its policy, and the line with it.
fn secret_place(program: GatewayProgram) -> (&'static str, &'static str) {
    match program {
        GatewayProgram::Nginx => (
            "Put the secret into /etc/nginx/keyward-secret.conf, readable only by root:",
            "proxy_set_header Keyward-Gateway-Secret \"SECRET\";",
        ),
        GatewayProgram::HaProxy
        | GatewayProgram::Caddy
        | GatewayProgram::Traefik
        | GatewayProgram::Envoy
        | GatewayProgram::EnvoyGrpc => {
            ("Put the secret into the environment of the gateway:", "KEYWARD_GATEWAY_SECRET=SECRET")
        }
        GatewayProgram::Kubernetes => (
            "These gateways cannot read a secret. Add the network of the pods to the trusted networks, in the \
            settings of this policy, and let only the gateways reach Keyward.",
            "",
        ),
    }
}

/// The addresses of Keyward, and of the service if there is one.
type Addresses = (Vec<ServerAddress>, Option<ServerAddress>);

fn read_addresses(servers: &str, service: &str) -> Result<Addresses, FormErrors> {
    let parse = |field: &str, text: &str| {
        let parsed = text.parse::<ServerAddress>();
        parsed.map_err(|rule| FormErrors::single(field, format!("{field} {rule}")))
    };
    let texts = super::fields::split_words(servers);
    if texts.len() > SERVERS_MAX {
        let sentence = format!("keyward must have at most {SERVERS_MAX} addresses");
        return Err(FormErrors::single("keyward", sentence));
    }
    let servers = texts.iter().map(|text| parse("keyward", text)).collect::<Result<_, _>>()?;
    let service = (!service.is_empty()).then(|| parse("service", service)).transpose()?;
    Ok((servers, service))
}

/// Returns the address of this server as far as it is known: the host of its public URL. Behind a proxy for https, gateways
/// reach the port on which it listens.
fn default_server(settings: &Settings, program: GatewayProgram) -> String {
    let url = settings.public_url.as_str();
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split('/').next().unwrap_or_default();
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => (host, port),
        _ => (authority, "80"),
    };
    match program {
        GatewayProgram::EnvoyGrpc => {
            let port = settings.security.grpc_listen.map_or(GRPC_PORT, |listen| listen.port());
            format!("{host}:{port}")
        }
        _ if scheme == "http" => format!("{host}:{port}"),
        _ => format!("{host}:{}", settings.listen.port()),
    }
}

#[cfg(test)]
mod tests {
    use foundation::config::Config;

    use super::*;

    #[test]
    fn default_server_is_the_host_of_the_public_url_with_a_port_for_gateways() {
        let mut settings = Config::default().validate().expect("valid settings");
        for (url, http, grpc) in [
            ("http://10.0.0.5:3000", "10.0.0.5:3000", "10.0.0.5:3001"),
            ("http://keys.example", "keys.example:80", "keys.example:3001"),
            ("http://[::1]:3000", "[::1]:3000", "[::1]:3001"),
            ("http://[::1]", "[::1]:80", "[::1]:3001"),
            ("https://keys.example", "keys.example:3000", "keys.example:3001"),
            ("https://keys.example:8443", "keys.example:3000", "keys.example:3001"),
        ] {
            url.clone_into(&mut settings.public_url);
            let server = |program| default_server(&settings, program);
            assert_eq!(
                [server(GatewayProgram::Nginx), server(GatewayProgram::EnvoyGrpc)],
                [http, grpc]
            );
        }
    }

    #[test]
    fn addresses_are_rejected_when_one_is_invalid_or_there_are_too_many() {
        let count = |servers: &str| read_addresses(servers, "").map(|(servers, _)| servers.len());

        assert_eq!(count("a:1, b:2 c:3").ok(), Some(3));
        assert_eq!(count(&"a:1 ".repeat(16)).ok(), Some(16));
        assert!(count(&"a:1 ".repeat(17)).is_err_and(|errors| errors.has_error("keyward")));
        assert!(count("a:1 b").is_err_and(|errors| errors.has_error("keyward")));
        assert!(read_addresses("a:1", "b").is_err_and(|errors| errors.has_error("service")));
        assert!(read_addresses("a:1", "b:2").is_ok_and(|(_, service)| service.is_some()));
    }
}
