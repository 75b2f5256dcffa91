//! The simulator: previews the result of a limit check and explains it.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use domain::bounds::{CHECK_DURATION_MAX_MS, DURATION_MIN_MS, IDENTIFIER_MAX};
use domain::ratelimits::{self, CandidateOverride, LimitCheck, SimulationResult};
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::model::{AllowedChars, Namespace};

use super::super::duration_field::DurationField;
use super::super::failure::Failure;
use super::super::field_reader::FieldReader;
use super::super::form::{FormErrors, split_form_errors};
use super::super::format::{TimeLabel, format_count, format_quantity};
use super::super::layout::{Layout, Section};
use super::super::page_request::WorkspaceRequest;
use super::super::{PageResult, render_invalid_page, render_page};
use super::overrides::format_rate;
use super::{load, namespace_path};

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/ratelimits/{namespace}/simulator", get(simulate))
}

#[derive(Template)]
#[template(path = "ratelimits/simulator.html")]
struct SimulatorPage {
    layout: Layout,
    namespace: String,
    path: String,
    identifier: String,
    limit: String,
    window: DurationField,
    cost: String,
    errors: FormErrors,
    /// The result; `None` before the form is submitted.
    outcome: Option<SimulationView>,
}

impl SimulatorPage {
    /// Reads the check to simulate.
    fn read_check(&self, namespace: String) -> Result<LimitCheck, Error> {
        let mut fields = FieldReader::default();
        let (identifier, lengths) = (&self.identifier, 1..=IDENTIFIER_MAX);
        let durations = DURATION_MIN_MS..=CHECK_DURATION_MAX_MS;
        let check = LimitCheck {
            namespace,
            identifier: fields.text("identifier", identifier, lengths, AllowedChars::NonNul),
            limit: fields.integer("limit", &self.limit, 1..=i64::MAX),
            duration_ms: fields.duration_ms("duration", &self.window, durations),
            cost: fields.integer("cost", &self.cost, 0..=i64::MAX),
            is_approximate: false,
        };
        fields.finish(check)
    }
}

struct SimulationView {
    is_admitted: bool,
    rate: String,
    reason: String,
    remaining: String,
    resets: TimeLabel,
    is_degraded: bool,
    candidates: Vec<CandidateRow>,
    has_more: bool,
}

/// An override that matches.
struct CandidateRow {
    identifier: String,
    rate: String,
    match_kind: String,
    result: &'static str,
    is_applied: bool,
}

impl SimulationView {
    fn new(simulated: SimulationResult, identifier: &str, now: Timestamp) -> Self {
        let winner = simulated.candidates.iter().find(|tried| tried.is_applied);
        let why = match winner {
            None => "No active override matches. The limit in the request applies.".into(),
            Some(CandidateOverride { stored: known, .. }) if known.identifier == identifier => {
                "An override exists for exactly this identifier.".to_owned()
            }
            Some(CandidateOverride { stored: known, .. }) => {
                format!("The override for {} matches first.", known.identifier)
            }
        };
        let row = |tried: CandidateOverride| {
            let fate = match (tried.is_applied, tried.is_live) {
                (true, _) => "Applied",
                (false, false) => "Skipped (expired)",
                (false, true) => "Not evaluated",
            };
            let known = tried.stored;
            let how = match known.identifier == identifier {
                true => "Exact match".to_owned(),
                false => describe_pattern(&known.identifier),
            };
            let rate = format_rate(known.limit, known.duration_ms);
            CandidateRow {
                rate,
                match_kind: how,
                result: fate,
                is_applied: tried.is_applied,
                identifier: known.identifier,
            }
        };
        Self {
            is_admitted: simulated.is_admitted,
            rate: format_rate(simulated.limit, simulated.duration_ms),
            reason: why,
            remaining: format_count(simulated.window_status.remaining, i64::MAX),
            resets: TimeLabel::new(simulated.window_status.reset_at, now),
            is_degraded: simulated.is_degraded,
            candidates: simulated.candidates.into_iter().map(row).collect(),
            has_more: simulated.has_more,
        }
    }
}

/// Describes a pattern match.
fn describe_pattern(pattern: &str) -> String {
    let literal = pattern.chars().filter(|c| *c != '*').count();
    let literal = i64::try_from(literal).unwrap_or(i64::MAX);
    format!("Wildcard match, {}", format_quantity(literal, i64::MAX, "literal character"))
}

async fn build_form(
    request: &WorkspaceRequest,
    namespace: Namespace,
) -> Result<SimulatorPage, Failure> {
    let query = &request.page_request.query;
    let or = |field: &str, default: &str| match query.text(field) {
        "" => default.to_owned(),
        text => text.to_owned(),
    };
    Ok(SimulatorPage {
        layout: Layout::for_workspace(request, Section::Ratelimits, "Simulator")
            .await?
            .about(&namespace.name),
        path: namespace_path(request, &namespace.id),
        namespace: namespace.name,
        identifier: query.text("identifier").to_owned(),
        limit: or("limit", "10"),
        window: match query.text("duration") {
            "" => DurationField::from_ms(60_000),
            _ => DurationField::from_form(query, "duration", 0),
        },
        cost: or("cost", "1"),
        errors: FormErrors::default(),
        outcome: None,
    })
}

async fn simulate(request: WorkspaceRequest, Path((_, id)): Path<(String, String)>) -> PageResult {
    let (app, query) = (&request.page_request.app, &request.page_request.query);
    let namespace = load(&request, &id).await?;
    let mut shown = build_form(&request, namespace).await?;
    // Without any input, there is nothing to validate.
    if query.values("identifier").next().is_none() {
        return render_page(&shown);
    }
    match split_form_errors(shown.read_check(id))? {
        Ok(check) => {
            let simulated = ratelimits::simulate(&app.ratelimits, &request.caller, &check).await?;
            shown.outcome =
                Some(SimulationView::new(simulated, &shown.identifier, app.context.clock.now()));
            render_page(&shown)
        }
        Err(errors) => render_invalid_page(&SimulatorPage { errors, ..shown }),
    }
}
