//! What a check would come to, and why.

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
    /// Absent: nothing was asked yet.
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
            None => {
                "no override that is live matches: the check counts with what it asks for".into()
            }
            Some(CandidateOverride { known, .. }) if known.identifier == identifier => {
                "an override is set for exactly this identifier".to_owned()
            }
            Some(CandidateOverride { known, .. }) => {
                format!("the override for {} is the first that matches", known.identifier)
            }
        };
        let row = |tried: CandidateOverride| {
            let fate = match (tried.wins, tried.is_live) {
                (true, _) => "counts",
                (false, false) => "expired, passed over",
                (false, true) => "not reached",
            };
            let known = tried.known;
            let how = match known.identifier == identifier {
                true => "exactly".to_owned(),
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

/// How much of a pattern is no star.
fn literal(pattern: &str) -> String {
    let literal = pattern.chars().filter(|c| *c != '*').count();
    format!("as a pattern, {literal} characters beside its stars")
}

async fn frame(asked: &WorkspaceRequest, namespace: Namespace) -> Result<Simulator, Failure> {
    let query = &asked.visit.query;
    let or = |field: &str, default: &str| match query.text(field) {
        "" => default.to_owned(),
        text => text.to_owned(),
    };
    Ok(Simulator {
        shell: Layout::of(asked, Section::Ratelimits, "Simulator").await?,
        path: path(asked, &namespace.id),
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

async fn simulate(asked: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> Answer {
    let (app, query) = (&asked.visit.app, &asked.visit.query);
    let namespace = found(&asked, &id).await?;
    let mut shown = frame(&asked, namespace).await?;
    // Whoever has just come has sent nothing that could be wrong.
    if query.all("identifier").next().is_none() {
        return page(&shown);
    }
    let request = json!({
        "namespace": id,
        "identifier": shown.identifier,
        "limit": duration_field::number(&shown.limit),
        "duration": shown.span.ms(),
        "cost": duration_field::number(&shown.cost),
    });
    match split_form_errors(v2::read::<Limit>(&request))? {
        Ok(check) => {
            let simulated = ratelimits::simulate(app, &asked.caller, &check.into()).await?;
            shown.outcome = Some(Outcome::new(simulated, &shown.identifier, app.clock.now()));
            page(&shown)
        }
        Err(faults) => refused_page(&Simulator { faults, ..shown }),
    }
}
