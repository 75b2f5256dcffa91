//! `keyward tail`: verifications as they happen.

use std::time::Duration;

use clap::Args;
use domain::analytics_access::{RecentVerification, Tail, TailFilter, step_tail};
use domain::keys::VerificationCode;
use foundation::config::Settings;
use foundation::model::escape_hidden;
use serde_json::{Value, json};

use super::CommandResult;
use super::input::parse_duration_ms;
use super::operator::Operator;
use super::output::{
    CommandOutput, FAILURE, HEADING, NO_VALUE, SUCCESS, end_of_output, escape_json, try_print_line,
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
    /// Show only verifications that did not succeed
    #[arg(long)]
    refused: bool,
    /// Begin with verifications that happened within this time, such as 10m, at most one day [default: new ones only]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_ms)]
    since: Option<i64>,
    /// Stop after this number of verifications [default: run until interrupted]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
}

pub async fn run(settings: Settings, out: CommandOutput, options: TailOptions) -> CommandResult {
    let Operator { app, caller } = Operator::open(settings, &options.workspace).await?;
    let TailOptions { api_id, key_id, refused, since, limit, workspace: _ } = options;
    let excluded = if refused { VerificationCode::Valid.as_str() } else { "" };
    let filter = TailFilter { api_id, key_id, excluded_outcome: excluded.to_owned() };
    let since = since.map(|ms| app.context.clock.now().plus_ms(-ms));
    let mut tail = Tail::start(&app.analytics, since).await?;
    let mut left = limit.unwrap_or(u64::MAX);
    if !out.json
        && let Err(error) = try_print_line(&header())
    {
        return end_of_output(&error);
    }
    loop {
        let step = step_tail(&app.analytics, &caller, &mut tail, &filter).await?;
        for event in &step.events {
            let line = match out.json {
                true => escape_json(&event_json(event)),
                false => event_line(event),
            };
            if let Err(error) = try_print_line(&line) {
                return end_of_output(&error);
            }
            left -= 1;
            if left == 0 {
                app.context.close_store().await;
                return Ok(());
            }
        }
        if step.is_truncated
            && !out.json
            && let Err(error) = try_print_line("(more verifications were left out)")
        {
            return end_of_output(&error);
        }
        tokio::time::sleep(STEP_PAUSE).await;
    }
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
    let at = jiff::Timestamp::from_millisecond(event.occurred_at.0).unwrap_or_default();
    let is_valid = event.outcome == VerificationCode::Valid.as_str();
    let style = if is_valid { SUCCESS } else { FAILURE };
    let (result, key) = (escape_hidden(&event.outcome), event.key_id.as_str());
    let credits = event.spent_credits;
    let latency = format!("{}.{:03} ms", event.latency_us / 1000, event.latency_us % 1000);
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
