use foundation::clock::Timestamp;
use foundation::config::OpenVerification;
use foundation::error::Error;
use foundation::id::{ApiId, KeyId, RequestId};
use foundation::secret::Plaintext;
use serde::Deserializer;
use serde::de::Error as _;

use crate::domain::keys::{
    self, AD_HOC_DURATION_MAX_MS, EvaluatedLimit, LimitSource, RequestedLimit, VerificationCode,
    VerifyRequest, VerifyResult,
};
use crate::domain::query::{PermissionQuery, Tree};
use crate::rpc::bounds::Unkept;
use crate::rpc::prelude::*;
use crate::rpc::reply::Reply;
use crate::rpc::schemas::{Unsigned, texts};
use crate::rpc::v1::schemas::{DEFAULT, KeyIdentity, Name};

/// Verify a key.
///
/// Whether it is valid, and what it may be told of it. In this order: it exists, is enabled, is of the API, has not
/// expired, may be used from here, satisfies `authorization`; then its limits and its credits are taken, all
/// or nothing. Anybody may ask; an Authorization header is passed over.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifyKey {
    /// The key itself.
    pub key: Text<1, 512, Unkept>,
    /// The API that it must be of. Left out: any.
    #[serde(default)]
    pub api_id: Optional<Text<0, 512, Unkept>>,
    /// Your own labels for analytics.
    #[serde(default)]
    pub tags: Optional<List<Text<1, 128, Unkept>, 0, 10>>,
    #[serde(default)]
    pub authorization: Optional<Object<Authorization>>,
    #[serde(default)]
    pub remaining: Optional<Object<Remaining>>,
    /// Deprecated for `ratelimits`: the cost for the limit named `default`.
    #[serde(default)]
    pub ratelimit: Optional<Object<Cost>>,
    /// Limits to check, besides those that always are.
    #[serde(default)]
    pub ratelimits: Optional<List<Object<Limit>, 0, 50>>,
}

/// What the key must be allowed to do.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Authorization {
    /// A permission, or `and` or `or` with a list of such, as deep as you like.
    #[serde(default)]
    permissions: Option<Permissions>,
}

#[derive(Debug)]
struct Permissions(Tree);

/// Uses to take.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Remaining {
    /// Left out: 1.
    #[serde(default)]
    cost: Optional<Unsigned>,
}

/// What to take of a limit.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Cost {
    /// Left out: 1.
    #[serde(default)]
    cost: Optional<Unsigned>,
}

/// A limit to check.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Limit {
    name: Name,
    /// Left out: 1. 0 takes nothing.
    #[serde(default)]
    cost: Optional<Unsigned>,
    /// With `duration`: a limit for this call, whatever is stored. 0 refuses.
    #[serde(default)]
    limit: Optional<Unsigned>,
    /// Milliseconds; at most 30 days.
    #[serde(default)]
    duration: Optional<Int<1, AD_HOC_DURATION_MAX_MS>>,
}

impl Operation for VerifyKey {
    const NAME: &'static str = "keys.verifyKey";
    const NEEDS: AccessRule = AccessRule::Nothing;
    const BODY_MAX_BYTES: usize = 64 * 1024;
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
        let wanted = VerifyRequest::try_from(self)?;
        let asked = wanted.ratelimits.iter().map(|limit| limit.name.clone()).collect();
        let is_minimal = app.settings.security.open_verification == OpenVerification::Minimal;
        Ok(VerifyKeyReply {
            verified: keys::verify_unauthenticated(app, caller, wanted).await?,
            asked,
            is_minimal,
        })
    }
}

impl TryFrom<VerifyKey> for VerifyRequest {
    type Error = Error;

    fn try_from(request: VerifyKey) -> Result<Self> {
        let cost = |cost: Optional<Unsigned>| cost.0.map(|cost| cost.0);
        let older = request.ratelimit.0.and_then(|Object(limit)| cost(limit.cost));
        let older = older.map(|cost| RequestedLimit {
            name: DEFAULT.to_owned(),
            cost,
            limit: LimitSource::IfStored,
        });
        let limits = request.ratelimits.0.map_or_else(Vec::new, |list| list.0);
        let limits: Vec<_> = limits.into_iter().map(wanted).collect();
        let permissions = request.authorization.0.and_then(|Object(a)| a.permissions);
        let permissions = permissions.map(|Permissions(tree)| tree);
        Ok(Self {
            key: Plaintext::from(request.key.into_string()),
            api: request
                .api_id
                .0
                .map(Text::into_string)
                .filter(|id| !id.is_empty())
                .map(ApiId::from),
            permissions: permissions
                .filter(|tree| *tree != Tree::Has(String::new()))
                .map(PermissionQuery::Tree),
            cost: request.remaining.0.and_then(|Object(remaining)| cost(remaining.cost)),
            ratelimits: older.into_iter().chain(limits).collect(),
            address: None,
            migration: None,
            tags: request.tags.0.map_or_else(Vec::new, texts),
        })
    }
}

fn wanted(Object(limit): Object<Limit>) -> RequestedLimit {
    let wanted = match (limit.limit.0, limit.duration.0) {
        (Some(limit), Some(duration)) => {
            LimitSource::AdHoc { limit: limit.0, duration_ms: duration.0 }
        }
        // One of them alone says nothing: the stored limit counts.
        (Some(_) | None, None) | (None, Some(_)) => LimitSource::Stored,
    };
    let cost = limit.cost.0.map_or(1, |cost| cost.0);
    RequestedLimit { name: limit.name.into_string(), cost, limit: wanted }
}

impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        tree(value).map(Self).ok_or_else(|| {
            D::Error::custom(
                "Invalid input: a permission, or \"and\" or \"or\" with a list of such",
            )
        })
    }
}

/// `None`: it is none. The request is no deeper than a body may be.
fn tree(value: Value) -> Option<Tree> {
    let list = |value: Value| match value {
        Value::Array(parts) if !parts.is_empty() => parts.into_iter().map(tree).collect(),
        _ => None::<Vec<Tree>>,
    };
    match value {
        Value::String(slug) => Some(Tree::Has(slug)),
        // Of the two the first counts.
        Value::Object(mut object) => match (object.remove("and"), object.remove("or")) {
            (Some(all), _) => list(all).map(Tree::All),
            (None, Some(any)) => list(any).map(Tree::Any),
            (None, None) => None,
        },
        _ => None,
    }
}

impl JsonSchema for Permissions {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Permissions".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        // How it goes on within is told in words: a schema that holds itself has no place of its own.
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, { "type": "object" }] })
    }
}

/// What came of it.
#[derive(Debug)]
pub struct VerifyKeyReply {
    verified: VerifyResult,
    /// The limits that were asked for, in the order of the request.
    asked: Vec<String>,
    /// Whether nothing is told of the key itself.
    is_minimal: bool,
}

/// What came of it. For `NOT_FOUND` there is nothing but the first three.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    valid: bool,
    /// `VALID`, `NOT_FOUND`, `FORBIDDEN`, `USAGE_EXCEEDED`, `RATE_LIMITED`, `DISABLED`,
    /// `INSUFFICIENT_PERMISSIONS` or `EXPIRED`.
    code: &'static str,
    request_id: &'a str,
    #[serde(flatten)]
    known: Option<Known<'a>>,
    /// The limit that refused; else the one named `default`, or the first that was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratelimit: Option<Standing>,
    /// Uses left, where uses were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Known<'a> {
    key_id: &'a KeyId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Meta>,
    /// Unix milliseconds; left out: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    enabled: bool,
    /// Slugs, the key's own and those of its roles.
    permissions: &'a [String],
    /// Names.
    roles: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<KeyIdentity>,
}

#[derive(Serialize, JsonSchema)]
struct Standing {
    limit: i64,
    remaining: i64,
    /// The end of the window, in unix milliseconds.
    reset: Timestamp,
}

impl VerifyKeyReply {
    fn to_reply<'a>(&'a self, request_id: &'a str) -> Told<'a> {
        let VerifyResult { code, view, credits, .. } = &self.verified;
        let known = view.as_ref().filter(|_| !self.is_minimal).map(|view| {
            let view = &view.value;
            let (key, identity) = (&view.stored().key, view.identity());
            Known {
                key_id: &key.id,
                name: key.name.as_deref(),
                owner_id: identity.map(|i| i.external_id.as_str()).or(key.owner_id.as_deref()),
                meta: key.meta.as_ref().filter(|meta| !meta.is_empty()),
                expires: key.expires_at.filter(|at| at.0 != 0),
                enabled: key.enabled,
                permissions: &view.permissions,
                roles: &view.roles,
                environment: key.environment.as_deref(),
                identity: identity.map(KeyIdentity::from),
            }
        });
        let counted = !self.is_minimal
            && matches!(code, VerificationCode::Valid | VerificationCode::UsageExceeded);
        Told {
            valid: *code == VerificationCode::Valid,
            code: code.as_str(),
            request_id,
            known,
            ratelimit: self.reported().map(|checked| Standing {
                limit: checked.limit.limit,
                remaining: checked.standing.remaining,
                reset: checked.standing.reset,
            }),
            remaining: credits.filter(|_| counted),
        }
    }

    fn refusing(&self) -> Option<&EvaluatedLimit> {
        self.first(|checked| checked.standing.exceeded)
    }

    fn reported(&self) -> Option<&EvaluatedLimit> {
        let default = || self.first(|checked| checked.limit.name == DEFAULT);
        self.refusing().or_else(default).or_else(|| self.first(|_| true))
    }

    fn first(&self, is_meant: impl Fn(&&EvaluatedLimit) -> bool) -> Option<&EvaluatedLimit> {
        let meant = self.verified.ratelimits.iter().filter(is_meant);
        meant.min_by_key(|checked| self.place(&checked.limit.name))
    }

    /// Where a limit stands among those that were checked: first those that always are, the identity's before the
    /// key's; then those that were asked for, in the order of the request.
    fn place(&self, name: &str) -> usize {
        let view = self.verified.view.as_ref().map(|view| &view.value);
        let stored = view.and_then(|view| Some((view, view.limit(name)?)));
        match stored.filter(|(_, limit)| limit.auto_apply) {
            Some((view, _)) if view.shared_ratelimits().any(|limit| limit.name == name) => 0,
            Some(_) => 1,
            None => 2 + self.asked.iter().position(|asked| asked == name).unwrap_or_default(),
        }
    }
}

impl Reply for VerifyKeyReply {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(into, &self.to_reply(""))
    }

    fn write_for(&self, request: &RequestId, into: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(into, &self.to_reply(request.as_str()))
    }

    fn is_degraded(&self) -> bool {
        self.verified.degraded
    }

    fn refused_by(&self) -> Option<&str> {
        self.refusing().map(|checked| checked.limit.name.as_str())
    }
}

impl JsonSchema for VerifyKeyReply {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Outcome".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Told::json_schema(generator)
    }
}
