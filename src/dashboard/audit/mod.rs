//! Who changed what: the log, one entry with what it changed, and undoing it.

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
    /// As they are sent, as they are called, whether it is this one.
    events: Vec<(&'static str, &'static str, bool)>,
    fault: Option<String>,
}

/// What is looked for, as it was filled in.
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

    /// As the log is asked, and what is wrong with it.
    fn wanted(&mut self, before: &str) -> (AuditFilter, Option<String>) {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut fault = None;
        let mut moment = |name: &str, text: &mut String, after_ms: i64| {
            let found = (!text.is_empty()).then(|| day(name, text)).transpose();
            let found = found.unwrap_or_else(|told| {
                fault = Some(told);
                None
            });
            *text = shown(std::mem::take(text));
            found.map(|at| at.plus_ms(after_ms))
        };
        let wanted = AuditFilter {
            before: given(before),
            event: given(&self.event),
            actor: given(&self.actor),
            about: given(&self.about),
            from: moment("From", &mut self.from, 0),
            // The last day too.
            until: moment("Until", &mut self.until, DAY_MS),
            limit: i64::try_from(PAGE + 1).unwrap_or(i64::MAX),
        };
        (wanted, fault)
    }

    fn is_empty(&self) -> bool {
        [&self.event, &self.actor, &self.about, &self.from, &self.until]
            .iter()
            .all(|text| text.is_empty())
    }
}

/// An entry in a list.
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
    fn new(asked: &WorkspaceRequest, entry: &StoredEntry, now: Timestamp) -> Self {
        Self {
            path: asked.path(&format!("/audit/{}", entry.id)),
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

/// A target by its name, or else its id.
fn name(target: &Value) -> String {
    let text = |field: &str| target[field].as_str().filter(|text| !text.is_empty());
    text("name").or_else(|| text("id")).unwrap_or_default().to_owned()
}

async fn list(asked: WorkspaceRequest) -> Answer {
    let (app, query) = (&asked.visit.app, &asked.visit.query);
    let path = asked.path("/audit");
    let mut filter = Filter::read(query);
    let (wanted, fault) = filter.wanted(query.text("from-entry"));
    let mut found = audit::list_for_caller(app, &asked.caller, &wanted).await?;
    let more = found.len() > PAGE;
    found.truncate(PAGE);
    let now = app.clock.now();
    let next = found.last().filter(|_| more).map(|entry| entry.id.clone());
    page(&List {
        shell: Layout::of(&asked, Section::Audit, "Audit log").await?,
        pages: Pages::by(&asked, &path, "from-entry", next.as_deref()),
        rows: found.iter().map(|entry| Row::new(&asked, entry, now)).collect(),
        path,
        events: labels::EVENTS
            .iter()
            .map(|(name, words)| (*name, *words, *name == filter.event))
            .collect(),
        filter,
        fault,
    })
}
