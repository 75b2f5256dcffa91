//! `keyward gateway config`: the configuration of a gateway, filled in for a policy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use domain::gateways;
use domain::gateways::configurations::{
    ConfigurationFile, ConfigurationValues, GatewayProgram, KeywardAddress, KeywardServers,
    KeywardServersError, ServerAddress, TlsOptions, configuration,
};
use foundation::config::Settings;
use serde_json::{Value, json};

use super::operator::Operator;
use super::output::{CommandOutput, print_line};
use super::{CommandError, CommandResult};

/// The port of the gRPC listener in the documentation.
const GRPC_PORT: u16 = 3001;

#[derive(Args)]
pub struct ConfigurationOptions {
    /// ID or name of the policy
    policy: String,
    /// Choose the gateway
    #[arg(long = "for", value_name = "GATEWAY", value_parser = program_parser())]
    program: GatewayProgram,
    /// Set the address at which the gateway reaches Keyward, such as 10.0.0.5:3000; repeatable. With http:// or https://
    /// before it, the gateway uses no TLS or TLS; otherwise as this server [default: the listening address]
    #[arg(long = "address", value_name = "HOST:PORT")]
    addresses: Vec<KeywardAddress>,
    /// Set the DNS name that the gateway verifies in certificates of Keyward, with TLS [default: the host of the first
    /// address]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Set the file in which the gateway finds the certificates of the authorities of Keyward, with TLS [default:
    /// /etc/ssl/certs/ca-certificates.crt]
    #[arg(long, value_name = "PATH")]
    ca_file: Option<String>,
    /// Set the address of the service behind the gateway [default: service:8080, to be replaced]
    #[arg(long, value_name = "HOST:PORT")]
    service: Option<ServerAddress>,
    /// Write the files to this directory, and replace existing ones
    #[arg(long)]
    directory: Option<PathBuf>,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
}

/// Parses the name of a gateway. The help lists the names.
fn program_parser() -> impl TypedValueParser<Value = GatewayProgram> {
    let names = GatewayProgram::ALL.map(GatewayProgram::name);
    PossibleValuesParser::new(names)
        .try_map(|name| GatewayProgram::parse(&name).ok_or("is not a gateway"))
}

pub async fn run(
    settings: Settings,
    out: CommandOutput,
    options: ConfigurationOptions,
) -> CommandResult {
    let keyward = servers(&settings, &options)?;
    let ConfigurationOptions { policy, program, service, directory, workspace, .. } = options;
    let Operator { app, caller } = Operator::open(settings, &workspace).await?;
    let policy = gateways::get(&app.context, &caller, &policy).await?;
    app.context.close_store().await;
    let values =
        ConfigurationValues { policy: &policy, keyward: &keyward, service: service.as_ref() };
    let files = configuration(program, values);
    match directory {
        None => print_files(out, &files),
        Some(directory) => {
            write_files(&directory, &files)?;
            let names: Vec<_> = files.iter().map(|file| file.name).collect();
            let text = format!("wrote {} to {}", names.join(", "), directory.display());
            out.write(&text, &json!({ "files": names, "directory": directory }));
        }
    }
    Ok(())
}

/// Returns the servers that the options name, or the one on this machine.
fn servers(
    settings: &Settings,
    options: &ConfigurationOptions,
) -> Result<KeywardServers, CommandError> {
    let ConfigurationOptions { program, addresses, service, server_name, ca_file, .. } = options;
    let usage = |sentence: String| CommandError::Usage(sentence);
    let tls = TlsOptions { server_name: server_name.as_deref(), ca_file: ca_file.as_deref() };
    let has_tls_options = server_name.is_some() || ca_file.is_some();
    let is_cluster = *program == GatewayProgram::Kubernetes;
    if is_cluster && (!addresses.is_empty() || service.is_some() || has_tls_options) {
        let sentence = "--address, --service, --server-name and --ca-file are not used with --for kubernetes: the manifests \
            name the Services keyward and service";
        return Err(usage(sentence.to_owned()));
    }
    let entered = match addresses.is_empty() {
        true => vec![KeywardAddress::without_scheme(default_address(settings, *program))],
        false => addresses.clone(),
    };
    let listens_with_tls = settings.server_tls.is_some() && !is_cluster;
    let servers = KeywardServers::new(entered, tls, listens_with_tls).map_err(|error| {
        let option = match error {
            KeywardServersError::MixedSchemes => "--address",
            KeywardServersError::ServerNameMissing | KeywardServersError::ServerNameInvalid => {
                "--server-name"
            }
            KeywardServersError::CaFileInvalid => "--ca-file",
        };
        usage(format!("{option} {}", error.rule()))
    })?;
    if servers.tls.is_none() && has_tls_options {
        let sentence = "--server-name and --ca-file are used only with TLS: pass --address with https:// before it";
        return Err(usage(sentence.to_owned()));
    }
    Ok(servers)
}

/// Returns the address of the server on this machine.
fn default_address(settings: &Settings, program: GatewayProgram) -> ServerAddress {
    let grpc = settings.security.grpc_listen;
    let mut address = match program {
        GatewayProgram::EnvoyGrpc => {
            grpc.unwrap_or_else(|| SocketAddr::new(settings.listen.ip(), GRPC_PORT))
        }
        GatewayProgram::Nginx
        | GatewayProgram::HaProxy
        | GatewayProgram::Caddy
        | GatewayProgram::Traefik
        | GatewayProgram::Envoy
        | GatewayProgram::Kubernetes => settings.listen,
    };
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    address.into()
}

fn write_files(directory: &Path, files: &[ConfigurationFile]) -> CommandResult {
    let write = || {
        std::fs::create_dir_all(directory)?;
        files.iter().try_for_each(|file| std::fs::write(directory.join(file.name), &file.text))
    };
    write().map_err(|e| {
        let directory = directory.display();
        CommandError::Runtime(format!("failed to write the configuration to {directory}: {e}"))
    })
}

/// Prints one file as it is, and several with their names between them, as `head` does.
fn print_files(out: CommandOutput, files: &[ConfigurationFile]) {
    if out.json {
        let file = |file: &ConfigurationFile| json!({ "name": file.name, "installPath": file.install_path, "text": file.text });
        return out.write("", &Value::Array(files.iter().map(file).collect()));
    }
    for file in files {
        if files.len() > 1 {
            print_line(&format!("==> {} <==", file.name));
        }
        print_line(file.text.trim_end());
    }
}
