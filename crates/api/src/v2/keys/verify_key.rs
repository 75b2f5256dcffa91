use axum::http::HeaderMap;
use domain::bounds::DURATION_MIN_MS;
use domain::keys::{
    self, AD_HOC_DURATION_MAX_MS, EvaluatedLimit, LimitSource, RequestedLimit, ResolvedKey,
    VerificationCode, VerifyRequest, VerifyResult,
};
use domain::query::PermissionQuery;
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::MigrationId;
use foundation::secret::Plaintext;

use crate::bounds::Address;
use crate::bounds::AnyChar;
use crate::prelude::*;
use crate::ratelimit_headers::{self, CheckedLimit, RatelimitHeaders};
use crate::reply::Reply;
use crate::schemas::{UnsignedInt, into_strings};
use crate::v2::schemas::IdentityReply;

/// Verify a key.
///
/// The response is 200 for valid and invalid keys; `valid` and `code` contain the result. The checks run in this order:
/// the key exists, is enabled, has not expired, and satisfies `permissions`. Then the costs of its rate limits and
/// credits are consumed together, all or nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyKey {
    /// The complete key, including its prefix.
    pub key: Text<1, 512, AnyChar>,
    /// Labels for analytics. They do not affect the result.
    #[serde(default)]
    pub tags: Optional<List<Text<1, 512, AnyChar>, 0, 20>>,
    /// The permissions that the key must have, such as `documents.read AND (documents.write OR admin)`.
    #[serde(default)]
    pub permissions: Optional<Text<1, 1000, AnyChar>>,
    #[serde(default)]
    pub credits: Optional<Object<Cost>>,
    /// Rate limits to check in addition to those with `autoApply`.
    #[serde(default)]
    pub ratelimits: Optional<List<Object<Limit>, 0, 100>>,
    /// The migration that the key may still be pending in.
    #[serde(default)]
    pub migration_id: Optional<Text<0, 256>>,
    /// The IP address of your user, for APIs that restrict the networks from which keys may be used. Default: the
    /// address that this request came from.
    #[serde(default)]
    pub ip_address: Optional<Address>,
}

/// The number of credits to spend.
pub type CreditCost = Int<0, 1_000_000_000_000>;

/// The credits to spend.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cost {
    /// The cost. A cost of 0 only peeks. If `credits` is omitted, the cost is 1.
    pub cost: CreditCost,
}

/// A rate limit to check: a limit of the key or its identity by name or, with `limit` and `duration`, an ad-hoc limit
/// for this call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    pub name: Text<3, 255>,
    /// The cost to consume. Default: 1. A cost of 0 only peeks.
    #[serde(default)]
    pub cost: Optional<UnsignedInt>,
    #[serde(default)]
    pub limit: Optional<UnsignedInt>,
    /// The window length in milliseconds. With `limit`, it must be from 1000 to 2592000000 (30 days).
    #[serde(default)]
    pub duration: Optional<UnsignedInt>,
}

impl Operation for VerifyKey {
    const NAME: &'static str = "keys.verifyKey";
    const ACCESS: AccessRule = AccessRule::HiddenUnlessPermitted(&[Action::VerifyKey]);
    const BODY_MAX_BYTES: usize = 64 * 1024;
    type Reply = VerifyKeyReply;

    fn example() -> Value {
        json!({
            "key": example::KEY,
            "permissions": "documents.read OR documents.write",
            "tags": ["path=/documents"],
            "ratelimits": [{ "name": "heavy", "limit": 10, "duration": 60_000, "cost": 2 }]
        })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<VerifyKeyReply> {
        let verified = keys::verify(&app.keys, caller, self.try_into()?).await?;
        Ok(VerifyKeyReply(verified))
    }
}

impl TryFrom<VerifyKey> for VerifyRequest {
    type Error = Error;

    fn try_from(request: VerifyKey) -> Result<Self> {
        let limits = request.ratelimits.0.map_or_else(Vec::new, |list| list.0);
        Ok(Self {
            key: Plaintext::from(request.key.into_string()),
            api: None,
            permissions: request
                .permissions
                .0
                .map(|query| PermissionQuery::Text(query.into_string())),
            cost: request.credits.0.map(|Object(credits)| credits.cost.0),
            ratelimits: limits
                .into_iter()
                .enumerate()
                .map(to_requested_limit)
                .collect::<Result<_>>()?,
            auto_applies_limits: true,
            address: request.ip_address.0.map(|address| address.0),
            migration: request.migration_id.0.map(|id| MigrationId::from(id.into_string())),
            is_refused_by_policy: false,
            tags: request.tags.0.map_or_else(Vec::new, into_strings),
        })
    }
}

fn to_requested_limit((at, Object(limit)): (usize, Object<Limit>)) -> Result<RequestedLimit> {
    let source = match (limit.limit.0, limit.duration.0) {
        (Some(_), Some(Int(duration)))
            if !(DURATION_MIN_MS..=AD_HOC_DURATION_MAX_MS).contains(&duration) =>
        {
            return Err(Error::invalid(
                "/properties/ratelimits/items/properties/duration",
                format!(
                    "ratelimits[{at}].duration must be from {DURATION_MIN_MS} to \
                    {AD_HOC_DURATION_MAX_MS} with a limit"
                ),
            ));
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

/// The maximum size of the JSON that is cached with a key. A larger reply, such as one with a large meta, is rendered
/// for each verification.
const CACHED_JSON_MAX_BYTES: usize = 4096;

/// The reply of a verification.
#[derive(Debug)]
pub struct VerifyKeyReply(VerifyResult);

/// The result of a verification. For `NOT_FOUND`, only `valid` and `code` are present.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "schema only; `VerifyKeyReply` writes its parts")]
struct VerifyKeyBody<'a> {
    #[serde(flatten)]
    verdict: Verdict,
    /// The rate limits that were checked, by name.
    #[schemars(default, skip_serializing_if = "Vec::is_empty")]
    ratelimits: Vec<LimitBody<'a>>,
    #[serde(flatten)]
    key: Option<KeyBody<'a>>,
}

/// A rate limit that was checked.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "schema only; `VerifyKeyReply` writes its parts")]
struct LimitBody<'a> {
    #[serde(flatten)]
    status: LimitStatusBody,
    #[serde(flatten)]
    config: LimitConfigBody<'a>,
}

/// The part of the reply that each verification decides.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    valid: bool,
    /// `VALID`, `NOT_FOUND`, `FORBIDDEN`, `INSUFFICIENT_PERMISSIONS`, `USAGE_EXCEEDED`,
    /// `RATE_LIMITED`, `DISABLED` or `EXPIRED`.
    code: &'static str,
    /// The remaining credits; omitted if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    credits: Option<i64>,
}

/// The part of the reply that stays the same until the key changes.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct KeyBody<'a> {
    key_id: &'a str,
    enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Meta>,
    /// The expiry time in Unix milliseconds; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    /// Slugs of the key's direct permissions and of the permissions of its roles.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    permissions: &'a [String],
    /// Role names.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    roles: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<IdentityReply>,
}

/// The part of a limit that each verification decides.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LimitStatusBody {
    remaining: i64,
    /// The end of the window in Unix milliseconds.
    reset: Timestamp,
    exceeded: bool,
}

/// The part of a limit that stays the same until the limit changes.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LimitConfigBody<'a> {
    /// The id of the limit; empty for an ad-hoc limit.
    id: &'a str,
    name: &'a str,
    limit: i64,
    /// The window length in milliseconds.
    duration: i64,
    auto_apply: bool,
}

impl Reply for VerifyKeyReply {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        let VerifyResult { code, resolved: view, credits, ratelimits, .. } = &self.0;
        let verdict = Verdict {
            valid: *code == VerificationCode::Valid,
            code: code.as_str(),
            credits: *credits,
        };
        serde_json::to_writer(&mut *into, &verdict)?;
        if !ratelimits.is_empty() {
            into.pop();
            into.extend_from_slice(br#","ratelimits":["#);
            for EvaluatedLimit { limit, status: standing, .. } in ratelimits {
                serde_json::to_writer(&mut *into, &LimitStatusBody::from(standing))?;
                append_object(
                    into,
                    limit
                        .cached_json
                        .get_or_init(|| to_cached_json(&LimitConfigBody::from(&**limit))),
                );
                into.push(b',');
            }
            into.pop();
            into.extend_from_slice(b"]}");
        }
        if let Some(view) = view.as_ref().map(|view| &view.value) {
            match view.cached_json.get() {
                Some(json) => append_object(into, json),
                None => {
                    let json = to_cached_json(&KeyBody::from(view));
                    append_object(into, &json);
                    if json.len() <= CACHED_JSON_MAX_BYTES {
                        // A concurrent verification may have set it already.
                        let _ = view.cached_json.set(json);
                    }
                }
            }
        }
        Ok(())
    }

    fn is_degraded(&self) -> bool {
        self.0.is_degraded
    }

    fn add_ratelimit_headers(
        &self,
        headers: &mut HeaderMap,
        format: RatelimitHeaders,
        now: Timestamp,
    ) {
        let limits = self.0.ratelimits.iter().map(CheckedLimit::from);
        ratelimit_headers::add(headers, format, limits, now);
    }
}

/// Renders a part that stays the same as JSON, to be cached.
fn to_cached_json(part: &impl Serialize) -> Box<str> {
    serde_json::to_string(part).expect("only strings and numbers").into()
}

/// Merges a JSON object into the object at the end of `into`. Neither may be empty.
fn append_object(into: &mut Vec<u8>, object: &str) {
    into.pop();
    into.push(b',');
    into.extend_from_slice(&object.as_bytes()[1..]);
}

impl JsonSchema for VerifyKeyReply {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Outcome".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        VerifyKeyBody::json_schema(generator)
    }
}

impl<'a> From<&'a ResolvedKey> for KeyBody<'a> {
    fn from(view: &'a ResolvedKey) -> Self {
        let (key, identity) = (&view.key, view.identity());
        Self {
            key_id: key.id(),
            enabled: key.is_enabled(),
            name: key.name(),
            meta: key.meta().filter(|meta| !meta.is_empty()),
            expires: key.expires_at().filter(|at| at.0 != 0),
            permissions: view.permissions(),
            roles: view.roles(),
            identity: identity.map(|id| IdentityReply::new(id, view.shared_ratelimits())),
        }
    }
}

impl From<&keys::WindowStatus> for LimitStatusBody {
    fn from(status: &keys::WindowStatus) -> Self {
        let keys::WindowStatus { remaining, reset_at: reset, is_exceeded: exceeded, used: _ } =
            *status;
        Self { remaining, reset, exceeded }
    }
}

impl<'a> From<&'a keys::ResolvedLimit> for LimitConfigBody<'a> {
    fn from(limit: &'a keys::ResolvedLimit) -> Self {
        Self {
            id: &limit.id,
            name: &limit.name,
            limit: limit.limit,
            duration: limit.duration_ms,
            auto_apply: limit.auto_apply,
        }
    }
}
