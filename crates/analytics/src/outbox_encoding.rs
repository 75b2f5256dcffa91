//! Encodes events as lines of JSON for ClickHouse. Each line has all dimensions of its event.

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use serde::Serialize;
use store::events::{TotalDelta, minutes_of_totals};
use store::outbox::OutboxBatch;

use crate::batch_builder::{namespace_ids, replace_nul, sorted_tags};
use crate::event::{Event, LimitCheckRecord, VerificationRecord};

#[derive(Serialize)]
struct VerificationLine<'a> {
    time: Timestamp,
    workspace_id: &'a str,
    api_id: &'a str,
    key_id: &'a str,
    identity_id: &'a str,
    external_id: &'a str,
    outcome: &'static str,
    tags: Vec<String>,
    request_id: &'a str,
    spent_credits: i64,
    latency_us: i64,
    region: &'a str,
    reason: String,
}

#[derive(Serialize)]
struct RatelimitLine<'a> {
    time: Timestamp,
    workspace_id: &'a str,
    namespace_id: &'a str,
    identifier: String,
    passed: u8,
    request_id: &'a str,
    latency_us: i64,
    override_id: &'a str,
    max: i64,
    remaining: i64,
    reset_at: Timestamp,
    tokens: i64,
}

/// Encodes events. There must be at least one, or a total of verifications that found no key.
pub fn encode_batch(
    name: String,
    region: &str,
    events: &[Event],
    not_found_totals: Vec<TotalDelta>,
) -> Result<OutboxBatch> {
    let times = || {
        let events = events.iter().map(|event| match event {
            Event::Verification(event) => event.occurred_at,
            Event::Ratelimit(event) => event.occurred_at,
        });
        events.chain(minutes_of_totals(&not_found_totals))
    };
    let (mut verifications, mut ratelimits) = (String::new(), String::new());
    for event in events {
        match event {
            Event::Verification(event) => {
                push_line(&mut verifications, &to_verification_line(event, region))?;
            }
            Event::Ratelimit(event) => push_line(&mut ratelimits, &to_ratelimit_line(event))?,
        }
    }
    Ok(OutboxBatch {
        name,
        region: region.to_owned(),
        first_at: times().min().unwrap_or_default(),
        last_at: times().max().unwrap_or_default(),
        events: events.len(),
        verifications,
        ratelimits,
        not_found_totals,
    })
}

fn push_line(lines: &mut String, line: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(line).map_err(|e| Error::Internal(e.to_string()))?;
    lines.push_str(&line);
    lines.push('\n');
    Ok(())
}

fn to_verification_line<'a>(
    event: &'a VerificationRecord,
    region: &'a str,
) -> VerificationLine<'a> {
    let (key, identity) = (&event.resolved_key, event.resolved_key.identity());
    VerificationLine {
        time: event.occurred_at,
        workspace_id: key.workspace_id().as_str(),
        api_id: key.api_id().as_str(),
        key_id: key.key_id(),
        identity_id: identity.map_or("", |identity| identity.id.as_str()),
        external_id: identity.map_or("", |identity| identity.external_id.as_str()),
        outcome: event.outcome.as_str(),
        tags: sorted_tags(event),
        request_id: event.request_id.as_str(),
        spent_credits: event.spent_credits,
        latency_us: event.latency_us,
        region,
        reason: replace_nul(event.reason.as_deref().unwrap_or_default()),
    }
}

fn to_ratelimit_line(event: &LimitCheckRecord) -> RatelimitLine<'_> {
    let (workspace_id, namespace_id) = namespace_ids(event);
    RatelimitLine {
        time: event.occurred_at,
        workspace_id,
        namespace_id,
        identifier: replace_nul(&event.identifier),
        passed: event.passed.into(),
        request_id: event.request_id.as_str(),
        latency_us: event.latency_us,
        override_id: event.override_id.as_ref().map_or("", |id| id.as_str()),
        max: event.limit,
        remaining: event.remaining,
        reset_at: event.reset_at,
        tokens: event.tokens,
    }
}
