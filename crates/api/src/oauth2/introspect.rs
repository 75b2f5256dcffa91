use domain::keys::{self, IntrospectRequest, ResolvedKey, VerificationCode, VerifyResult};
use foundation::clock::Timestamp;
use foundation::id::ApiId;
use foundation::secret::Plaintext;
use schemars::{Schema, SchemaGenerator};

use crate::bounds::{Address, AnyChar};
use crate::prelude::*;
use crate::reply::Reply;
use crate::v2::keys::verify_key::CreditCost;
use crate::v2::schemas::IdentityReply;

/// The maximum size of the form, and so of a token: a token of another issuer may be longer than any key.
const FORM_MAX_BYTES: usize = 64 * 1024;

/// Introspect a key.
///
/// OAuth 2.0 token introspection (RFC 7662): the key is the token. The response is 200 with `active: false`, and nothing
/// else, if the key is unknown, disabled, expired or not usable for another reason. Without `cost`, no credits are
/// spent and no limits are consumed.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Introspect {
    /// The complete key, including its prefix.
    pub token: Text<1, FORM_MAX_BYTES, AnyChar>,
    /// Ignored: there is one type of token.
    #[serde(default)]
    pub token_type_hint: Optional<Text<1, FORM_MAX_BYTES, AnyChar>>,
    /// The credits to spend, as in `keys.verifyKey`; the rate limits with `autoApply` are consumed too. If a limit or
    /// the credits do not suffice, the key is not active.
    #[serde(default)]
    pub cost: Optional<CreditCost>,
    /// The IP address of your user, for APIs that restrict the networks from which keys may be used. Default: the
    /// address that this request came from.
    #[serde(default)]
    pub ip_address: Optional<Address>,
}

impl Operation for Introspect {
    const NAME: &'static str = "introspect";
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::VerifyKey]);
    const BODY_MAX_BYTES: usize = FORM_MAX_BYTES;
    type Reply = IntrospectReply;

    fn example() -> Value {
        json!({ "token": example::KEY, "token_type_hint": "access_token", "cost": 1 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<IntrospectReply> {
        let result = keys::introspect(&app.keys, caller, self.into()).await?;
        Ok(IntrospectReply(result))
    }
}

impl From<Introspect> for IntrospectRequest {
    fn from(request: Introspect) -> Self {
        Self {
            key: Plaintext::from(request.token.into_string()),
            cost: request.cost.0.map(|cost| cost.0),
            address: request.ip_address.0.map(|address| address.0),
        }
    }
}

/// What the introspection of a key found.
#[derive(Debug)]
pub struct IntrospectReply(VerifyResult);

/// The result. If `active` is false, it is the only field.
#[derive(Serialize, JsonSchema)]
struct IntrospectBody<'a> {
    active: bool,
    #[serde(flatten)]
    token: Option<TokenBody<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct TokenBody<'a> {
    /// The permissions of the key and of its roles, separated by spaces; omitted if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    /// The API of the key.
    client_id: &'a ApiId,
    /// The external id of the end user who owns the key, or the key id.
    sub: &'a str,
    /// Always `Bearer`.
    token_type: &'static str,
    /// The expiry time in Unix seconds; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<i64>,
    /// The creation time in Unix seconds.
    iat: i64,
    /// The key id.
    jti: &'a str,
    keyward: KeywardBody<'a>,
}

/// What OAuth has no name for.
#[derive(Serialize, JsonSchema)]
struct KeywardBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The remaining credits; omitted if unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    credits: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Meta>,
    /// Role names.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    roles: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<IdentityReply>,
}

impl Reply for IntrospectReply {
    fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        let VerifyResult { code, resolved, credits, .. } = &self.0;
        let resolved = resolved.as_ref().filter(|_| *code == VerificationCode::Valid);
        let token = resolved.map(|resolved| TokenBody::new(&resolved.value, *credits));
        serde_json::to_writer(into, &IntrospectBody { active: token.is_some(), token })
    }

    fn is_degraded(&self) -> bool {
        self.0.is_degraded
    }
}

impl JsonSchema for IntrospectReply {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Introspection".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        IntrospectBody::json_schema(generator)
    }
}

impl<'a> TokenBody<'a> {
    fn new(resolved: &'a ResolvedKey, credits: Option<i64>) -> Self {
        let (key, identity) = (&resolved.key, resolved.identity());
        let external_id = identity.map(|identity| identity.external_id.as_str());
        let permissions = resolved.permissions();
        Self {
            scope: (!permissions.is_empty()).then(|| permissions.join(" ")),
            client_id: key.api_id(),
            sub: external_id.or(key.owner_id()).unwrap_or(key.id()),
            token_type: "Bearer",
            exp: key.expires_at().filter(|at| at.0 != 0).map(to_seconds),
            iat: to_seconds(key.created_at()),
            jti: key.id(),
            keyward: KeywardBody {
                name: key.name(),
                credits,
                environment: key.environment(),
                meta: key.meta().filter(|meta| !meta.is_empty()),
                roles: resolved.roles(),
                identity: identity
                    .map(|identity| IdentityReply::new(identity, resolved.shared_ratelimits())),
            },
        }
    }
}

/// Returns whole Unix seconds, rounded down: a resource server must not use a key for longer than Keyward does.
fn to_seconds(time: Timestamp) -> i64 {
    time.0.div_euclid(1000)
}
