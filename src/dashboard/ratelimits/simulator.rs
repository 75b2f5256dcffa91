//! The simulator: previews the result of a limit check and explains it.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use foundation::clock::Timestamp;
use foundation::model::Namespace;
use serde_json::json;

use super::super::duration_field::{self, DurationField};
use super::super::failure::Failure;
use super::super::form::{FormErrors, split_form_errors};
use super::super::format::{TimeLabel, count};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{Answer, page, refused_page};
use super::overrides::rate;
use super::{found, path};
use crate::domain::ratelimits::{self, CandidateOverride, SimulationResult};
use crate::rpc::v2;
use crate::rpc::v2::ratelimit::limit::Limit;

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/ratelimits/{namespace}/simulator", get(simulate))
}

#[derive(Template)]
#[template(path = "ratelimits/simulator.html")]
struct Simulator {
    shell: Layout,
    namespace: String,
    path: String,
    identifier: String,
    limit: String,
    span: DurationField,
    cost: String,
    faults: FormErrors,
    /// The result; `None` before the form is submitted.
    outcome: Option<Outcome>,
}

struct Outcome {
    passes: bool,
    rate: String,
    why: String,
    left: String,
    ends: TimeLabel,
    degraded: bool,
    tried: Vec<Row>,
    has_more: bool,
}

/// An override that matches.
struct Row {
    identifier: String,
    rate: String,
    how: String,
    fate: &'static str,
    wins: bool,
}

impl Outcome {
    fn new(simulated: SimulationResult, identifier: &str, now: Timestamp) -> Self {
        let winner = simulated.tried.iter().find(|tried| tried.wins);
        let why = match winner {
            None => "No active override matches. The limit in the request applies.".into(),
            Some(CandidateOverride { known, .. }) if known.identifier == identifier => {
                "An override exists for exactly this identifier.".to_owned()
            }
            Some(CandidateOverride { known, .. }) => {
                format!("The override for {} matches first.", known.identifier)
            }
        };
        let row = |tried: CandidateOverride| {
            let fate = match (tried.wins, tried.is_live) {
                (true, _) => "Applied",
                (false, false) => "Skipped (expired)",
                (false, true) => "Not evaluated",
            };
            let known = tried.known;
            let how = match known.identifier == identifier {
                true => "Exact match".to_owned(),
                false => literal(&known.identifier),
            };
            let rate = rate(known.limit, known.duration_ms);
            Row { rate, how, fate, wins: tried.wins, identifier: known.identifier }
        };
        Self {
            passes: simulated.passes,
            rate: rate(simulated.limit, simulated.duration_ms),
            why,
            left: count(simulated.standing.remaining, i64::MAX),
            ends: TimeLabel::new(simulated.standing.reset, now),
            degraded: simulated.degraded,
            tried: simulated.tried.into_iter().map(row).collect(),
            has_more: simulated.has_more,
        }
    }
}

/// Describes a pattern match.
fn literal(pattern: &str) -> String {
    let literal = pattern.chars().filter(|c| *c != '*').count();
    format!("Wildcard match, {literal} literal characters")
}

async fn frame(request: &WorkspaceRequest, namespace: Namespace) -> Result<Simulator, Failure> {
    let query = &request.visit.query;
    let or = |field: &str, default: &str| match query.text(field) {
        "" => default.to_owned(),
        text => text.to_owned(),
    };
    Ok(Simulator {
        shell: Layout::of(request, Section::Ratelimits, "Simulator").await?,
        path: path(request, &namespace.id),
        namespace: namespace.name,
        identifier: query.text("identifier").to_owned(),
        limit: or("limit", "10"),
        span: match query.text("duration") {
            "" => DurationField::of_ms(60_000),
            _ => DurationField::filled_in(query, "duration", 0),
        },
        cost: or("cost", "1"),
        faults: FormErrors::default(),
        outcome: None,
    })
}

async fn simulate(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let (app, query) = (&request.visit.app, &request.visit.query);
    let namespace = found(&request, &id).await?;
    let mut shown = frame(&request, namespace).await?;
    // Without any input, there is nothing to validate.
    if query.all("identifier").next().is_none() {
        return page(&shown);
    }
    let body = json!({
        "namespace": id,
        "identifier": shown.identifier,
        "limit": duration_field::number(&shown.limit),
        "duration": shown.span.ms(),
        "cost": duration_field::number(&shown.cost),
    });
    match split_form_errors(v2::read::<Limit>(&body))? {
        Ok(check) => {
            let simulated = ratelimits::simulate(app, &request.caller, &check.into()).await?;
            shown.outcome = Some(Outcome::new(simulated, &shown.identifier, app.clock.now()));
            page(&shown)
        }
        Err(faults) => refused_page(&Simulator { faults, ..shown }),
    }
}
