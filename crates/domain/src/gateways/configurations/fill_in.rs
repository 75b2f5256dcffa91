//! Fills in a shipped file line by line.

use std::borrow::Cow;

use foundation::model::KeySource;

use super::{ConfigurationValues, KeywardTls, PUBLIC_AUTHORITIES, ServerAddress};

/// The beginning of the paragraph of a file that says what to replace, and the end of its last line.
const REPLACE_START: &str = "# Replace ";
const REPLACE_END: &str = ".md.";
/// The beginning of the paragraph that says what to change if Keyward listens with TLS.
const TLS_START: &str = "# If Keyward listens with TLS:";
/// The name in the certificates of Keyward.
const SERVER_NAME: &str = "keyward.example";

/// Returns the text of a shipped file with all values filled in. `policy` is what the gateway calls the policy: its name or id.
pub fn fill_in(shipped: &str, values: ConfigurationValues<'_>, policy: &str) -> String {
    let mut lines = Vec::new();
    let mut rest = shipped.lines().peekable();
    while let Some(line) = rest.next() {
        if line.starts_with(TLS_START) && values.keyward.tls.is_some() {
            // The paragraph, and the line that separates it from the one before.
            while rest.next_if(|line| line.starts_with("# ")).is_some() {}
            lines.pop();
        } else if line.starts_with(REPLACE_START) {
            let mut last = line;
            while !last.ends_with(REPLACE_END) {
                let Some(next) = rest.next() else { break };
                last = next;
            }
            lines.extend(describe(values, last));
        } else if is_comment(line) {
            lines.push(line.to_owned());
        } else if let Some(line) = choose_scheme(line, values.keyward.tls.as_ref()) {
            lines.extend(fill_in_line(&line, values, policy));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Returns a line as it stands with or without TLS to Keyward; absent: it is left out. The first marker begins lines to
/// uncomment with TLS, the second ends those to delete. Without TLS both stay, for whoever adds it later.
fn choose_scheme<'a>(line: &'a str, tls: Option<&KeywardTls>) -> Option<Cow<'a, str>> {
    let Some(tls) = tls else { return Some(line.into()) };
    if line.ends_with("#plain") {
        return None;
    }
    let Some((indent, text)) = line.split_once("#tls ") else { return Some(line.into()) };
    let text =
        text.replace(SERVER_NAME, &tls.server_name).replace(PUBLIC_AUTHORITIES, &tls.ca_file);
    Some(format!("{indent}{text}").into())
}

/// Returns whether a line is an explanation. `#open` and `#tls` begin lines that can be uncommented.
pub fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line == "#" || line.starts_with("# ") || line.starts_with("-- ")
}

/// Returns the paragraph that says what is filled in. `last` is the last line of the one that says what to replace, which
/// ends with the page to read.
fn describe(values: ConfigurationValues<'_>, last: &str) -> Vec<String> {
    let servers: Vec<_> = values.keyward.addresses.iter().map(ToString::to_string).collect();
    let servers = servers.join(", ");
    let over_tls = if values.keyward.tls.is_some() { " over TLS" } else { "" };
    let policy = &values.policy;
    let page = last.rsplit_once("See ").map_or("", |(_, page)| page);
    let service = match values.service {
        Some(service) => format!("# The service is at {service}. Replace"),
        None => "# Replace service:8080, the address of the service, and".to_owned(),
    };
    vec![
        format!(
            "# Filled in for the policy {} ({}), with Keyward at {servers}{over_tls}.",
            policy.name, policy.id
        ),
        format!("{service} 8080, the port on which this gateway listens. See {page}"),
    ]
}

/// The names in the shipped files that stand for a policy, a field of the meta of keys, the replicas and the service.
const POLICY_NAMES: [&str; 2] = ["/gateway/edge", "lua.keyward edge"];
/// In quotes, because a name may look like a number.
const GRPC_POLICY: &str = "value: \"edge\"";
const META_HEADER: &str = "Keyward-Meta-Plan";
const META_VARIABLE: &str = "keyward_meta_plan";
const FIRST_SERVER: &str = "keyward-1";
const SECOND_SERVER: &str = "keyward-2";
const SERVICE: &str = "service:8080";
const ENVOY_SERVICE: &str = "address: service, port_value: 8080";

/// Returns what a line becomes: none or more lines.
fn fill_in_line(line: &str, values: ConfigurationValues<'_>, policy: &str) -> Vec<String> {
    if line.contains(FIRST_SERVER) {
        let servers = values.keyward.addresses.iter().enumerate();
        return servers.map(|(at, server)| name_server(line, at, server)).collect();
    }
    if line.contains(SECOND_SERVER) {
        return Vec::new();
    }
    let meta = &values.policy.config.identity_headers.meta;
    if line.contains(META_HEADER) || line.contains(META_VARIABLE) {
        return meta.iter().map(|name| name_meta(line, name)).collect();
    }
    if let Some(lines) = list_key_headers(line, &values.policy.config.key_from) {
        return lines;
    }
    let mut line = line.to_owned();
    for name in POLICY_NAMES {
        line = line.replace(name, &name.replace("edge", policy));
    }
    line = line.replace(GRPC_POLICY, &format!("value: \"{policy}\""));
    if let Some(service) = values.service {
        line = line.replace(SERVICE, &service.to_string());
        line = line.replace(ENVOY_SERVICE, &envoy_address(service));
    }
    add_meta_to_list(line, meta)
}

fn name_server(line: &str, at: usize, server: &ServerAddress) -> String {
    let mut line = line.to_owned();
    for port in ["3000", "3001"] {
        let envoy = format!("address: {FIRST_SERVER}, port_value: {port}");
        line = line.replace(&envoy, &envoy_address(server));
    }
    line = line.replace(&format!("{FIRST_SERVER}:3000"), &server.to_string());
    // The name of a server in HAProxy.
    line.replace(FIRST_SERVER, &format!("keyward-{}", at + 1))
}

fn envoy_address(address: &ServerAddress) -> String {
    format!("address: {}, port_value: {}", quote_unless_plain(address.host()), address.port())
}

fn name_meta(line: &str, name: &str) -> String {
    let variable = format!("keyward_meta_{}", name.to_ascii_lowercase().replace('-', "_"));
    let line = line.replace(META_HEADER, &format!("Keyward-Meta-{name}"));
    line.replace(META_VARIABLE, &variable)
}

/// Adds the headers of fields of the meta to lists of the manifests for Kubernetes.
fn add_meta_to_list(line: String, meta: &[String]) -> Vec<String> {
    let last = "- keyward-credits-remaining";
    if line.trim() == last {
        let header = |name: &String| {
            line.replace(last, &format!("- keyward-meta-{}", name.to_ascii_lowercase()))
        };
        let added: Vec<_> = meta.iter().map(header).collect();
        return std::iter::once(line).chain(added).collect();
    }
    if line.trim().ends_with(",Keyward-Credits-Remaining") {
        let added: Vec<_> = meta.iter().map(|name| format!(",Keyward-Meta-{name}")).collect();
        return vec![line + &added.concat()];
    }
    vec![line]
}

/// If a line tells where keys are read, returns what it becomes for these sources. A key in the query is a part of the path
/// that every gateway tells.
fn list_key_headers(line: &str, sources: &[KeySource]) -> Option<Vec<String>> {
    let headers = key_headers(sources);
    let indent = &line[..line.len() - line.trim_start().len()];
    let list = |names: Vec<String>| names.join(", ");
    let in_yaml = || list(headers.iter().map(|name| quote_unless_plain(name)).collect());
    let canonical =
        || list(headers.iter().map(|name| quote_unless_plain(&to_canonical(name))).collect());
    let quoted = || list(headers.iter().map(|name| format!("\"{name}\"")).collect());
    let one = |text: String| Some(vec![format!("{indent}{text}")]);
    match line.trim() {
        "proxy_set_header Authorization $http_authorization;" => {
            Some(headers.iter().map(|name| format!("{indent}{}", nginx_header(name))).collect())
        }
        "proxy_set_header X-Api-Key $http_x_api_key;" => Some(Vec::new()),
        r#"local KEY_HEADERS = { "authorization", "x-api-key" }"# => {
            one(format!("local KEY_HEADERS = {{ {} }}", quoted()))
        }
        "authRequestHeaders: [Authorization, X-Api-Key]" => {
            one(format!("authRequestHeaders: [{}]", canonical()))
        }
        "patterns: [{ exact: authorization }, { exact: x-api-key }, { exact: x-forwarded-for }]" => {
            let exact = |name: &&str| format!("{{ exact: {} }}", quote_unless_plain(name));
            let exact = list(headers.iter().map(exact).collect());
            one(format!("patterns: [{exact}, {{ exact: x-forwarded-for }}]"))
        }
        "headersToExtAuth: [x-api-key, x-forwarded-for]" => {
            one(format!("headersToExtAuth: [{}, x-forwarded-for]", in_yaml()))
        }
        "includeRequestHeadersInCheck: [authorization, x-api-key, x-forwarded-for]" => {
            one(format!("includeRequestHeadersInCheck: [{}, x-forwarded-for]", in_yaml()))
        }
        _ => None,
    }
}

/// Returns the line with which nginx passes on a header of a client.
fn nginx_header(name: &str) -> String {
    let variable = name.replace('-', "_");
    match variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        true => format!("proxy_set_header {} $http_{variable};", to_canonical(name)),
        false => format!("# nginx has no variable for the header {name}."),
    }
}

/// Returns the names of the headers in which keys are sent, at least one: to some gateways, an empty list stands for all.
fn key_headers(sources: &[KeySource]) -> Vec<&str> {
    let mut headers = Vec::new();
    for source in sources {
        let header = match source {
            KeySource::Bearer => "authorization",
            KeySource::Header(name) => name,
            KeySource::Cookie(_) => "cookie",
            KeySource::Query(_) => continue,
        };
        if !headers.contains(&header) {
            headers.push(header);
        }
    }
    if headers.is_empty() {
        headers.push("authorization");
    }
    headers
}

/// Returns a name as YAML reads it as a text.
fn quote_unless_plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("\"{name}\""),
    }
}

/// Returns the name of a header as it is usually written, such as `X-Api-Key`.
fn to_canonical(name: &str) -> String {
    let part = |part: &str| match part.split_at_checked(1) {
        Some((first, rest)) => first.to_ascii_uppercase() + rest,
        None => String::new(),
    };
    name.split('-').map(part).collect::<Vec<_>>().join("-")
}
