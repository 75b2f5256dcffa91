use domain::keys::{
    self, AD_HOC_DURATION_MAX_MS, EvaluatedLimit, LimitSource, RequestedLimit, VerificationCode,
    VerifyRequest, VerifyResult,
};
use domain::query::{PermissionQuery, RequirementTree};
use foundation::clock::Timestamp;
use foundation::config::OpenVerification;
use foundation::error::Error;
use foundation::id::{ApiId, RequestId};
use foundation::secret::Plaintext;
use serde::Deserializer;
use serde::de::Error as _;

use crate::bounds::AnyChar;
use crate::prelude::*;
use crate::reply::Reply;
use crate::schemas::{UnsignedInt, into_strings};
use crate::v1::schemas::{DEFAULT_LIMIT_NAME, IdOrName, KeyIdentity};

/// The maximum size of the body. A key has no other bound: one that is too long to exist is not found.
const BODY_BYTES: usize = 64 * 1024;

/// Verify a key.
///
/// Returns whether the key is valid, and the key details that this server exposes. The checks run in this order: the
/// key exists, is enabled, belongs to the API, has not expired, may be used from the caller's address, and satisfies
/// `authorization`. Then the costs of its rate limits and credits are consumed, all or nothing. No root key is
/// required; an Authorization header is ignored.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifyKey {
    /// The complete key.
    pub key: Text<1, BODY_BYTES, AnyChar>,
    /// The API that the key must belong to. Default: any.
    #[serde(default)]
    pub api_id: Optional<Text<0, 512, AnyChar>>,
    /// Your own labels for analytics.
    #[serde(default)]
    pub tags: Optional<List<Text<1, 128, AnyChar>, 0, 10>>,
    #[serde(default)]
    pub authorization: Optional<Object<Authorization>>,
    #[serde(default)]
    pub remaining: Optional<Object<Remaining>>,
    /// Deprecated: use `ratelimits`. The cost for the rate limit named `default`.
    #[serde(default)]
    pub ratelimit: Optional<Object<Cost>>,
    /// Rate limits to check in addition to those that every verification checks.
    #[serde(default)]
    pub ratelimits: Optional<List<Object<Limit>, 0, 50>>,
}

/// The permissions that the key must have.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Authorization {
    /// A permission, or an object with `and` or `or` and a list of conditions, which may be nested.
    #[serde(default)]
    permissions: Option<PermissionTree>,
}

#[derive(Debug)]
struct PermissionTree(RequirementTree);

/// The credits to spend.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Remaining {
    /// The cost to consume. Default: 1.
    #[serde(default)]
    cost: Optional<UnsignedInt>,
}

/// The cost for a rate limit.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Cost {
    /// The cost to consume. Default: 1.
    #[serde(default)]
    cost: Optional<UnsignedInt>,
}

/// A rate limit to check.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Limit {
    name: IdOrName,
    /// The cost to consume. Default: 1. A cost of 0 only peeks.
    #[serde(default)]
    cost: Optional<UnsignedInt>,
    /// With `duration`: an ad-hoc limit for this call, instead of a stored one. 0 rejects every call.
    #[serde(default)]
    limit: Optional<UnsignedInt>,
    /// The window length in milliseconds. With `limit`, it must be from 1 to 2592000000 (30 days).
    #[serde(default)]
    duration: Optional<UnsignedInt>,
}

impl Operation for VerifyKey {
    const NAME: &'static str = "keys.verifyKey";
    const ACCESS: AccessRule = AccessRule::NoRootKey;
    const BODY_MAX_BYTES: usize = BODY_BYTES;
    type Reply = VerifyKeyReply;

    fn example() -> Value {
        json!({
            "key": example::KEY,
            "apiId": example::API,
            "authorization": { "permissions": { "or": ["documents.read", "documents.write"] } },
            "ratelimits": [{ "name": "uploads", "limit": 10, "duration": 60_000, "cost": 2 }]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<VerifyKeyReply> {
        let request = VerifyRequest::try_from(self)?;
        let requested_limits = request.ratelimits.iter().map(|limit| limit.name.clone()).collect();
        let is_minimal =
            app.context.settings.security.open_verification == OpenVerification::Minimal;
        Ok(VerifyKeyReply {
            result: keys::verify_unauthenticated(&app.keys, caller, request).await?,
            requested_limits,
            is_minimal,
        })
    }
}

impl TryFrom<VerifyKey> for VerifyRequest {
    type Error = Error;

    fn try_from(request: VerifyKey) -> Result<Self> {
        let cost = |cost: Optional<UnsignedInt>| cost.0.map(|cost| cost.0);
        let default_cost = request.ratelimit.0.and_then(|Object(limit)| cost(limit.cost));
        let default_limit = default_cost.map(|cost| RequestedLimit {
            name: DEFAULT_LIMIT_NAME.to_owned(),
            cost,
            limit: LimitSource::IfStored,
        });
        let limits = request.ratelimits.0.map_or_else(Vec::new, |list| list.0);
        let limits = limits.into_iter().enumerate().map(to_requested_limit);
        let limits = limits.collect::<Result<Vec<_>>>()?;
        let permissions = request.authorization.0.and_then(|Object(a)| a.permissions);
        let permissions = permissions.map(|PermissionTree(tree)| tree);
        Ok(Self {
            key: Plaintext::from(request.key.into_string()),
            api: request
                .api_id
                .0
                .map(Text::into_string)
                .filter(|id| !id.is_empty())
                .map(ApiId::from),
            permissions: permissions
                .filter(|tree| *tree != RequirementTree::Has(String::new()))
                .map(PermissionQuery::Tree),
            cost: request.remaining.0.and_then(|Object(remaining)| cost(remaining.cost)),
            ratelimits: default_limit.into_iter().chain(limits).collect(),
            auto_applies_limits: true,
            address: None,
            migration: None,
            is_refused_by_policy: false,
            tags: request.tags.0.map_or_else(Vec::new, into_strings),
        })
    }
}

fn to_requested_limit((at, Object(limit)): (usize, Object<Limit>)) -> Result<RequestedLimit> {
    let source = match (limit.limit.0, limit.duration.0) {
        (Some(_), Some(Int(duration))) if !(1..=AD_HOC_DURATION_MAX_MS).contains(&duration) => {
            let field = format!("ratelimits.{at}");
            let message = format!(
                "{field}: duration must be from 1 to {AD_HOC_DURATION_MAX_MS} with a limit"
            );
            return Err(Error::invalid(field, message));
        }
        (Some(limit), Some(duration)) => {
            LimitSource::AdHoc { limit: limit.0, duration_ms: duration.0 }
        }
        // If only one of them is given, it is ignored and the stored limit applies.
        (Some(_) | None, None) | (None, Some(_)) => LimitSource::Stored,
    };
    let cost = limit.cost.0.map_or(1, |cost| cost.0);
    Ok(RequestedLimit { name: limit.name.into_string(), cost, limit: source })
}

impl<'de> Deserialize<'de> for PermissionTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        parse_tree(value).map(Self).ok_or_else(|| {
            D::Error::custom(
                "Invalid input: expected a permission, or \"and\" or \"or\" with a list",
            )
        })
    }
}

/// Parses a permission tree. Returns `None` if the value is not one. Its depth is bounded by the maximum depth of a
/// body.
fn parse_tree(value: Value) -> Option<RequirementTree> {
    let list = |value: Value| match value {
        Value::Array(parts) if !parts.is_empty() => parts.into_iter().map(parse_tree).collect(),
        _ => None::<Vec<RequirementTree>>,
    };
    match value {
        Value::String(slug) => Some(RequirementTree::Has(slug)),
        // If both are present, `and` applies.
        Value::Object(mut object) => match (object.remove("and"), object.remove("or")) {
            (Some(all), _) => list(all).map(RequirementTree::All),
            (None, Some(any)) => list(any).map(RequirementTree::Any),
            (None, None) => None,
        },
        _ => None,
    }
}

impl JsonSchema for PermissionTree {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Permissions".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // The nested structure is described only in the documentation: a recursive schema cannot be inlined.
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, { "type": "object" }] })
    }
}

/// The reply of a verification.
#[derive(Debug)]
pub struct VerifyKeyReply {
    result: VerifyResult,
    /// The names of the requested limits, in the order of the request.
    requested_limits: Vec<String>,
    /// Whether the reply omits all details of the key.
    is_minimal: bool,
}

/// The result of a verification. For `NOT_FOUND`, only the first three fields are present.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct VerifyKeyBody<'a> {
    valid: bool,
    /// `VALID`, `NOT_FOUND`, `FORBIDDEN`, `USAGE_EXCEEDED`, `RATE_LIMITED`, `DISABLED`,
    /// `INSUFFICIENT_PERMISSIONS` or `EXPIRED`.
    code: &'static str,
    request_id: &'a str,
    #[serde(flatten)]
    key: Option<KeyBody<'a>>,
    /// The rate limit that rejected the request; otherwise the one named `default`, or the first that was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratelimit: Option<LimitStatusBody>,
    /// The remaining credits, if credits were checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct KeyBody<'a> {
    key_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Meta>,
    /// The expiry time in Unix milliseconds; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    enabled: bool,
    /// Slugs of the key's direct permissions and of the permissions of its roles.
    permissions: &'a [String],
    /// Role names.
    roles: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<KeyIdentity>,
}

#[derive(Serialize, JsonSchema)]
struct LimitStatusBody {
    limit: i64,
    remaining: i64,
    /// The end of the window in Unix milliseconds.
    reset: Timestamp,
}

impl VerifyKeyReply {
    fn to_reply<'a>(&'a self, request_id: &'a str) -> VerifyKeyBody<'a> {
        let VerifyResult { code, resolved: view, credits, .. } = &self.result;
        let key_details = view.as_ref().filter(|_| !self.is_minimal).map(|view| {
            let view = &view.value;
            let (key, identity) = (&view.key, view.identity());
            KeyBody {
                key_id: key.id(),
                name: key.name(),
                owner_id: identity.map(|i| i.external_id.as_str()).or(key.owner_id()),
                meta: key.meta().filter(|meta| !meta.is_empty()),
                expires: key.expires_at().filter(|at| at.0 != 0),
                enabled: key.is_enabled(),
                permissions: view.permissions(),
                roles: view.roles(),
                environment: key.environment(),
                identity: identity.map(KeyIdentity::from),
            }
        });
        let shows_credits = !self.is_minimal
            && matches!(code, VerificationCode::Valid | VerificationCode::UsageExceeded);
        VerifyKeyBody {
            valid: *code == VerificationCode::Valid,
            code: code.as_str(),
            request_id,
            key: key_details,
            ratelimit: self.find_reported_limit().map(|checked| LimitStatusBody {
                limit: checked.limit.limit,
                remaining: checked.status.remaining,
                reset: checked.status.reset_at,
            }),
            remaining: credits.filter(|_| shows_credits),
        }
    }

    fn find_rejecting_limit(&self) -> Option<&EvaluatedLimit> {
        self.find_first_limit(|checked| checked.status.is_exceeded)
    }

    fn find_reported_limit(&self) -> Option<&EvaluatedLimit> {
        let default =
            || self.find_first_limit(|checked| *checked.limit.name == *DEFAULT_LIMIT_NAME);
        self.find_rejecting_limit().or_else(default).or_else(|| self.find_first_limit(|_| true))
    }

    fn find_first_limit(
        &self,
        matches: impl Fn(&&EvaluatedLimit) -> bool,
    ) -> Option<&EvaluatedLimit> {
        let matching = self.result.ratelimits.iter().filter(matches);
        matching.min_by_key(|checked| self.check_order(&checked.limit.name))
    }

    /// Returns the position of a limit in the order of checks: first the limits that always apply, those of the
    /// identity before those of the key, then the requested limits in the order of the request.
    fn check_order(&self, name: &str) -> usize {
        let view = self.result.resolved.as_ref().map(|view| &view.value);
        let stored = view.and_then(|view| Some((view, view.find_limit(name)?)));
        match stored.filter(|(_, limit)| limit.auto_apply) {
            Some((view, _)) if view.shared_ratelimits().any(|limit| limit.name == name) => 0,
            Some(_) => 1,
            None => {
                2 + self
                    .requested_limits
                    .iter()
                    .position(|requested| requested == name)
                    .unwrap_or_default()
            }
        }
    }
}

impl Reply for VerifyKeyReply {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(into, &self.to_reply(""))
    }

    fn write_with_request_id(
        &self,
        request: &RequestId,
        into: &mut Vec<u8>,
    ) -> serde_json::Result<()> {
        serde_json::to_writer(into, &self.to_reply(request.as_str()))
    }

    fn is_degraded(&self) -> bool {
        self.result.is_degraded
    }

    fn rejected_by(&self) -> Option<&str> {
        let rejecting = self.find_rejecting_limit().filter(|_| !self.is_minimal);
        rejecting.map(|checked| &*checked.limit.name)
    }
}

impl JsonSchema for VerifyKeyReply {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Outcome".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        VerifyKeyBody::json_schema(generator)
    }
}
