//! The configuration of each gateway, filled in for a policy.

use domain::gateways::configurations::{
    ConfigurationFile, ConfigurationValues, GatewayProgram, KeywardServers, KeywardServersError,
    PUBLIC_AUTHORITIES, ServerAddress, TlsOptions, configuration,
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
    /// What the gateway verifies in certificates of Keyward. Absent: it does not use TLS.
    pub tls: Option<TlsView>,
    pub has_servers: bool,
    pub needs_grpc: bool,
    pub files: Vec<FileView>,
    pub errors: FormErrors,
}

/// The fields about the certificates of Keyward, as entered.
pub struct TlsView {
    pub server_name: String,
    pub ca_file: String,
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
        let has_servers = program != GatewayProgram::Kubernetes;
        let listens_with_tls = settings.server_tls.is_some() && has_servers;
        let tls = TlsOptions {
            server_name: Some(query.text("server-name").trim()).filter(|text| !text.is_empty()),
            ca_file: Some(query.text("ca-file").trim()).filter(|text| !text.is_empty()),
        };
        let read = read_addresses(&servers, &service, tls, listens_with_tls);
        let (addresses, errors) = match read {
            Ok(addresses) => (Some(addresses), FormErrors::default()),
            Err(errors) => (None, errors),
        };
        let tls = TlsView::new(addresses.as_ref().map(|(keyward, _)| keyward), tls, &errors);
        let files = addresses.map(|(keyward, service)| {
            let service = service.as_ref();
            let values = ConfigurationValues { policy, keyward: &keyward, service };
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
            has_servers,
            needs_grpc: program == GatewayProgram::EnvoyGrpc
                && settings.security.grpc_listen.is_none(),
            files: files.unwrap_or_default().into_iter().enumerate().map(file).collect(),
            servers,
            service,
            tls,
            errors,
        }
    }
}

impl TlsView {
    /// Creates the fields if the addresses use TLS, or if one of the fields is wrong.
    fn new(
        keyward: Option<&KeywardServers>,
        entered: TlsOptions<'_>,
        errors: &FormErrors,
    ) -> Option<Self> {
        let read = keyward.and_then(|keyward| keyward.tls.as_ref());
        if read.is_none() && !errors.has_error("server-name") && !errors.has_error("ca-file") {
            return None;
        }
        let server_name = read.map(|tls| tls.server_name.as_str()).or(entered.server_name);
        let ca_file = entered.ca_file.unwrap_or(PUBLIC_AUTHORITIES);
        Some(Self {
            server_name: server_name.unwrap_or_default().to_owned(),
            ca_file: ca_file.to_owned(),
        })
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

/// Keyward, and the address of the service if there is one.
type Addresses = (KeywardServers, Option<ServerAddress>);

fn read_addresses(
    servers: &str,
    service: &str,
    tls: TlsOptions<'_>,
    listens_with_tls: bool,
) -> Result<Addresses, FormErrors> {
    let error = |field: &str, rule: &str| FormErrors::single(field, format!("{field} {rule}"));
    let texts = super::fields::split_words(servers);
    if texts.len() > SERVERS_MAX {
        let sentence = format!("keyward must have at most {SERVERS_MAX} addresses");
        return Err(FormErrors::single("keyward", sentence));
    }
    let entered = texts.iter().map(|text| text.parse()).collect::<Result<_, _>>();
    let entered = entered.map_err(|rule: String| error("keyward", &rule))?;
    let keyward = KeywardServers::new(entered, tls, listens_with_tls);
    let keyward = keyward.map_err(|rule| error(field_of(rule), &rule.rule()))?;
    let service = (!service.is_empty()).then(|| service.parse()).transpose();
    let service = service.map_err(|rule: String| error("service", &rule))?;
    Ok((keyward, service))
}

/// Returns the field in which a rule is broken.
fn field_of(error: KeywardServersError) -> &'static str {
    match error {
        KeywardServersError::MixedSchemes => "keyward",
        KeywardServersError::ServerNameMissing | KeywardServersError::ServerNameInvalid => {
            "server-name"
        }
        KeywardServersError::CaFileInvalid => "ca-file",
    }
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
    let listens_with_tls = settings.server_tls.is_some();
    let tls = if listens_with_tls { "https://" } else { "" };
    match program {
        GatewayProgram::EnvoyGrpc => {
            let port = settings.security.grpc_listen.map_or(GRPC_PORT, |listen| listen.port());
            format!("{tls}{host}:{port}")
        }
        _ if scheme == "http" && !listens_with_tls => format!("{host}:{port}"),
        _ => format!("{tls}{host}:{}", settings.listen.port()),
    }
}

#[cfg(test)]
mod tests {
    use foundation::config::Config;
    use foundation::tls::server::CertificateFiles;

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
        settings.server_tls =
            Some(CertificateFiles { certificate: "cert.pem".into(), key: "key.pem".into() });
        let server = |program| default_server(&settings, program);
        assert_eq!(
            [server(GatewayProgram::Nginx), server(GatewayProgram::EnvoyGrpc)],
            ["https://keys.example:3000", "https://keys.example:3001"]
        );
    }

    #[test]
    fn addresses_are_rejected_when_one_is_invalid_or_there_are_too_many() {
        let read = |servers: &str, service: &str| {
            read_addresses(servers, service, TlsOptions::default(), false)
        };
        let count = |servers: &str| read(servers, "").map(|(keyward, _)| keyward.addresses.len());

        assert_eq!(count("a:1, b:2 c:3").ok(), Some(3));
        assert_eq!(count(&"a:1 ".repeat(16)).ok(), Some(16));
        assert!(count(&"a:1 ".repeat(17)).is_err_and(|errors| errors.has_error("keyward")));
        assert!(count("a:1 b").is_err_and(|errors| errors.has_error("keyward")));
        assert!(read("a:1", "b").is_err_and(|errors| errors.has_error("service")));
        assert!(read("a:1", "b:2").is_ok_and(|(_, service)| service.is_some()));
    }
}
