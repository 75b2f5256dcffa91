//! The pages of the audit log: list, entry and undo.

mod labels;
mod show;

pub use labels::{actor_label, event_label};

use askama::Template;
use axum::Router;
use axum::routing::get;
use domain::audit::{self, AuditEvent, AuditFilter, StoredEntry};
use domain::permission::Action;
use domain::undo::{self, UndoAction};
use foundation::clock::{DAY_MS, Timestamp};
use foundation::model::MemberRole;
use serde_json::Value;

use super::analytics::{NO_DATES, REVERSED_DATES, TimeRange, parse_day, valid_date_or_empty};
use super::form::Form;
use super::format::TimeLabel;
use super::layout::{Layout, Section, is_allowed};
use super::list_frame::ListFrame;
use super::page_request::WorkspaceRequest;
use super::pagination::{PAGE_ROWS, PageLinks};
use super::sort_link::{Direction, SortLink};
use super::{PageResult, render_page};

pub fn routes() -> Router {
    Router::new()
        .route("/dashboard/{workspace}/audit", get(list))
        .route("/dashboard/{workspace}/audit/{entry}", get(show::show))
        .route(
            "/dashboard/{workspace}/audit/{entry}/undo",
            get(show::confirm_undo).post(show::undo),
        )
}

#[derive(Template)]
#[template(path = "audit/list.html")]
struct AuditListPage {
    layout: Layout,
    list: ListFrame,
    rows: Vec<AuditTableRow>,
    filter: AuditFilterForm,
    ranges: Vec<(&'static str, &'static str, bool)>,
    /// The options: text of the event, label, whether it is selected.
    events: Vec<(&'static str, &'static str, bool)>,
    error: Option<String>,
    /// Whether dates were entered that do not apply to the selected range.
    has_unused_dates: bool,
}

/// The form value of no range.
const ALL_TIME: &str = "all";
/// The form value of a range between two dates.
const CUSTOM_RANGE: &str = "custom";
/// The query parameter of the cursor: `from` is the start date of the filter.
const CURSOR_FIELD: &str = "from-entry";

/// The filter form, as submitted.
struct AuditFilterForm {
    /// The time range; empty for all time.
    range: String,
    event: String,
    actor: String,
    about: String,
    from: String,
    until: String,
}

impl AuditFilterForm {
    fn from_form(query: &Form) -> Self {
        let field = |name: &str| query.text(name).trim().to_owned();
        let has_dates = ["from", "until"].iter().any(|name| !field(name).is_empty());
        Self {
            // Links with dates need no range.
            range: match query.text("range") {
                "" if has_dates => CUSTOM_RANGE.to_owned(),
                ALL_TIME => String::new(),
                range => range.to_owned(),
            },
            event: field("event"),
            actor: field("actor"),
            about: field("about"),
            from: field("from"),
            until: field("until"),
        }
    }

    /// Converts the form into a filter of the domain. The second value is the error of invalid dates. Clears dates
    /// that a browser's date field cannot show.
    fn build_audit_filter(
        &mut self,
        cursor: &str,
        sort: &SortLink,
        now: Timestamp,
    ) -> (AuditFilter, Option<String>) {
        let ((start_at, end_at), fault) = match self.range.as_str() {
            "" => ((None, None), None),
            CUSTOM_RANGE => self.read_dates(),
            range => {
                let period = TimeRange::named(range, now).period;
                ((Some(period.from), Some(period.until)), None)
            }
        };
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let filter = AuditFilter {
            cursor_id: given(cursor),
            is_oldest_first: sort.direction == Direction::Ascending,
            event: given(&self.event),
            actor: given(labels::actor_from_label(&self.actor)),
            target: given(&self.about),
            start_at,
            end_at,
            rows_max: i64::try_from(PAGE_ROWS + 1).unwrap_or(i64::MAX),
            ..AuditFilter::default()
        };
        (filter, fault)
    }

    /// Reads the start and the end of a custom range. If one of them is invalid, neither applies.
    fn read_dates(&mut self) -> ((Option<Timestamp>, Option<Timestamp>), Option<String>) {
        let mut faults = Vec::new();
        if self.from.is_empty() && self.until.is_empty() {
            faults.push(NO_DATES.to_owned());
        }
        let mut moment = |name: &str, text: &mut String, after_ms: i64| {
            let found = (!text.is_empty()).then(|| parse_day(name, text)).transpose();
            let found = found.unwrap_or_else(|error| {
                faults.push(error);
                None
            });
            *text = valid_date_or_empty(text);
            found.map(|at| at.plus_ms(after_ms))
        };
        let start_at = moment("Start date", &mut self.from, 0);
        // Includes the last day.
        let end_at = moment("End date", &mut self.until, DAY_MS);
        if start_at.zip(end_at).is_some_and(|(start, end)| start >= end) {
            faults.push(REVERSED_DATES.to_owned());
        }
        match faults.is_empty() {
            true => ((start_at, end_at), None),
            false => ((None, None), Some(faults.join(". "))),
        }
    }

    /// Returns the options of the time range: form value, label, whether it is selected.
    fn range_options(&self, now: Timestamp) -> Vec<(&'static str, &'static str, bool)> {
        let is_named = !["", CUSTOM_RANGE].contains(&self.range.as_str());
        let mut options = vec![(ALL_TIME, "All time", self.range.is_empty())];
        options.extend(TimeRange::named(&self.range, now).options_with_custom());
        for (value, _, is_selected) in options.iter_mut().skip(1) {
            *is_selected = if is_named { *is_selected } else { *value == self.range };
        }
        options
    }

    fn is_empty(&self) -> bool {
        [&self.range, &self.event, &self.actor, &self.about, &self.from, &self.until]
            .iter()
            .all(|text| text.is_empty())
    }
}

/// An entry in a list of entries.
pub struct AuditTableRow {
    pub path: String,
    pub label: String,
    pub targets: String,
    pub actor: String,
    pub at: TimeLabel,
    pub is_undone: bool,
    pub undoes: bool,
    /// Whether the user may undo the entry, and this is possible.
    pub can_undo: bool,
}

impl AuditTableRow {
    pub fn new(request: &WorkspaceRequest, entry: &StoredEntry, now: Timestamp) -> Self {
        Self {
            path: request.workspace_path(&format!("/audit/{}", entry.id)),
            label: event_label(&entry.event).to_owned(),
            targets: parse_targets(entry).iter().map(target_name).collect::<Vec<_>>().join(", "),
            actor: actor_label(entry),
            at: TimeLabel::new(entry.at, now),
            is_undone: entry.undone_by.is_some(),
            undoes: entry.undoes.is_some(),
            can_undo: entry.undone_by.is_none()
                && undo::plan_undo(entry)
                    .is_ok_and(|action| find_undo_denial(request, &action).is_none()),
        }
    }
}

/// Returns whether the user may undo entries at all.
pub fn may_undo(request: &WorkspaceRequest) -> bool {
    request.membership.role != MemberRole::Viewer
}

/// Returns why the role of the user does not allow an undo action; `None` if it does.
fn find_undo_denial(request: &WorkspaceRequest, action: &UndoAction) -> Option<&'static str> {
    let manages_members = matches!(
        action,
        UndoAction::RevertMemberRole(_)
            | UndoAction::RemoveMember(_)
            | UndoAction::WithdrawInvitation(_)
    );
    if !may_undo(request) {
        return Some("Viewers cannot undo changes.");
    }
    let is_denied = manages_members && !is_allowed(request, Action::ManageMembers);
    is_denied.then_some("Only owners can undo this.")
}

fn parse_targets(entry: &StoredEntry) -> Vec<Value> {
    serde_json::from_str(&entry.targets).unwrap_or_default()
}

/// Returns the name of a target, or its id if it has no name.
fn target_name(target: &Value) -> String {
    let text = |field: &str| target[field].as_str().filter(|text| !text.is_empty());
    text("name").or_else(|| text("id")).unwrap_or_default().to_owned()
}

async fn list(request: WorkspaceRequest) -> PageResult {
    let (app, query) = (&request.page_request.app, &request.page_request.query);
    let mut filter = AuditFilterForm::from_form(query);
    let now = app.context.clock.now();
    let path = request.workspace_path("/audit");
    let sort = SortLink::with_cursor_field(&request, &path, CURSOR_FIELD, Direction::Descending);
    let (audit_filter, fault) = filter.build_audit_filter(query.text(CURSOR_FIELD), &sort, now);
    let mut found = audit::list_for_caller(&app.context, &request.caller, &audit_filter).await?;
    let more = found.len() > PAGE_ROWS;
    found.truncate(PAGE_ROWS);
    let next = found.last().filter(|_| more).map(|entry| entry.id.clone());
    let mut list = ListFrame::new(&request, "/audit", None).with_sort(sort);
    list.pages = PageLinks::with_cursor_field(&request, &path, CURSOR_FIELD, next.as_deref());
    render_page(&AuditListPage {
        layout: Layout::for_workspace(&request, Section::Audit, "Audit log").await?,
        list,
        rows: found.iter().map(|entry| AuditTableRow::new(&request, entry, now)).collect(),
        events: AuditEvent::ALL
            .iter()
            .map(|event| (event.as_str(), event.label(), event.as_str() == filter.event))
            .collect(),
        ranges: filter.range_options(now),
        has_unused_dates: filter.range != CUSTOM_RANGE
            && !(filter.from.is_empty() && filter.until.is_empty()),
        filter,
        error: fault,
    })
}
