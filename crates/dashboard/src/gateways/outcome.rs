//! The outcome of a tried request, explained.

use api::gateway::{GatewayAnswer, Header, path_of};
use domain::gateways::{ActivePolicy, GatewayDecision, GatewayPreview, RequestPath, RuleMatch};
use domain::keys::{EvaluatedLimit, VerificationCode, VerifyResult};
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::{KeyId, RequestId};
use foundation::model::GatewayRule;

use super::super::format::{TimeLabel, capitalize, format_count, format_start};
use super::super::page_request::WorkspaceRequest;
use super::super::ratelimits::format_rate;
use super::show::RuleTableRow;

/// What a policy decides about a request.
#[derive(Default)]
pub struct OutcomeView {
    pub is_allowed: bool,
    pub code: String,
    /// What the client gets.
    pub status: String,
    pub reason: String,
    pub todo: &'static str,
    pub key_source: Option<String>,
    /// The path of the key's page, and its name or start.
    pub key: Option<(String, String)>,
    pub rule: Option<RuleView>,
    /// The credits that the request costs, and those that remain after it.
    pub credits: Option<(String, String)>,
    pub limits: Vec<LimitView>,
    pub is_degraded: bool,
    /// What the service gets in addition to the request.
    pub identity_headers: Vec<Header>,
    /// What the client is told.
    pub headers: Vec<Header>,
    pub body: Option<String>,
}

/// The rule that applies; `number` begins with 1.
pub struct RuleView {
    pub number: usize,
    pub rule: RuleTableRow,
}

/// A limit that was checked.
pub struct LimitView {
    pub name: String,
    pub rate: String,
    pub remaining: String,
    pub resets: TimeLabel,
    pub is_exceeded: bool,
}

impl OutcomeView {
    pub fn new(
        request: &WorkspaceRequest,
        policy: &ActivePolicy,
        target: &str,
        judgement: Result<GatewayPreview, Error>,
        mut answer: GatewayAnswer,
        now: Timestamp,
    ) -> Self {
        let mut identity_headers = answer.take_identity_headers();
        if policy.policy.config.identity_headers.signed {
            for (name, value) in &mut identity_headers {
                if name == "keyward-assertion" {
                    "(signed for each request)".clone_into(value);
                }
            }
        }
        let view = Self {
            is_allowed: answer.status == 200,
            status: status_text(answer.status),
            identity_headers,
            headers: answer.headers,
            body: answer.body.map(|body| body.text),
            ..Self::default()
        };
        match judgement {
            Ok(preview) => view.with_decision(request, policy, target, &preview, now),
            Err(error) => Self {
                code: error.code().name().to_owned(),
                reason: capitalize(&error.detail()),
                todo: "Change the rule, or the limits of the key or its identity.",
                ..view
            },
        }
    }

    fn with_decision(
        self,
        request: &WorkspaceRequest,
        policy: &ActivePolicy,
        target: &str,
        preview: &GatewayPreview,
        now: Timestamp,
    ) -> Self {
        let rules = &policy.policy.config.rules;
        let rule = match preview.rule {
            RuleMatch::Rule(at) => rules.get(at).map(|rule| (at + 1, rule)),
            RuleMatch::NoRules | RuleMatch::None => None,
        };
        let key_source = preview.key_source.as_ref().map(ToString::to_string);
        let view = Self {
            rule: rule.map(|(number, rule)| RuleView { number, rule: RuleTableRow::new(rule) }),
            key_source,
            ..self
        };
        match &preview.decision {
            GatewayDecision::NoKey => Self {
                code: "NO_KEY".to_owned(),
                reason: "The request has no key in any location where the policy looks for one"
                    .to_owned(),
                todo: "Send the key in one of these locations, or add a location to the policy.",
                ..view
            },
            GatewayDecision::Verified(result) => {
                let (reason, todo) = explain(result.code, preview, target);
                let view = Self { code: result.code.as_str().to_owned(), reason, todo, ..view };
                view.with_result(request, result, rule.map(|(_, rule)| rule), now)
            }
        }
    }

    fn with_result(
        self,
        request: &WorkspaceRequest,
        result: &VerifyResult,
        rule: Option<&GatewayRule>,
        now: Timestamp,
    ) -> Self {
        let key = result.resolved.as_ref().map(|resolved| {
            let (key, id) = (&resolved.value.key, KeyId::from(resolved.value.key.id()));
            let label = key.name().map_or_else(|| format_start(key.start(), &id), str::to_owned);
            (request.workspace_path(&format!("/keys/{id}")), label)
        });
        let cost = rule.and_then(|rule| rule.cost).unwrap_or(1);
        let number = |number: i64| format_count(number, i64::MAX);
        let limit = |evaluated: &EvaluatedLimit| LimitView {
            name: evaluated.limit.name.to_string(),
            rate: format_rate(evaluated.limit.limit, evaluated.limit.duration_ms),
            remaining: number(evaluated.status.remaining),
            resets: TimeLabel::new(evaluated.status.reset_at, now),
            is_exceeded: evaluated.status.is_exceeded,
        };
        Self {
            key,
            credits: result.credits.map(|left| (number(cost), number(left))),
            limits: result.ratelimits.iter().map(limit).collect(),
            is_degraded: result.is_degraded,
            ..self
        }
    }

    /// Returns the outcome without the id of the preview, which finds no event.
    pub fn without_request_id(mut self, id: &RequestId) -> Self {
        let texts = self.identity_headers.iter_mut().chain(&mut self.headers);
        for text in texts.map(|(_, value)| value).chain(&mut self.body) {
            *text = text.replace(id.as_str(), "req_…");
        }
        self
    }
}

fn status_text(status: u16) -> String {
    let meaning = match status {
        200 => "the request is forwarded to the service",
        401 => "Unauthorized",
        403 => "Forbidden",
        429 => "Too Many Requests",
        _ => "the request is rejected",
    };
    format!("{status}: {meaning}")
}

/// Returns why a key is accepted or rejected, and what to do about it.
fn explain(
    code: VerificationCode,
    preview: &GatewayPreview,
    target: &str,
) -> (String, &'static str) {
    let recorded = || preview.reason.as_deref().unwrap_or_default().to_owned();
    match code {
        VerificationCode::Valid => {
            let reason = match preview.rule {
                RuleMatch::NoRules => "The key is valid, and the policy has no rules",
                RuleMatch::Rule(_) | RuleMatch::None => {
                    "The key is valid and meets the requirements of the rule"
                }
            };
            (reason.to_owned(), "")
        }
        VerificationCode::NotFound => match &preview.other_api {
            Some(api) => (
                format!("The key belongs to the API {api}, whose keys the policy does not accept"),
                "Add the API to the policy, or use a key of one of its APIs.",
            ),
            None => (
                "The key does not exist in this workspace".to_owned(),
                "Check that the key is complete and has not been deleted.",
            ),
        },
        VerificationCode::Forbidden if preview.rule == RuleMatch::None => {
            match RequestPath::parse(path_of(target)) {
                Some(_) => (
                    "No rule of the policy matches the method and the path".to_owned(),
                    "Add a rule for them, or change the request.",
                ),
                None => (
                    "Servers read this path in different ways, so no rule with a path matches"
                        .to_owned(),
                    "Use a path without . and .. segments, \\, ;, # and encoded slashes.",
                ),
            }
        }
        VerificationCode::Forbidden => {
            (recorded(), "Check the allowed networks in the settings of the API.")
        }
        VerificationCode::Disabled => (recorded(), "Enable the key."),
        VerificationCode::Expired => (recorded(), "Extend the expiry of the key, or rotate it."),
        VerificationCode::InsufficientPermissions => (
            recorded(),
            "Assign the permission or a role that includes it to the key, or change the rule.",
        ),
        VerificationCode::RateLimited => {
            (recorded(), "Wait until the window resets, or raise the limit.")
        }
        VerificationCode::UsageExceeded => {
            (recorded(), "Add credits to the key, or configure a refill.")
        }
    }
}
