//! Encodes events as lines of JSON for ClickHouse. Each line has all dimensions of its event.

use foundation::clock::Timestamp;
use foundation::error::{Error, Result};
use serde::Serialize;
use store::outbox::OutboxBatch;

use super::batch_builder::{kept, place, tags};
use super::{Event, Ratelimit, Verification};

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

/// Encodes events, of which there must be at least one.
pub fn of(name: String, region: &str, events: &[Event]) -> Result<OutboxBatch> {
    let times = || {
        events.iter().map(|event| match event {
            Event::Verification(event) => event.at,
            Event::Ratelimit(event) => event.at,
        })
    };
    let (mut verifications, mut ratelimits) = (String::new(), String::new());
    for event in events {
        match event {
            Event::Verification(event) => add(&mut verifications, &verification(event, region))?,
            Event::Ratelimit(event) => add(&mut ratelimits, &ratelimit(event))?,
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
    })
}

fn add(lines: &mut String, line: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(line).map_err(|e| Error::Internal(e.to_string()))?;
    lines.push_str(&line);
    lines.push('\n');
    Ok(())
}

fn verification<'a>(event: &'a Verification, region: &'a str) -> VerificationLine<'a> {
    let resolved_key = &event.view.value;
    let (key, identity) = (&resolved_key.stored().key, resolved_key.identity());
    VerificationLine {
        time: event.at,
        workspace_id: key.workspace_id.as_str(),
        api_id: key.api_id.as_str(),
        key_id: key.id.as_str(),
        identity_id: identity.map_or("", |identity| identity.id.as_str()),
        external_id: identity.map_or("", |identity| identity.external_id.as_str()),
        outcome: event.outcome.as_str(),
        tags: tags(event),
        request_id: event.request.as_str(),
        spent_credits: event.spent_credits,
        latency_us: event.latency_us,
        region,
        reason: kept(event.reason.as_deref().unwrap_or_default()),
    }
}

fn ratelimit(event: &Ratelimit) -> RatelimitLine<'_> {
    let (workspace_id, namespace_id) = place(event);
    RatelimitLine {
        time: event.at,
        workspace_id,
        namespace_id,
        identifier: kept(&event.identifier),
        passed: event.passed.into(),
        request_id: event.request.as_str(),
        latency_us: event.latency_us,
        override_id: event.override_id.as_ref().map_or("", |id| id.as_str()),
        max: event.limit,
        remaining: event.remaining,
        reset_at: event.reset_at,
        tokens: event.tokens,
    }
}
