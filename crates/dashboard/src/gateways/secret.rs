//! The secret of a gateway policy, which is shown once: when the policy is created and when the secret is rotated.

use askama::Template;
use axum::extract::Path;
use domain::gateways::{self, NewSecret};
use domain::permission::Action;
use foundation::clock::{DAY_MS, HOUR_MS, MINUTE_MS};
use foundation::error::Error;
use foundation::model::GatewayPolicy;

use super::super::format::TimeLabel;
use super::super::layout::{Layout, Section};
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
    secret: String,
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

/// Renders the page of a new policy with its secret.
pub async fn render_created(request: &WorkspaceRequest, new: NewSecret) -> PageResult {
    render(request, new, ReplacedSecret::None, "Your new policy").await
}

async fn render(
    request: &WorkspaceRequest,
    new: NewSecret,
    replaced: ReplacedSecret,
    title: &'static str,
) -> PageResult {
    let secret = new.secret.expose();
    render_page(&SecretPage {
        layout: Layout::for_workspace(request, Section::Gateways, title).await?,
        list: request.workspace_path("/gateways"),
        path: policy_path(request, &new.policy.id),
        name: new.policy.name,
        nginx_line: format!("proxy_set_header Keyward-Gateway-Secret \"{secret}\";"),
        environment_line: format!("KEYWARD_GATEWAY_SECRET={secret}"),
        secret: secret.to_owned(),
        replaced,
    })
}

pub async fn show_rotate_form(
    request: WorkspaceRequest,
    Path((_, named)): Path<(String, String)>,
) -> PageResult {
    let policy = load(&request, &named).await?;
    request.caller.require_on(Action::UpdateGatewayPolicy, &policy.id)?;
    render_page(&RotateSecretPage {
        layout: Layout::for_workspace(&request, Section::Gateways, "Rotate secret").await?,
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
    let new = gateways::rotate_secret(context, &request.caller, &named, grace).await?;
    let now = context.clock.now();
    let replaced = match grace {
        0 => ReplacedSecret::Expired,
        grace => ReplacedSecret::Expires(TimeLabel::new(now.plus_ms(grace), now)),
    };
    render(&request, new, replaced, "Your new secret").await
}
