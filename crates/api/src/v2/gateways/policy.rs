//! The fields of a gateway policy in requests and replies.

use domain::gateways::{
    ALLOW_FROM_MAX, API_IDS_MAX, AUTHORIZATION_SERVERS_MAX, KEY_SOURCES_MAX, LIMIT_NAME_MAX,
    LIMIT_NAME_MIN, META_HEADERS_MAX, NAME_MAX, NAMESPACES_MAX, PATH_MAX, RULE_COST_MAX,
    RULE_LIMITS_MAX, RULE_METHODS_MAX, RULE_PERMISSIONS_MAX, RULE_TAGS_MAX, RULES_MAX, TAG_MAX,
    URL_MAX,
};
use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use foundation::id::{ApiId, GatewayPolicyId};
use foundation::model::{
    DefaultLimit, EnforcementMode, FailureFormat, GatewayLimit, GatewayNamespace, GatewayPolicy,
    GatewayRule, IdentityHeaders, KeySource, Networks,
};
use ipnet::IpNet;

use crate::bounds::AnyChar;
use crate::prelude::*;
use crate::schemas::{UnsignedInt, WindowLength, into_strings};
use crate::v2::schemas::NamespaceOrIdentifier;

/// The name of a policy: letters, digits, `.`, `_` and `-`.
pub type PolicyName = Text<1, NAME_MAX, Printable>;
/// The id or name of a policy.
pub type PolicyIdOrName = Text<1, NAME_MAX>;
pub type ApiIds = List<Id, 1, API_IDS_MAX>;
pub type KeySources = List<Text<1, 256, AnyChar>, 1, KEY_SOURCES_MAX>;
pub type Rules = List<Object<Rule>, 0, RULES_MAX>;
pub type AllowFrom = List<Text<2, 64, AnyChar>, 0, ALLOW_FROM_MAX>;
/// An https URL, or empty.
pub type ResourceUrl = Text<0, URL_MAX>;
pub type AuthorizationServers = List<Text<1, URL_MAX>, 0, AUTHORIZATION_SERVERS_MAX>;
pub type Namespaces = List<Object<Namespace>, 0, NAMESPACES_MAX>;

/// What a request to certain paths requires and costs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// HTTP methods in upper case. Default: every method.
    #[serde(default)]
    pub methods: Optional<List<Text<1, 32, AnyChar>, 0, RULE_METHODS_MAX>>,
    /// A pattern in which `*` stands for one segment and `**` for any number of segments. Default: every path.
    #[serde(default)]
    pub path: Optional<Text<1, PATH_MAX>>,
    /// The permissions that the key must have, such as `documents.read OR admin`.
    #[serde(default)]
    pub permissions: Optional<Text<1, RULE_PERMISSIONS_MAX>>,
    /// The credits that a request costs. Default: 1.
    #[serde(default)]
    pub cost: Optional<Int<0, RULE_COST_MAX>>,
    /// Rate limits to check in addition to those with `autoApply`.
    #[serde(default)]
    pub ratelimits: Optional<List<Object<Limit>, 0, RULE_LIMITS_MAX>>,
    /// Labels for analytics.
    #[serde(default)]
    pub tags: Optional<List<Text<1, TAG_MAX>, 0, RULE_TAGS_MAX>>,
}

/// A rate limit of the key or its identity by name or, with `limit` and `duration`, one of the rule, counted per key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    pub name: Text<LIMIT_NAME_MIN, LIMIT_NAME_MAX>,
    /// The cost to consume. Default: 1.
    #[serde(default)]
    pub cost: Optional<UnsignedInt>,
    #[serde(default)]
    pub limit: Optional<UnsignedInt>,
    /// The window length in milliseconds.
    #[serde(default)]
    pub duration: Optional<UnsignedInt>,
}

/// Which headers tell the upstream who calls.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IdentityHeaderFields {
    /// The names of the headers that have a value; the others are empty. Default: all.
    #[serde(default)]
    pub headers: Optional<List<Text<1, 64, AnyChar>, 0, 20>>,
    /// Fields of the key's meta that have a header of their own, `Keyward-Meta-<name>`.
    #[serde(default)]
    pub meta: Optional<List<Text<1, 64, AnyChar>, 0, META_HEADERS_MAX>>,
    /// Whether a signed assertion is added. Default: false.
    #[serde(default)]
    pub signed: Optional<bool>,
}

/// The format of the body of refusals.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
pub enum OnFailure {
    #[serde(rename = "problem+json")]
    ProblemJson,
    #[serde(rename = "text")]
    Text,
    #[serde(rename = "empty")]
    Empty,
}

/// A namespace that the rate-limit service may use.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Namespace {
    /// The ID or name of the namespace. One that does not exist is created with this name.
    pub namespace: NamespaceOrIdentifier,
    /// The limit of a descriptor that names none and has no override.
    #[serde(default)]
    pub default_limit: Optional<Object<LimitFields>>,
    /// `shadow` counts and admits everything. Default: `enforce`.
    #[serde(default)]
    pub mode: Optional<OneOf<Mode>>,
    /// Whether the units of a refused call count, too, so that units taken after a response close a quota. Default: false.
    #[serde(default)]
    pub count_refused: Optional<bool>,
}

/// A limit and the length of its window.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitFields {
    pub limit: UnsignedInt,
    /// The window length in milliseconds.
    pub duration: WindowLength,
}

/// Whether the limits of a namespace reject requests.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Enforce,
    Shadow,
}

/// Converts the ids of APIs.
pub fn to_api_ids(ids: ApiIds) -> Vec<ApiId> {
    ids.0.into_iter().map(|id| ApiId::from(id.into_string())).collect()
}

/// Parses the places where the key is read.
pub fn to_key_sources(sources: KeySources) -> Result<Vec<KeySource>> {
    parse_items("keyFrom", sources.0, str::parse)
}

/// Parses networks and addresses.
pub fn to_networks(networks: AllowFrom) -> Result<Vec<IpNet>> {
    parse_items("allowFrom", networks.0, |text| match Networks::parse(text)?.as_slice() {
        [network] => Ok(*network),
        _ => Err("must be one network such as 10.0.0.0/8 or one address".to_owned()),
    })
}

fn parse_items<T, const MIN: usize, const MAX: usize>(
    field: &str,
    items: Vec<Text<MIN, MAX, AnyChar>>,
    parse: impl Fn(&str) -> std::result::Result<T, String>,
) -> Result<Vec<T>> {
    let item = |(at, text): (usize, Text<MIN, MAX, AnyChar>)| {
        parse(text.as_str()).map_err(|rule| {
            Error::invalid(format!("/properties/{field}/items"), format!("{field}[{at}] {rule}"))
        })
    };
    items.into_iter().enumerate().map(item).collect()
}

pub fn to_rules(rules: Rules) -> Vec<GatewayRule> {
    let to_limit = |Object(limit): Object<Limit>| GatewayLimit {
        name: limit.name.into_string(),
        cost: limit.cost.0.map(|cost| cost.0),
        limit: limit.limit.0.map(|limit| limit.0),
        duration: limit.duration.0.map(|duration| duration.0),
    };
    let to_rule = |Object(rule): Object<Rule>| GatewayRule {
        methods: rule.methods.0.map_or_else(Vec::new, into_strings),
        path: rule.path.0.map(Text::into_string),
        permissions: rule.permissions.0.map(Text::into_string),
        cost: rule.cost.0.map(|cost| cost.0),
        ratelimits: rule
            .ratelimits
            .0
            .map_or_else(Vec::new, |list| list.0.into_iter().map(to_limit).collect()),
        tags: rule.tags.0.map_or_else(Vec::new, into_strings),
    };
    rules.0.into_iter().map(to_rule).collect()
}

pub fn to_namespaces(namespaces: Namespaces) -> Vec<GatewayNamespace> {
    let to_namespace = |Object(namespace): Object<Namespace>| GatewayNamespace {
        namespace: namespace.namespace.into_string(),
        default_limit: namespace.default_limit.0.map(|Object(default)| DefaultLimit {
            limit: default.limit.0,
            duration: default.duration.0,
        }),
        mode: namespace.mode.0.map_or(EnforcementMode::Enforce, |mode| mode.0.into()),
        count_refused: namespace.count_refused.0.unwrap_or_default(),
    };
    namespaces.0.into_iter().map(to_namespace).collect()
}

impl From<IdentityHeaderFields> for IdentityHeaders {
    fn from(fields: IdentityHeaderFields) -> Self {
        Self {
            headers: fields.headers.0.map(into_strings),
            meta: fields.meta.0.map_or_else(Vec::new, into_strings),
            signed: fields.signed.unwrap_or(false),
        }
    }
}

impl From<OnFailure> for FailureFormat {
    fn from(format: OnFailure) -> Self {
        match format {
            OnFailure::ProblemJson => Self::ProblemJson,
            OnFailure::Text => Self::Text,
            OnFailure::Empty => Self::Empty,
        }
    }
}

impl From<Mode> for EnforcementMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Enforce => Self::Enforce,
            Mode::Shadow => Self::Shadow,
        }
    }
}

/// A gateway policy.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReply {
    policy_id: GatewayPolicyId,
    name: String,
    api_ids: Vec<ApiId>,
    key_from: Vec<String>,
    rules: Vec<RuleReply>,
    identity_headers: IdentityHeadersReply,
    on_failure: OnFailure,
    allow_from: Vec<String>,
    namespaces: Vec<NamespaceReply>,
    /// Omitted: no metadata is published.
    #[serde(skip_serializing_if = "String::is_empty")]
    resource: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    authorization_servers: Vec<String>,
    /// The creation time in Unix milliseconds.
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RuleReply {
    /// Omitted: every method.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    methods: Vec<String>,
    /// Omitted: every path.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ratelimits: Vec<LimitReply>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LimitReply {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct IdentityHeadersReply {
    /// Omitted: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    meta: Vec<String>,
    signed: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NamespaceReply {
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_limit: Option<DefaultLimitReply>,
    mode: Mode,
    count_refused: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DefaultLimitReply {
    limit: i64,
    /// The window length in milliseconds.
    duration: i64,
}

impl From<GatewayPolicy> for PolicyReply {
    fn from(policy: GatewayPolicy) -> Self {
        let config = policy.config;
        let IdentityHeaders { headers, meta, signed } = config.identity_headers;
        Self {
            policy_id: policy.id,
            name: policy.name,
            api_ids: config.api_ids,
            key_from: config.key_from.iter().map(ToString::to_string).collect(),
            rules: config.rules.into_iter().map(RuleReply::from).collect(),
            identity_headers: IdentityHeadersReply { headers, meta, signed },
            on_failure: match config.on_failure {
                FailureFormat::ProblemJson => OnFailure::ProblemJson,
                FailureFormat::Text => OnFailure::Text,
                FailureFormat::Empty => OnFailure::Empty,
            },
            allow_from: config.allow_from.iter().map(ToString::to_string).collect(),
            namespaces: config.namespaces.into_iter().map(NamespaceReply::from).collect(),
            resource: config.resource,
            authorization_servers: config.authorization_servers,
            created_at: policy.created_at,
            updated_at: policy.updated_at,
        }
    }
}

impl From<GatewayRule> for RuleReply {
    fn from(rule: GatewayRule) -> Self {
        let to_reply = |GatewayLimit { name, cost, limit, duration }| LimitReply {
            name,
            cost,
            limit,
            duration,
        };
        Self {
            methods: rule.methods,
            path: rule.path,
            permissions: rule.permissions,
            cost: rule.cost,
            ratelimits: rule.ratelimits.into_iter().map(to_reply).collect(),
            tags: rule.tags,
        }
    }
}

impl From<GatewayNamespace> for NamespaceReply {
    fn from(namespace: GatewayNamespace) -> Self {
        let to_reply = |DefaultLimit { limit, duration }| DefaultLimitReply { limit, duration };
        Self {
            namespace: namespace.namespace,
            default_limit: namespace.default_limit.map(to_reply),
            mode: match namespace.mode {
                EnforcementMode::Enforce => Mode::Enforce,
                EnforcementMode::Shadow => Mode::Shadow,
            },
            count_refused: namespace.count_refused,
        }
    }
}

/// A policy's id and its secret.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretReply {
    pub policy_id: GatewayPolicyId,
    /// What the gateway sends in the header `Keyward-Gateway-Secret`. It is shown only now.
    pub secret: foundation::secret::Plaintext,
}

impl From<domain::gateways::NewSecret> for SecretReply {
    fn from(new: domain::gateways::NewSecret) -> Self {
        Self { policy_id: new.policy.id, secret: new.secret }
    }
}
