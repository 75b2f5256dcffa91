//! Starts the server of a case so that requests reach it as the case says: directly, over gRPC, or through nginx.

use super::cases::{Case, Interface, Place};
use super::servers::{Lab, Process, Server, free_address, pinned, program};
use super::{Outcome, policy};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Names the address of the gRPC listener, for Keyward and for a ceiling.
pub const GRPC_LISTEN: &str = "KEYWARD_GRPC_LISTEN";

/// The configuration that Keyward ships for nginx.
const SHIPPED: &str = include_str!("../../deploy/gateways/nginx/keyward.conf");
/// The service behind nginx. It tells the client which key Keyward has found.
const SERVICE: &str = "location / { add_header x-key-id $http_keyward_key_id; return 200 ok; }";
/// A server that admits every request without looking at it.
const FIXED: &str = "location / { return 204; }";

/// nginx in front of a service, which asks a server about each request.
pub struct Nginx {
    /// It runs on the core of the server, and its processor time counts as the server's.
    pub gateway: Process,
    /// It runs on the core of the load, as if it had a machine of its own.
    pub service: Process,
}

impl Lab {
    /// Starts the server of a case and waits until it accepts connections.
    pub fn start_case(&self, case: &Case) -> Outcome<Server> {
        match case.interface {
            Interface::Operation | Interface::Gateway => {
                self.start_with(case.place, case.variables())
            }
            Interface::ExtAuthz | Interface::RateLimitService => start_grpc(self, case),
            Interface::Nginx => start_behind_nginx(self, case),
        }
    }
}

fn start_grpc(lab: &Lab, case: &Case) -> Outcome<Server> {
    let target = free_address()?;
    let listen = target.to_string();
    let mut variables: Vec<(&str, &str)> = case.variables().to_vec();
    variables.push((GRPC_LISTEN, &listen));
    let mut server = lab.start_with(case.place, &variables)?;
    server.process.wait_until(|| TcpStream::connect(target).is_ok())?;
    Ok(Server { target, ..server })
}

/// Starts the server of a case, a service, and nginx in front of both, as Keyward ships its configuration.
fn start_behind_nginx(lab: &Lab, case: &Case) -> Outcome<Server> {
    let server = match case.place {
        Place::Ceiling => {
            let (process, address) = start_nginx(lab, "fixed", lab.cores.server, |address| {
                Ok(format!("server {{ listen {address}; {FIXED} }}"))
            })?;
            Server { process, address, target: address, nginx: None }
        }
        Place::Embedded | Place::Replica => lab.start_with(case.place, case.variables())?,
    };
    let (service, service_address) = start_nginx(lab, "service", lab.cores.load, |address| {
        Ok(format!("server {{ listen {address}; {SERVICE} }}"))
    })?;
    let secret = lab.folder.path().join("gateway-secret.conf");
    let header = policy::secret(lab, case.place)?;
    write(&secret, &format!("proxy_set_header Keyward-Gateway-Secret \"{header}\";\n"))?;
    let (gateway, target) = start_nginx(lab, "gateway", lab.cores.server, |address| {
        fill_shipped(&[
            ("keyward-1:3000", &server.address.to_string()),
            ("service:8080", &service_address.to_string()),
            ("listen 8080;", &format!("listen {address};")),
            ("/etc/nginx/keyward-secret.conf", &secret.to_string_lossy()),
        ])
    })?;
    Ok(Server { target, nginx: Some(Nginx { gateway, service }), ..server })
}

/// Returns the shipped configuration for one server instead of two, with these texts replaced.
fn fill_shipped(replaced: &[(&str, &str)]) -> Outcome<String> {
    let of_one_server = SHIPPED.lines().filter(|line| !line.contains("server keyward-2:"));
    let mut text = of_one_server.collect::<Vec<_>>().join("\n");
    for (before, after) in replaced {
        if !text.contains(before) {
            return Err(format!("the shipped configuration of nginx does not contain {before}"));
        }
        text = text.replace(before, after);
    }
    Ok(text)
}

/// Starts nginx with one worker. `servers` returns the configuration for an address to listen on.
fn start_nginx(
    lab: &Lab,
    name: &'static str,
    core: usize,
    servers: impl Fn(SocketAddr) -> Outcome<String>,
) -> Outcome<(Process, SocketAddr)> {
    let address = free_address()?;
    let folder = lab.folder.path().join(format!("nginx-{name}-{}", address.port()));
    // The worker accesses this folder as another user.
    fs::create_dir(&folder)
        .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)))
        .map_err(|e| format!("{}: {e}", folder.display()))?;
    let place = folder.display();
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {place}/{kind};"));
    // A connection of the load generator is closed after a thousand requests otherwise.
    let main = format!(
        "daemon off; worker_processes 1; pid {place}/pid; error_log {place}/log warn;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; {}\n{}\n}}\n",
        paths.join(" "),
        servers(address)?
    );
    let file = folder.join("nginx.conf");
    write(&file, &main)?;
    let mut command = pinned(core, &find_nginx()?);
    command.arg("-c").arg(&file).arg("-p").arg(&folder).arg("-e").arg(folder.join("log"));
    let mut process = Process::start(name, command, folder.join("log"))?;
    process.wait_until(|| TcpStream::connect(address).is_ok())?;
    Ok((process, address))
}

/// Finds nginx, which Debian installs outside of an ordinary user's `PATH`.
pub fn find_nginx() -> Outcome<PathBuf> {
    let debian = PathBuf::from("/usr/sbin/nginx");
    program("nginx", "nginx")
        .or_else(|missing| if debian.is_file() { Ok(debian) } else { Err(missing) })
}

fn write(file: &std::path::Path, text: &str) -> Outcome<()> {
    fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
}
