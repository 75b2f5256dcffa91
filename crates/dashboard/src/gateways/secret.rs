//! The secret of a gateway policy, which is shown once: when the policy is created and when the secret is rotated.

use askama::Template;
use axum::extract::Path;
use domain::form_results::ShownSecret;
use domain::gateways;
use domain::permission::Action;
use foundation::clock::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use foundation::error::Error;
use foundation::model::GatewayPolicy;
use futures_util::TryFutureExt as _;

use super::super::format::TimeLabel;
use super::super::layout::{Layout, Section};
use super::super::one_time_form::{
    create_once, redirect_to_secret, render_secret_page, take_secret,
};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, render_page};
use super::{load, policy_path};

/// The options for how long the replaced secret stays valid.
const GRACE_OPTIONS: [(i64, &str); 5] = [
    (0, "Immediately"),
    (15 * MINUTE_MS, "After 15 minutes"),
    (HOUR_MS, "After 1 hour"),
    (DAY_MS, "After 24 hours"),
    (7 * DAY_MS, "After 7 days"),
];

#[derive(Template)]
#[template(path = "gateways/secret.html")]
struct SecretPage {
    layout: Layout,
    list: String,
    path: String,
    name: String,
    /// The secret, or the reason why it cannot be shown.
    secret: Result<PolicySecret, &'static str>,
}

struct PolicySecret {
    text: String,
    /// The line of the file that nginx includes.
    nginx_line: String,
    /// The line of the environment of the other gateways.
    environment_line: String,
    replaced: ReplacedSecret,
}

/// What becomes of the secret before.
enum ReplacedSecret {
    /// There was none: the policy is new.
    None,
    Expired,
    Expires(TimeLabel),
}

#[derive(Template)]
#[template(path = "gateways/rotate.html")]
struct RotateSecretPage {
    layout: Layout,
    path: String,
    policy: GatewayPolicy,
    graces: [(i64, &'static str); 5],
}

impl PolicySecret {
    fn new(secret: &ShownSecret, now: Timestamp) -> Self {
        let text = secret.plaintext.expose();
        Self {
            nginx_line: format!("proxy_set_header Keyward-Gateway-Secret \"{text}\";"),
            environment_line: format!("KEYWARD_GATEWAY_SECRET={text}"),
            text: text.to_owned(),
            replaced: match secret.replaced_expires_at {
                None => ReplacedSecret::None,
                Some(at) if at <= now => ReplacedSecret::Expired,
                Some(at) => ReplacedSecret::Expires(TimeLabel::new(at, now)),
            },
        }
    }

    fn title(&self) -> &'static str {
        match self.replaced {
            ReplacedSecret::None => "Your new policy",
            ReplacedSecret::Expired | ReplacedSecret::Expires(_) => "Your new secret",
        }
    }
}

/// Shows the secret of a policy that was just created, or whose secret was just rotated.
pub async fn show(
    request: WorkspaceRequest,
    Path((_, named, form_id)): Path<(String, String, String)>,
) -> PageResult {
    let policy = load(&request, &named).await?;
    let now = request.page_request.app.context.clock.now();
    let secret = take_secret(&request, policy.id.as_str(), form_id).await?;
    let secret = secret.map(|secret| PolicySecret::new(&secret, now));
    let title = secret.as_ref().map_or("Secret of the policy", PolicySecret::title);
    let is_shown = secret.is_ok();
    let page = SecretPage {
        layout: Layout::for_workspace(&request, Section::Gateways, title)
            .await?
            .about(&policy.name),
        list: request.workspace_path("/gateways"),
        path: policy_path(&request, &policy.id),
        name: policy.name,
        secret,
    };
    render_secret_page(&page, is_shown)
}

pub async fn show_rotate_form(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    let policy = load(&request, &named).await?;
    request.caller.require_on(Action::UpdateGatewayPolicy, &policy.id)?;
    render_page(&RotateSecretPage {
        layout: Layout::for_workspace(&request, Section::Gateways, "Rotate secret")
            .await?
            .about(&policy.name),
        path: policy_path(&request, &policy.id),
        policy,
        graces: GRACE_OPTIONS,
    })
}

pub async fn rotate(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    let context = &request.page_request.app.context;
    let grace = request.page_request.form.text("grace").parse().ok();
    let grace = grace.filter(|ms| GRACE_OPTIONS.iter().any(|(known, _)| known == ms));
    let grace =
        grace.ok_or_else(|| Error::invalid("grace", "select when the old secret expires"))?;
    let rotation = gateways::rotate_secret(context, &request.caller, &named, grace);
    let policy = create_once(&request, rotation.map_ok(|new| new.policy.id)).await?;
    redirect_to_secret(&request, &format!("/gateways/{policy}"))
}
