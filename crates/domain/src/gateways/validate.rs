//! The bounds and rules of the fields of a gateway policy.

use foundation::clock::DAY_MS;
use foundation::error::{Error, FieldError, Result};
use foundation::id::GatewayPolicyId;
use foundation::model::{
    GatewayLimit, GatewayNamespace, GatewayPolicyConfig, GatewayRule, IdentityHeaders, Networks,
    is_header_name_part, is_token,
};

use url::Url;

use super::path_pattern::PathPattern;
use crate::bounds::{CHECK_DURATION_MAX_MS, DURATION_MIN_MS};
use crate::keys::AD_HOC_DURATION_MAX_MS;
use crate::names;
use crate::query::PermissionQuery;

/// The length of the name of a policy.
pub const NAME_MAX: usize = 128;
/// The number of APIs of a policy.
pub const API_IDS_MAX: usize = 100;
/// The number of places where the key is read.
pub const KEY_SOURCES_MAX: usize = 10;
/// The number of rules of a policy.
pub const RULES_MAX: usize = 100;
/// The number of methods of a rule.
pub const RULE_METHODS_MAX: usize = 20;
/// The length of a path pattern.
pub const PATH_MAX: usize = 1024;
/// The length of the permission query of a rule.
pub const RULE_PERMISSIONS_MAX: usize = 1000;
/// The credits that a request costs.
pub const RULE_COST_MAX: i64 = 1_000_000_000_000;
/// The number of rate limits of a rule.
pub const RULE_LIMITS_MAX: usize = 20;
/// The length of the name of a rate limit.
pub const LIMIT_NAME_MIN: usize = 3;
pub const LIMIT_NAME_MAX: usize = 255;
/// The number of tags of a rule, and the length of each.
pub const RULE_TAGS_MAX: usize = 20;
pub const TAG_MAX: usize = 512;
/// The number of fields of the meta that have a header.
pub const META_HEADERS_MAX: usize = 20;
/// The number of networks from which no secret is required.
pub const ALLOW_FROM_MAX: usize = Networks::MAX;
/// The number of namespaces that the rate-limit service may use.
pub const NAMESPACES_MAX: usize = 100;
/// The length of the URLs of a resource and of authorization servers.
pub const URL_MAX: usize = 1024;
/// The number of authorization servers of a policy.
pub const AUTHORIZATION_SERVERS_MAX: usize = 10;
/// How long the previous secret may stay valid after a rotation.
pub const SECRET_GRACE_MAX_MS: i64 = 7 * DAY_MS;

/// The headers that tell the upstream who calls, besides those of fields of the meta.
pub const BASE_IDENTITY_HEADERS: [&str; 8] = [
    "Keyward-Key-Id",
    "Keyward-Api-Id",
    "Keyward-External-Id",
    "Keyward-Identity-Id",
    "Keyward-Permissions",
    "Keyward-Roles",
    "Keyward-Environment",
    "Keyward-Request-Id",
];

/// Collects the invalid fields of a policy.
#[derive(Default)]
struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// Adds an error unless the value is valid. `field` is the caller's name of the field.
    fn require(&mut self, is_valid: bool, field: &str, rule: impl AsRef<str>) {
        if !is_valid {
            let message = format!("{field} {}", rule.as_ref());
            self.0.push(FieldError { location: to_location(field), message, fix: None });
        }
    }

    fn require_at_most(&mut self, count: usize, max: usize, field: &str) {
        self.require(count <= max, field, format!("must have at most {max} items"));
    }
}

/// Returns the location of a field in the schema, for `rules[1].path` `/properties/rules/items/properties/path`.
fn to_location(field: &str) -> String {
    field
        .split('.')
        .map(|part| match part.split_once('[') {
            Some((list, _)) => format!("/properties/{list}/items"),
            None => format!("/properties/{part}"),
        })
        .collect()
}

/// Validates the name and the settings of a policy. The error lists all invalid fields.
pub fn validate(name: &str, config: &GatewayPolicyConfig) -> Result<()> {
    let mut errors = FieldErrors::default();
    let length = format!("must have 1 to {NAME_MAX} letters, digits, `.`, `_` and `-`");
    errors.require(is_policy_name(name), "name", length);
    let prefix = format!("must not begin with `{}` as ids do", GatewayPolicyId::PREFIX);
    errors.require(!is_like_id(name), "name", prefix);
    errors.require(!config.api_ids.is_empty(), "apiIds", "must have at least 1 item");
    errors.require_at_most(config.api_ids.len(), API_IDS_MAX, "apiIds");
    errors.require(!config.key_from.is_empty(), "keyFrom", "must have at least 1 item");
    errors.require_at_most(config.key_from.len(), KEY_SOURCES_MAX, "keyFrom");
    errors.require_at_most(config.rules.len(), RULES_MAX, "rules");
    for (at, rule) in config.rules.iter().enumerate() {
        validate_rule(&mut errors, &format!("rules[{at}]"), rule);
    }
    validate_identity_headers(&mut errors, &config.identity_headers);
    errors.require_at_most(config.allow_from.len(), ALLOW_FROM_MAX, "allowFrom");
    errors.require_at_most(config.namespaces.len(), NAMESPACES_MAX, "namespaces");
    for (at, namespace) in config.namespaces.iter().enumerate() {
        let is_first = |other: &GatewayNamespace| other.namespace != namespace.namespace;
        let field = format!("namespaces[{at}]");
        let is_new = config.namespaces.iter().take(at).all(is_first);
        errors.require(is_new, &field, "must not name a namespace twice");
        validate_namespace(&mut errors, &field, namespace);
    }
    if !config.resource.is_empty() {
        validate_url(&mut errors, "resource", &config.resource);
    }
    let servers = &config.authorization_servers;
    errors.require_at_most(servers.len(), AUTHORIZATION_SERVERS_MAX, "authorizationServers");
    for (at, server) in servers.iter().enumerate() {
        validate_url(&mut errors, &format!("authorizationServers[{at}]"), server);
    }
    if errors.0.is_empty() { Ok(()) } else { Err(Error::Invalid(errors.0)) }
}

/// Returns whether a text can be the name of a policy, which stands in the paths of gateways.
pub(super) fn is_policy_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && !name.chars().all(|c| c == '.')
}

/// Returns whether a name begins as the ids of policies do. A policy cannot get such a name, which may be the id of a policy of
/// another workspace. One that was stored before stands for nothing: its policy is found by its id alone.
pub fn is_like_id(name: &str) -> bool {
    name.starts_with(GatewayPolicyId::PREFIX)
}

/// Validates the URL of a resource or an issuer, as RFC 9728 and RFC 8414 require it.
fn validate_url(errors: &mut FieldErrors, field: &str, text: &str) {
    let is_short = text.len() <= URL_MAX;
    errors.require(is_short, field, format!("must have at most {URL_MAX} characters"));
    let is_valid = Url::parse(text).is_ok_and(|url| {
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        url.scheme() == "https" && url.has_host() && url.fragment().is_none() && !has_credentials
    });
    let rule = "must be an https URL without a fragment and without credentials";
    errors.require(is_valid, field, rule);
}

fn validate_rule(errors: &mut FieldErrors, field: &str, rule: &GatewayRule) {
    errors.require_at_most(rule.methods.len(), RULE_METHODS_MAX, &format!("{field}.methods"));
    let is_method = |method: &String| is_token(method) && !method.contains(char::is_lowercase);
    let are_methods = rule.methods.iter().all(is_method);
    errors.require(are_methods, &format!("{field}.methods"), "must be HTTP methods in upper case");
    if let Some(path) = &rule.path {
        let field = format!("{field}.path");
        let is_short = path.chars().count() <= PATH_MAX;
        errors.require(is_short, &field, format!("must have at most {PATH_MAX} characters"));
        if let Err(reason) = PathPattern::parse(path) {
            errors.require(false, &field, reason);
        }
    }
    if let Some(query) = &rule.permissions
        && let Err(reason) = PermissionQuery::Text(query.clone()).is_satisfied(|_| false)
    {
        errors.require(false, &format!("{field}.permissions"), format!("is not valid: {reason}"));
    }
    for (at, limit) in rule.ratelimits.iter().enumerate() {
        validate_limit(errors, &format!("{field}.ratelimits[{at}]"), limit);
    }
}

fn validate_limit(errors: &mut FieldErrors, field: &str, limit: &GatewayLimit) {
    let is_whole = limit.limit.is_some() == limit.duration.is_some();
    errors.require(is_whole, field, "must have both `limit` and `duration`, or neither");
    if let Some(duration) = limit.duration {
        let bounds = DURATION_MIN_MS..=AD_HOC_DURATION_MAX_MS;
        let rule = format!("must be from {DURATION_MIN_MS} to {AD_HOC_DURATION_MAX_MS}");
        errors.require(bounds.contains(&duration), &format!("{field}.duration"), rule);
    }
}

fn validate_identity_headers(errors: &mut FieldErrors, headers: &IdentityHeaders) {
    let field = "identityHeaders.headers";
    let is_known = |name: &String| {
        BASE_IDENTITY_HEADERS.iter().any(|known| known.eq_ignore_ascii_case(name.as_str()))
    };
    let are_known = headers.headers.as_ref().is_none_or(|names| names.iter().all(is_known));
    let known = BASE_IDENTITY_HEADERS.join(", ");
    errors.require(are_known, field, format!("must be among {known}"));
    let field = "identityHeaders.meta";
    errors.require_at_most(headers.meta.len(), META_HEADERS_MAX, field);
    let are_names = headers.meta.iter().all(|name| is_header_name_part(name));
    let rule = "must be names of 1 to 64 letters, digits, `-` and `_`";
    errors.require(are_names, field, rule);
}

fn validate_namespace(errors: &mut FieldErrors, field: &str, namespace: &GatewayNamespace) {
    let name = &namespace.namespace;
    let is_name = names::validate("namespace", name).is_ok() && !name.is_empty();
    errors.require(is_name, &format!("{field}.namespace"), "must be the name of a namespace");
    if let Some(default) = namespace.default_limit {
        let field = format!("{field}.defaultLimit");
        errors.require(default.limit >= 0, &format!("{field}.limit"), "must be at least 0");
        let bounds = DURATION_MIN_MS..=CHECK_DURATION_MAX_MS;
        let rule = format!("must be from {DURATION_MIN_MS} to {CHECK_DURATION_MAX_MS}");
        errors.require(bounds.contains(&default.duration), &format!("{field}.duration"), rule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid_fields(name: &str, config: serde_json::Value) -> Vec<String> {
        let config = serde_json::from_value(config).expect("a config");
        match validate(name, &config) {
            Ok(()) => Vec::new(),
            Err(Error::Invalid(errors)) => {
                let field = |error: FieldError| {
                    error.message.split(' ').next().unwrap_or_default().to_owned()
                };
                errors.into_iter().map(field).collect()
            }
            Err(other) => vec![other.to_string()],
        }
    }

    fn config_with(field: &str, value: serde_json::Value) -> serde_json::Value {
        let mut config = serde_json::json!({
            "apiIds": ["api_1"], "keyFrom": ["authorization:bearer"]
        });
        config[field] = value;
        config
    }

    #[test]
    fn policy_is_rejected_when_a_field_is_out_of_bounds() {
        use serde_json::json;

        let repeat = |value: serde_json::Value, count: usize| json!(vec![value; count]);
        let rule = |rule: serde_json::Value| json!([rule]);
        let limit = |limit: i64, duration: i64| json!({ "name": "l", "limit": limit, "duration": duration });
        for (field, valid, invalid, reported) in [
            ("apiIds", repeat(json!("a"), 100), repeat(json!("a"), 101), "apiIds"),
            ("apiIds", repeat(json!("a"), 1), json!([]), "apiIds"),
            ("keyFrom", repeat(json!("query:k"), 10), repeat(json!("query:k"), 11), "keyFrom"),
            ("keyFrom", repeat(json!("query:k"), 1), json!([]), "keyFrom"),
            ("rules", repeat(json!({}), 100), repeat(json!({}), 101), "rules"),
            (
                "rules",
                rule(json!({ "methods": vec!["GET"; 20] })),
                rule(json!({ "methods": vec!["GET"; 21] })),
                "rules[0].methods",
            ),
            (
                "rules",
                rule(json!({ "methods": ["PROPFIND"] })),
                rule(json!({ "methods": ["get"] })),
                "rules[0].methods",
            ),
            (
                "rules",
                rule(json!({ "path": format!("/{}", "a".repeat(1023)) })),
                rule(json!({ "path": format!("/{}", "a".repeat(1024)) })),
                "rules[0].path",
            ),
            (
                "rules",
                rule(json!({ "path": "/a/*" })),
                rule(json!({ "path": "a" })),
                "rules[0].path",
            ),
            (
                "rules",
                rule(json!({ "permissions": "a AND b" })),
                rule(json!({ "permissions": "a AND" })),
                "rules[0].permissions",
            ),
            (
                "rules",
                rule(json!({ "ratelimits": [limit(1, 1000)] })),
                rule(json!({ "ratelimits": [limit(1, 999)] })),
                "rules[0].ratelimits[0].duration",
            ),
            (
                "rules",
                rule(json!({ "ratelimits": [{ "name": "l" }] })),
                rule(json!({ "ratelimits": [{ "name": "l", "limit": 1 }] })),
                "rules[0].ratelimits[0]",
            ),
            (
                "identityHeaders",
                json!({ "headers": ["keyward-key-id"] }),
                json!({ "headers": ["Keyward-Name"] }),
                "identityHeaders.headers",
            ),
            (
                "identityHeaders",
                json!({ "meta": vec!["plan"; 20] }),
                json!({ "meta": vec!["plan"; 21] }),
                "identityHeaders.meta",
            ),
            (
                "identityHeaders",
                json!({ "meta": ["a".repeat(64)] }),
                json!({ "meta": ["a".repeat(65)] }),
                "identityHeaders.meta",
            ),
            (
                "allowFrom",
                repeat(json!("10.0.0.0/8"), 100),
                repeat(json!("10.0.0.0/8"), 101),
                "allowFrom",
            ),
            (
                "resource",
                json!(format!("https://a/{}", "a".repeat(1014))),
                json!(format!("https://a/{}", "a".repeat(1015))),
                "resource",
            ),
            ("resource", json!(""), json!("http://a.example/mcp"), "resource"),
            ("resource", json!("https://a.example/mcp"), json!("https://a.example/#b"), "resource"),
            (
                "resource",
                json!("https://a.example:1/b?c"),
                json!("https://u@a.example/"),
                "resource",
            ),
            (
                "authorizationServers",
                repeat(json!("https://a.example"), 10),
                repeat(json!("https://a.example"), 11),
                "authorizationServers",
            ),
            (
                "authorizationServers",
                json!(["https://a.example"]),
                json!(["https://a.example", "a.example"]),
                "authorizationServers[1]",
            ),
            (
                "namespaces",
                json!([{ "namespace": "a" }, { "namespace": "b" }]),
                json!([{ "namespace": "a" }, { "namespace": "a" }]),
                "namespaces[1]",
            ),
            (
                "namespaces",
                json!([{ "namespace": "a", "defaultLimit": { "limit": 0, "duration": 1000 } }]),
                json!([{ "namespace": "a", "defaultLimit": { "limit": 0, "duration": 999 } }]),
                "namespaces[0].defaultLimit.duration",
            ),
        ] {
            assert!(invalid_fields("p", config_with(field, valid)).is_empty(), "{reported}");
            assert_eq!(invalid_fields("p", config_with(field, invalid)), [reported]);
        }
    }

    #[test]
    fn policy_is_rejected_when_its_name_does_not_fit_into_a_path() {
        let config = || config_with("rules", serde_json::json!([]));
        for name in ["a", "Team-1_eu.v2", &"a".repeat(128)] {
            assert!(invalid_fields(name, config()).is_empty(), "{name}");
        }
        for name in ["", "a b", "a/b", ".", "..", "\u{e9}", &"a".repeat(129)] {
            assert_eq!(invalid_fields(name, config()), ["name"], "{name}");
        }
    }

    #[test]
    fn policy_is_rejected_when_its_name_begins_as_ids_do() {
        let config = || config_with("rules", serde_json::json!([]));
        for name in ["gwp", "gwp-1", "my_gwp_1"] {
            assert!(invalid_fields(name, config()).is_empty(), "{name}");
        }
        for name in ["gwp_", "gwp_1", GatewayPolicyId::random().as_str()] {
            assert_eq!(invalid_fields(name, config()), ["name"], "{name}");
        }
    }
}
