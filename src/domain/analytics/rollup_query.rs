//! What verifications came to: by time, key, identity or tag.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use foundation::clock::Timestamp;
use foundation::error::{Error, Result, Subject};
use foundation::id::{ApiId, KeyId};

use super::super::caller::Caller;
use super::super::permission::Action;
use crate::app::App;
use crate::domain::apis;
pub use foundation::model::RollupUnit;
pub use store::events::RollupGrouping;
use store::events::{Counts, RollupFilter};

/// How many groups an answer may have.
pub const GROUPS_MAX: usize = 100_000;
/// How many keys one owner may have to be asked about.
const KEYS_MAX: i64 = 10_000;

/// Which verifications are asked about, and how they are put together.
#[derive(Debug, Default)]
pub struct RollupQuery {
    /// Only those of the identity of this external id.
    pub external_id: Option<String>,
    /// Only those of these keys; empty: of any.
    pub keys: Vec<KeyId>,
    /// Only those with all of these tags.
    pub tags: Vec<String>,
    pub from: Timestamp,
    pub to: Timestamp,
    /// Absent: not by time.
    pub unit: Option<RollupUnit>,
    /// Which sums are added up where it is not by time. The finest are told apart by `from` and `to` most exactly.
    pub grain: RollupUnit,
    pub by: RollupGrouping,
    /// Whether what has several tags counts for each of them; needs [`SumsBy::tags`].
    pub each_tag: bool,
    pub order: Option<Order>,
    pub descending: bool,
    pub limit: Option<usize>,
}

/// What answers are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Time,
    Valid,
    /// Of these there are none: such calls are of no key.
    NotFound,
    Forbidden,
    UsageExceeded,
    RateLimited,
    Unauthorized,
    Disabled,
    InsufficientPermissions,
    Expired,
    Total,
}

/// What one group came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The beginning of its hour, day or month.
    pub time: Timestamp,
    /// Empty: none, or not asked by key.
    pub key_id: String,
    pub identity_id: String,
    pub external_id: String,
    pub tags: Vec<String>,
    pub counts: Counts,
}

/// What the verifications of an API came to.
pub async fn of_api(
    app: &App,
    caller: &Caller,
    api: &ApiId,
    question: RollupQuery,
) -> Result<Vec<Group>> {
    apis::get(app, caller, api).await?;
    if let Some(external_id) = &question.external_id {
        // Of what happened to an identity that is gone nothing is told by its name.
        let known = app.store.read().await?.identity_of(caller.workspace(), external_id).await?;
        if known.is_none() {
            return Err(Error::not_found(Subject::Identity(external_id.clone())));
        }
    }
    answer(app, caller, std::slice::from_ref(api), question).await
}

/// What the verifications of a workspace came to, or of one of its APIs.
pub async fn of_workspace(
    app: &App,
    caller: &Caller,
    api: Option<&ApiId>,
    question: RollupQuery,
) -> Result<Vec<Group>> {
    match api {
        Some(api) => caller.require_on(Action::ReadApiAnalytics, api)?,
        None => caller.require(Action::ReadApiAnalytics)?,
    }
    let apis = match api {
        Some(api) => vec![api.clone()],
        None => {
            let apis = app.store.read().await?.apis(caller.workspace()).await?;
            apis.into_iter().map(|api| api.id).collect()
        }
    };
    answer(app, caller, &apis, question).await
}

/// Which keys are asked about.
#[derive(Debug)]
pub enum RollupScope {
    Key(KeyId),
    /// All keys of who has this name with the customer.
    Owner(String),
}

/// What the verifications of keys came to, by the days on which there were any. The caller may read each of the keys.
pub async fn list_by_keys(
    app: &App,
    caller: &Caller,
    of: RollupScope,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<Group>> {
    let keys = find(app, caller, of).await?;
    let apis: BTreeSet<&ApiId> = keys.iter().map(|(_, api)| api).collect();
    for api in &apis {
        caller.require_on(Action::ReadKey, *api)?;
    }
    let apis: Vec<ApiId> = apis.into_iter().cloned().collect();
    let keys = keys.into_iter().map(|(key, _)| key).collect();
    let question =
        RollupQuery { keys, from, to, unit: Some(RollupUnit::Day), ..RollupQuery::default() };
    let mut groups = answer(app, caller, &apis, question).await?;
    groups.retain(|group| group.counts != Counts::default());
    Ok(groups)
}

/// The keys, each with its API.
async fn find(app: &App, caller: &Caller, of: RollupScope) -> Result<Vec<(KeyId, ApiId)>> {
    let mut reader = app.store.read().await?;
    match of {
        RollupScope::Key(id) => {
            let found = reader.key(caller.workspace(), &id).await?;
            let found = found.ok_or_else(|| Error::not_found(Subject::Key(id)))?;
            Ok(vec![(found.key.id, found.key.api_id)])
        }
        RollupScope::Owner(owner) => {
            let found = reader.keys_owned(caller.workspace(), &owner, KEYS_MAX + 1).await?;
            match i64::try_from(found.len()) {
                Ok(0) => Err(Error::not_found(Subject::Identity(owner))),
                Ok(1..=KEYS_MAX) => Ok(found),
                _ => Err(Error::invalid(
                    "ownerId",
                    format!("ownerId: has more than {KEYS_MAX} keys: ask by key, or by API"),
                )),
            }
        }
    }
}

async fn answer(
    app: &App,
    caller: &Caller,
    apis: &[ApiId],
    question: RollupQuery,
) -> Result<Vec<Group>> {
    let unit = question.unit.unwrap_or(question.grain);
    let from = match unit {
        RollupUnit::Minute | RollupUnit::Hour => question.from,
        RollupUnit::Day | RollupUnit::Month => unit.beginning(question.from),
    };
    let wanted = RollupFilter {
        workspace: caller.workspace(),
        apis,
        external_id: question.external_id.as_deref(),
        keys: &question.keys,
        tags: &question.tags,
        from,
        to: question.to,
        unit,
        by_time: question.unit.is_some(),
        by: question.by,
        max: GROUPS_MAX + 1,
    };
    let rows = app.events.read().await?.verification_sums(&wanted).await?;
    if rows.len() > GROUPS_MAX {
        return Err(Error::invalid(
            "groupBy",
            format!("the answer has more than {GROUPS_MAX} rows: ask for less at once"),
        ));
    }
    let mut groups: Vec<Group> = rows
        .into_iter()
        .map(|row| Group {
            time: row.time,
            key_id: row.key_id,
            identity_id: row.identity_id,
            external_id: row.external_id,
            tags: serde_json::from_str(&row.tags).unwrap_or_default(),
            counts: row.counts,
        })
        .collect();
    if question.each_tag {
        groups = by_each_tag(groups);
    }
    fill(&mut groups, &question);
    sort(&mut groups, &question);
    groups.truncate(question.limit.unwrap_or(usize::MAX));
    Ok(groups)
}

/// One group for each tag; what has none is in no group.
fn by_each_tag(groups: Vec<Group>) -> Vec<Group> {
    let mut by_tag: BTreeMap<(Timestamp, String, String, String), Group> = BTreeMap::new();
    for group in groups {
        for tag in &group.tags {
            let of = (group.time, tag.clone(), group.key_id.clone(), group.identity_id.clone());
            let empty =
                || Group { tags: vec![tag.clone()], counts: Counts::default(), ..group.clone() };
            by_tag.entry(of).or_insert_with(empty).counts.join(&group.counts);
        }
    }
    by_tag.into_values().collect()
}

/// Adds what nothing happened in: the slices of time, or the one group of an answer that has no groups.
fn fill(groups: &mut Vec<Group>, question: &RollupQuery) {
    let nothing = |time| Group {
        time,
        key_id: String::new(),
        identity_id: String::new(),
        external_id: String::new(),
        tags: Vec::new(),
        counts: Counts::default(),
    };
    let Some(unit) = question.unit else {
        if groups.is_empty() && question.by == RollupGrouping::default() {
            groups.push(nothing(Timestamp(0)));
        }
        return;
    };
    let there: HashSet<Timestamp> = groups.iter().map(|group| group.time).collect();
    let end = unit.beginning(question.to);
    let slices =
        std::iter::successors(Some(unit.beginning(question.from)), |at| Some(unit.next(*at)));
    let empty = slices.take_while(|at| *at < end).filter(|at| !there.contains(at));
    let room = GROUPS_MAX.saturating_sub(there.len());
    groups.extend(empty.take(room).map(nothing));
}

fn sort(groups: &mut [Group], question: &RollupQuery) {
    let by_name = |a: &Group, b: &Group| {
        (a.time, &a.key_id, &a.identity_id, &a.tags).cmp(&(
            b.time,
            &b.key_id,
            &b.identity_id,
            &b.tags,
        ))
    };
    let order = question.order.unwrap_or(Order::Time);
    groups.sort_by(|a, b| {
        let by_order = match order {
            Order::Time => a.time.cmp(&b.time),
            _ => count(order, &a.counts).cmp(&count(order, &b.counts)),
        };
        let by_order = if question.descending { by_order.reverse() } else { by_order };
        if by_order == Ordering::Equal { by_name(a, b) } else { by_order }
    });
}

fn count(order: Order, counts: &Counts) -> i64 {
    match order {
        Order::Time | Order::NotFound | Order::Unauthorized => 0,
        Order::Valid => counts.valid,
        Order::Forbidden => counts.forbidden,
        Order::UsageExceeded => counts.usage_exceeded,
        Order::RateLimited => counts.rate_limited,
        Order::Disabled => counts.disabled,
        Order::InsufficientPermissions => counts.insufficient_permissions,
        Order::Expired => counts.expired,
        Order::Total => counts.total,
    }
}
