//! The pages of the audit log: list, entry and undo.

mod labels;
mod show;

use askama::Template;
use axum::Router;
use axum::routing::{get, post};
use foundation::clock::Timestamp;
use serde_json::Value;

use super::analytics::{DAY_MS, day, shown};
use super::form::Form;
use super::format::TimeLabel;
use super::layout::{Layout, Section};
use super::page_request::WorkspaceRequest;
use super::pagination::{PAGE, Pages};
use super::{Answer, page};
use crate::domain::audit::{self, AuditFilter, StoredEntry};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/audit", get(list))
        .route("/dashboard/{workspace}/audit/{entry}", get(show::show))
        .route("/dashboard/{workspace}/audit/{entry}/undo", post(show::undo))
}

#[derive(Template)]
#[template(path = "audit/list.html")]
struct List {
    shell: Layout,
    path: String,
    rows: Vec<Row>,
    pages: Pages,
    filter: Filter,
    /// The options: event name, label, whether it is selected.
    events: Vec<(&'static str, &'static str, bool)>,
    fault: Option<String>,
}

/// The filter form, as submitted.
struct Filter {
    event: String,
    actor: String,
    about: String,
    from: String,
    until: String,
}

impl Filter {
    fn read(query: &Form) -> Self {
        let field = |name: &str| query.text(name).trim().to_owned();
        Self {
            event: field("event"),
            actor: field("actor"),
            about: field("about"),
            from: field("from"),
            until: field("until"),
        }
    }

    /// Converts the form into a filter of the domain. The second value is the error of an invalid date. Clears dates
    /// that a browser's date field cannot show.
    fn wanted(&mut self, before: &str) -> (AuditFilter, Option<String>) {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut fault = None;
        let mut moment = |name: &str, text: &mut String, after_ms: i64| {
            let found = (!text.is_empty()).then(|| day(name, text)).transpose();
            let found = found.unwrap_or_else(|error| {
                fault = Some(error);
                None
            });
            *text = shown(std::mem::take(text));
            found.map(|at| at.plus_ms(after_ms))
        };
        let filter = AuditFilter {
            before: given(before),
            event: given(&self.event),
            actor: given(&self.actor),
            about: given(&self.about),
            from: moment("Start date", &mut self.from, 0),
            // Includes the last day.
            until: moment("End date", &mut self.until, DAY_MS),
            limit: i64::try_from(PAGE + 1).unwrap_or(i64::MAX),
        };
        (filter, fault)
    }

    fn is_empty(&self) -> bool {
        [&self.event, &self.actor, &self.about, &self.from, &self.until]
            .iter()
            .all(|text| text.is_empty())
    }
}

/// An entry in a list of entries.
pub struct Row {
    pub path: String,
    pub what: String,
    pub to: String,
    pub who: String,
    pub at: TimeLabel,
    pub is_undone: bool,
    pub undoes: bool,
}

impl Row {
    fn new(request: &WorkspaceRequest, entry: &StoredEntry, now: Timestamp) -> Self {
        Self {
            path: request.path(&format!("/audit/{}", entry.id)),
            what: labels::event(&entry.event).to_owned(),
            to: targets(entry).iter().map(name).collect::<Vec<_>>().join(", "),
            who: who(entry),
            at: TimeLabel::new(entry.at, now),
            is_undone: entry.undone_by.is_some(),
            undoes: entry.undoes.is_some(),
        }
    }
}

fn who(entry: &StoredEntry) -> String {
    entry.actor_name.clone().unwrap_or_else(|| entry.actor_id.clone())
}

fn targets(entry: &StoredEntry) -> Vec<Value> {
    serde_json::from_str(&entry.targets).unwrap_or_default()
}

/// Returns the name of a target, or its id if it has no name.
fn name(target: &Value) -> String {
    let text = |field: &str| target[field].as_str().filter(|text| !text.is_empty());
    text("name").or_else(|| text("id")).unwrap_or_default().to_owned()
}

async fn list(request: WorkspaceRequest) -> Answer {
    let (app, query) = (&request.visit.app, &request.visit.query);
    let path = request.path("/audit");
    let mut filter = Filter::read(query);
    let (audit_filter, fault) = filter.wanted(query.text("from-entry"));
    let mut found = audit::list_for_caller(app, &request.caller, &audit_filter).await?;
    let more = found.len() > PAGE;
    found.truncate(PAGE);
    let now = app.clock.now();
    let next = found.last().filter(|_| more).map(|entry| entry.id.clone());
    page(&List {
        shell: Layout::of(&request, Section::Audit, "Audit log").await?,
        pages: Pages::by(&request, &path, "from-entry", next.as_deref()),
        rows: found.iter().map(|entry| Row::new(&request, entry, now)).collect(),
        path,
        events: labels::EVENTS
            .iter()
            .map(|(name, words)| (*name, *words, *name == filter.event))
            .collect(),
        filter,
        fault,
    })
}
