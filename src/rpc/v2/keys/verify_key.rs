use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::KeyId;
use foundation::id::MigrationId;
use foundation::secret::Plaintext;

use crate::domain::keys::{
    self, AD_HOC_DURATION_MAX_MS, EvaluatedLimit, LimitSource, RequestedLimit, ResolvedKey,
    VerificationCode, VerifyRequest, VerifyResult,
};
use crate::domain::query::PermissionQuery;
use crate::rpc::bounds::Address;
use crate::rpc::bounds::Unkept;
use crate::rpc::prelude::*;
use crate::rpc::reply::Reply;
use crate::rpc::schemas::{DURATION_MIN_MS, Unsigned, texts};
use crate::rpc::v2::schemas::IdentityReply;

/// Verify a key.
///
/// The answer is 200 whatever comes of it; `valid` and `code` tell. The checks are, in order: the key
/// exists, is enabled, has not expired, satisfies `permissions`; then its limits and its credits are
/// taken together, all or nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VerifyKey {
    /// The whole key, with its prefix.
    pub key: Text<1, 512, Unkept>,
    /// For analytics; they do not influence the outcome.
    #[serde(default)]
    pub tags: Optional<List<Text<1, 512, Unkept>, 0, 20>>,
    /// What the key must be allowed: `documents.read AND (documents.write OR admin)`.
    #[serde(default)]
    pub permissions: Optional<Text<1, 1000, Unkept>>,
    #[serde(default)]
    pub credits: Optional<Object<Cost>>,
    /// Limits to check besides those that apply by themselves.
    #[serde(default)]
    pub ratelimits: Optional<List<Object<Limit>, 0, 100>>,
    /// The migration that the key may still be waiting in.
    #[serde(default)]
    pub migration_id: Optional<Text<0, 256>>,
    /// From where your user uses the key, for APIs whose keys may be used from some networks only. Left out:
    /// the address that this request came from.
    #[serde(default)]
    pub ip_address: Optional<Address>,
}

/// Uses to spend.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cost {
    /// 0 only looks. Left out with all of `credits`: 1.
    pub cost: Int<0, 1_000_000_000_000>,
}

/// A limit to check: one of the key or its identity by name, or, with limit and duration, one that
/// is made for this call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    pub name: Text<3, 255>,
    /// Left out: 1. 0 only looks.
    #[serde(default)]
    pub cost: Optional<Unsigned>,
    #[serde(default)]
    pub limit: Optional<Unsigned>,
    /// Milliseconds; 1000 to 2592000000, 30 days, where `limit` is given too.
    #[serde(default)]
    pub duration: Optional<Unsigned>,
}

impl Operation for VerifyKey {
    const NAME: &'static str = "keys.verifyKey";
    const NEEDS: AccessRule = AccessRule::HiddenUnlessPermitted(&[Action::VerifyKey]);
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
        let verified = keys::verify(app, caller, self.try_into()?).await?;
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
                .map(|query| PermissionQuery::Query(query.into_string())),
            cost: request.credits.0.map(|Object(credits)| credits.cost.0),
            ratelimits: limits.into_iter().enumerate().map(wanted).collect::<Result<_>>()?,
            address: request.ip_address.0.map(|address| address.0),
            migration: request.migration_id.0.map(|id| MigrationId::from(id.into_string())),
            tags: request.tags.0.map_or_else(Vec::new, texts),
        })
    }
}

fn wanted((at, Object(limit)): (usize, Object<Limit>)) -> Result<RequestedLimit> {
    let wanted = match (limit.limit.0, limit.duration.0) {
        (Some(_), Some(Int(duration)))
            if !(DURATION_MIN_MS..=AD_HOC_DURATION_MAX_MS).contains(&duration) =>
        {
            return Err(Error::invalid(
                "/properties/ratelimits/items/properties/duration",
                format!(
                    "ratelimits[{at}].duration must be from {DURATION_MIN_MS} to \
                    {AD_HOC_DURATION_MAX_MS} beside a limit"
                ),
            ));
        }
        (Some(limit), Some(duration)) => {
            LimitSource::AdHoc { limit: limit.0, duration_ms: duration.0 }
        }
        // One of them alone says nothing: the stored limit counts.
        (Some(_) | None, None) | (None, Some(_)) => LimitSource::Stored,
    };
    let cost = limit.cost.0.map_or(1, |cost| cost.0);
    Ok(RequestedLimit { name: limit.name.into_string(), cost, limit: wanted })
}

/// As much of what stays the same is kept ready with a key; more, as a large meta makes it, is written each time.
const TOLD_MAX_BYTES: usize = 4096;

/// What came of it.
#[derive(Debug)]
pub struct VerifyKeyReply(VerifyResult);

/// What came of it. For `NOT_FOUND` there is nothing but `valid` and `code`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only described; `Outcome` writes its parts")]
struct Told<'a> {
    #[serde(flatten)]
    verdict: Verdict,
    /// The limits that were checked, by name.
    #[schemars(default, skip_serializing_if = "Vec::is_empty")]
    ratelimits: Vec<ToldLimit<'a>>,
    #[serde(flatten)]
    known: Option<Known<'a>>,
}

/// A limit that was checked.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only described; `Outcome` writes its parts")]
struct ToldLimit<'a> {
    #[serde(flatten)]
    standing: ToldStanding,
    #[serde(flatten)]
    known: KnownLimit<'a>,
}

/// The part that each verification decides.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    valid: bool,
    /// `VALID`, `NOT_FOUND`, `FORBIDDEN`, `INSUFFICIENT_PERMISSIONS`, `USAGE_EXCEEDED`,
    /// `RATE_LIMITED`, `DISABLED` or `EXPIRED`.
    code: &'static str,
    /// Uses left; left out: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    credits: Option<i64>,
}

/// The part that stays the same until the key changes.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Known<'a> {
    key_id: &'a KeyId,
    enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Meta>,
    /// Unix milliseconds; left out: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    /// Slugs, the key's own and those of its roles.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    permissions: &'a [String],
    /// Names.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    roles: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<IdentityReply>,
}

/// Of a limit, the part that each verification decides.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToldStanding {
    remaining: i64,
    /// The end of the window, in unix milliseconds.
    reset: Timestamp,
    exceeded: bool,
}

/// Of a limit, the part that stays the same.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct KnownLimit<'a> {
    /// Empty for a limit that was made for this call.
    id: &'a str,
    name: &'a str,
    limit: i64,
    /// Milliseconds.
    duration: i64,
    auto_apply: bool,
}

impl Reply for VerifyKeyReply {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        let VerifyResult { code, view, credits, ratelimits, degraded: _ } = &self.0;
        let verdict = Verdict {
            valid: *code == VerificationCode::Valid,
            code: code.as_str(),
            credits: *credits,
        };
        serde_json::to_writer(&mut *into, &verdict)?;
        if !ratelimits.is_empty() {
            into.pop();
            into.extend_from_slice(br#","ratelimits":["#);
            for EvaluatedLimit { limit, standing } in ratelimits {
                serde_json::to_writer(&mut *into, &ToldStanding::from(standing))?;
                join(into, limit.told.get_or_init(|| known(&KnownLimit::from(&**limit))));
                into.push(b',');
            }
            into.pop();
            into.extend_from_slice(b"]}");
        }
        if let Some(view) = view.as_ref().map(|view| &view.value) {
            match view.told.get() {
                Some(told) => join(into, told),
                None => {
                    let told = known(&Known::from(view));
                    join(into, &told);
                    if told.len() <= TOLD_MAX_BYTES {
                        // Another verification may have been faster.
                        let _ = view.told.set(told);
                    }
                }
            }
        }
        Ok(())
    }

    fn is_degraded(&self) -> bool {
        self.0.degraded
    }
}

/// What stays the same, as it is kept.
fn known(what: &impl Serialize) -> Box<str> {
    serde_json::to_string(what).expect("texts and numbers").into()
}

/// Makes one object of the one just written and another. Neither is empty.
fn join(into: &mut Vec<u8>, object: &str) {
    into.pop();
    into.push(b',');
    into.extend_from_slice(&object.as_bytes()[1..]);
}

impl JsonSchema for VerifyKeyReply {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Outcome".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Told::json_schema(generator)
    }
}

impl<'a> From<&'a ResolvedKey> for Known<'a> {
    fn from(view: &'a ResolvedKey) -> Self {
        let key = &view.stored().key;
        let identity = view.identity();
        Self {
            key_id: &key.id,
            enabled: key.enabled,
            name: key.name.as_deref(),
            meta: key.meta.as_ref().filter(|meta| !meta.is_empty()),
            expires: key.expires_at.filter(|at| at.0 != 0),
            permissions: &view.permissions,
            roles: &view.roles,
            identity: identity.map(|id| IdentityReply::new(id, view.shared_ratelimits())),
        }
    }
}

impl From<&keys::WindowStatus> for ToldStanding {
    fn from(standing: &keys::WindowStatus) -> Self {
        let keys::WindowStatus { remaining, reset, exceeded } = *standing;
        Self { remaining, reset, exceeded }
    }
}

impl<'a> From<&'a keys::ResolvedLimit> for KnownLimit<'a> {
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
