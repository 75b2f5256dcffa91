//! `keyward tail`: verifications or limit checks as they happen.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use domain::analytics_access::{
    CheckTailFilter, RecentCheck, RecentVerification, Tail, TailFilter, TailStep,
    require_tail_sources, step_check_tail, step_tail,
};
use domain::app::App;
use domain::caller::Caller;
use domain::keys::VerificationCode;
use domain::ratelimits::namespaces;
use foundation::clock::DAY_MS;
use foundation::config::Settings;
use foundation::error::{Error, ResourceRef, Result};
use foundation::model::escape_hidden;
use serde_json::{Value, json};

use super::CommandResult;
use super::input::parse_duration_ms;
use super::operator::Operator;
use super::output::{
    CommandOutput, FAILURE, HEADING, NO_VALUE, SUCCESS, end_of_output, escape_json, print_note,
    try_print_line,
};

/// The pause between reads. A server writes events once a second.
const STEP_PAUSE: Duration = Duration::from_millis(500);

#[derive(Args)]
pub struct TailOptions {
    /// Show only verifications of keys of this API
    #[arg(long = "api", value_name = "ID", default_value = "", hide_default_value = true)]
    api_id: String,
    /// Show only verifications of this key
    #[arg(long = "key", value_name = "ID", default_value = "", hide_default_value = true)]
    key_id: String,
    /// Show checks of the standalone rate limiter instead of verifications
    #[arg(long, conflicts_with_all = ["api_id", "key_id"])]
    limits: bool,
    /// Show only limit checks in this namespace: its name or ID
    #[arg(long, value_name = "NAME", requires = "limits")]
    namespace: Option<String>,
    /// Show only limit checks of this identifier
    #[arg(long, value_name = "TEXT", requires = "limits")]
    identifier: Option<String>,
    /// Show only rejected requests
    #[arg(long, alias = "refused")]
    rejected: bool,
    /// Begin with what happened within this time, such as 10m, at most one day [default: new only]
    #[arg(long, value_name = "DURATION", value_parser = parse_since)]
    since: Option<i64>,
    /// Stop after this number of lines [default: run until interrupted]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
}

fn parse_since(text: &str) -> std::result::Result<i64, String> {
    let ms = parse_duration_ms(text)?;
    if ms <= DAY_MS { Ok(ms) } else { Err("must be at most one day".into()) }
}

pub async fn run(settings: Settings, out: CommandOutput, options: TailOptions) -> CommandResult {
    let Operator { app, caller } = Operator::open(settings, &options.workspace).await?;
    let since = options.since.map(|ms| app.context.clock.now().plus_ms(-ms));
    let mut tail = Tail::start(&app.analytics, since).await?;
    let lines_max = options.limit.unwrap_or(u64::MAX);
    let followed = if options.limits {
        let mut names = NamespaceNames::load(&app, &caller).await?;
        let filter = CheckTailFilter {
            namespace_id: options.namespace.map_or(Ok(String::new()), |name| names.find(&name))?,
            identifier: options.identifier.unwrap_or_default(),
            is_refused: options.rejected,
        };
        follow(out, lines_max, check_header(), async || {
            let step = step_check_tail(&app.analytics, &caller, &mut tail, &filter).await?;
            names.reload_if_unknown(&app, &caller, &step.events).await?;
            Ok(step.map(|check| match out.json {
                true => escape_json(&check_json(&check, &names)),
                false => check_line(&check, &names),
            }))
        })
        .await
    } else {
        let excluded = if options.rejected { VerificationCode::Valid.as_str() } else { "" };
        let filter = TailFilter {
            api_id: options.api_id,
            key_id: options.key_id,
            excluded_outcome: excluded.to_owned(),
        };
        require_tail_sources(&app.context, &app.analytics, &caller, &filter).await?;
        follow(out, lines_max, header(), async || {
            let step = step_tail(&app.analytics, &caller, &mut tail, &filter).await?;
            Ok(step.map(|event| match out.json {
                true => escape_json(&event_json(&event)),
                false => event_line(&event),
            }))
        })
        .await
    };
    app.context.close_store().await;
    followed
}

/// Prints what is read until `lines_max` lines are printed or the output is closed.
async fn follow(
    out: CommandOutput,
    lines_max: u64,
    header: String,
    mut read: impl AsyncFnMut() -> Result<TailStep<String>>,
) -> CommandResult {
    let mut left = lines_max;
    if !out.json
        && let Err(error) = try_print_line(&header)
    {
        return end_of_output(&error);
    }
    loop {
        let step = read().await?;
        for line in step.events {
            if let Err(error) = try_print_line(&line) {
                return end_of_output(&error);
            }
            left -= 1;
            if left == 0 {
                return Ok(());
            }
        }
        if step.is_truncated {
            print_note("Some lines were left out: at most 1,000 are shown at a time.");
        }
        tokio::time::sleep(STEP_PAUSE).await;
    }
}

/// The names of the namespaces of a workspace by their IDs, deleted ones included.
struct NamespaceNames(HashMap<String, String>);

impl NamespaceNames {
    async fn load(app: &App, caller: &Caller) -> Result<Self> {
        let all = namespaces::list(&app.context, caller.workspace_id()).await?;
        let names = all.into_iter().map(|namespace| (namespace.id.to_string(), namespace.name));
        Ok(Self(names.collect()))
    }

    /// Loads the names again if a check is in a namespace that was created since.
    async fn reload_if_unknown(
        &mut self,
        app: &App,
        caller: &Caller,
        checks: &[RecentCheck],
    ) -> Result<()> {
        let is_unknown = |check: &RecentCheck| !self.0.contains_key(&check.namespace_id);
        if checks.iter().any(is_unknown) {
            *self = Self::load(app, caller).await?;
        }
        Ok(())
    }

    /// Returns the ID of the namespace with this ID or name.
    fn find(&self, named: &str) -> Result<String> {
        let mut found = self.0.iter().filter(|(id, name)| *id == named || *name == named);
        let missing = || Error::not_found(ResourceRef::Namespace(named.to_owned()));
        found.next().map(|(id, _)| id.clone()).ok_or_else(missing)
    }

    fn name<'a>(&'a self, check: &'a RecentCheck) -> &'a str {
        self.0.get(&check.namespace_id).unwrap_or(&check.namespace_id)
    }
}

fn check_header() -> String {
    let names = ["TIME", "RESULT", "NAMESPACE", "IDENTIFIER", "COST", "REMAINING", "LATENCY"];
    let [time, result, namespace, identifier, cost, remaining, latency] = names;
    let line = format!(
        "{time:24}  {result:8}  {namespace:20}  {identifier:26}  {cost:>7}  {remaining:>9}  {latency:>9}"
    );
    format!("{HEADING}{line}{HEADING:#}")
}

fn check_line(check: &RecentCheck, names: &NamespaceNames) -> String {
    let at = check.occurred_at.to_calendar();
    let (style, result) = match check.passed {
        true => (SUCCESS, "allowed"),
        false => (FAILURE, "rejected"),
    };
    let (namespace, identifier) =
        (escape_hidden(names.name(check)), escape_hidden(&check.identifier));
    let (cost, remaining, latency) = (check.tokens, check.remaining, format_ms(check.latency_us));
    format!(
        "{at:.3}  {style}{result:8}{style:#}  {namespace:20}  {identifier:26}  {cost:>7}  {remaining:>9}  {latency:>9}"
    )
}

fn check_json(check: &RecentCheck, names: &NamespaceNames) -> Value {
    json!({
        "time": check.occurred_at, "requestId": check.request_id, "namespaceId": check.namespace_id,
        "namespace": names.name(check), "identifier": check.identifier, "passed": check.passed,
        "cost": check.tokens, "limit": check.limit, "remaining": check.remaining,
        "reset": check.reset_at, "overrideId": check.override_id, "latencyUs": check.latency_us,
    })
}

fn format_ms(us: i64) -> String {
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

/// Returns the names of the columns, which have fixed widths because the rows are not known yet.
fn header() -> String {
    let names = ["TIME", "RESULT", "KEY", "CREDITS", "LATENCY", "EXTERNAL ID"];
    let [time, result, key, credits, latency, external_id] = names;
    let line =
        format!("{time:24}  {result:24}  {key:26}  {credits:>7}  {latency:>9}  {external_id}");
    format!("{HEADING}{line}{HEADING:#}")
}

fn event_line(event: &RecentVerification) -> String {
    let at = event.occurred_at.to_calendar();
    let is_valid = event.outcome == VerificationCode::Valid.as_str();
    let style = if is_valid { SUCCESS } else { FAILURE };
    let (result, key) = (escape_hidden(&event.outcome), event.key_id.as_str());
    let credits = event.spent_credits;
    let latency = format_ms(event.latency_us);
    let external_id =
        event.external_id.as_deref().map_or_else(|| NO_VALUE.to_owned(), escape_hidden);
    let reason = event.reason.as_deref().map(|reason| format!("  {}", escape_hidden(reason)));
    let reason = reason.unwrap_or_default();
    format!(
        "{at:.3}  {style}{result:24}{style:#}  {key:26}  {credits:>7}  {latency:>9}  {external_id}{reason}"
    )
}

fn event_json(event: &RecentVerification) -> Value {
    json!({
        "time": event.occurred_at, "requestId": event.request_id, "apiId": event.api_id,
        "keyId": event.key_id, "externalId": event.external_id, "outcome": event.outcome,
        "spentCredits": event.spent_credits, "latencyUs": event.latency_us,
        "region": event.region, "tags": event.tags, "reason": event.reason,
    })
}
