//! Identities: the customer's own users, and the limits that all keys of one share.

mod restore;
mod snapshot;

pub use restore::restore;
pub use snapshot::change_from_snapshot;

use foundation::error::{Error, Result, Subject};
use foundation::id::IdentityId;
use foundation::model::{Identity, Meta, Ratelimit};
use snapshot::IdentitySnapshot;
use store::{LimitOwner, Tx, freshness};

use super::audit::{AuditBatch, FieldChanges, Target};
use super::caller::Caller;
use super::keys::{NewRatelimit, ratelimits};
use super::page::{Page, Paging};
use super::permission::Action;
use crate::app::App;

/// How many bytes the meta of an identity may have, as it is written.
pub const META_MAX_BYTES: usize = 1024 * 1024;

/// How a request names an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityRef {
    Id(String),
    ExternalId(String),
    /// By its id; where none has it, by its external id.
    Either(String),
}

impl IdentityRef {
    /// The id and the external id that it may have; neither is ever empty.
    fn names(&self) -> (&str, &str) {
        match self {
            Self::Id(id) => (id, ""),
            Self::ExternalId(id) => ("", id),
            Self::Either(named) => (named, named),
        }
    }
}

/// An identity as it is asked for.
#[derive(Debug)]
pub struct NewIdentity {
    pub external_id: String,
    pub meta: Option<Meta>,
    /// Of two with one name the last counts.
    pub ratelimits: Vec<NewRatelimit>,
}

/// What is to change; what is absent stays.
#[derive(Debug, Default)]
pub struct IdentityChange {
    pub meta: Option<Meta>,
    /// Replaces all; those of the same name keep their id and their count.
    pub ratelimits: Option<Vec<NewRatelimit>>,
}

pub async fn create(app: &App, caller: &Caller, new: NewIdentity) -> Result<IdentityId> {
    caller.require(Action::CreateIdentity)?;
    new.meta.as_ref().map_or(Ok(()), is_kept)?;
    let now = app.clock.now();
    let identity = Identity {
        id: IdentityId::random(),
        external_id: new.external_id,
        meta: new.meta,
        ratelimits: ratelimits(new.ratelimits),
    };

    let mut tx = app.store.begin().await?;
    let made = tx.insert_identity(caller.workspace(), &identity, now).await;
    made.map_err(|e| match e.violates("identities_external_id_unique") {
        true => Error::Taken(Subject::Identity(identity.external_id.clone())),
        false => e,
    })?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let change = FieldChanges::created(&IdentitySnapshot::of(&identity))?;
    entries.add_change("identity.create", &[target(&identity)], change);
    set_limits(&mut tx, caller, &mut entries, &identity, &[], &identity.ratelimits).await?;
    entries.write(&mut tx).await?;
    app.commit(tx).await?;

    Ok(identity.id)
}

pub async fn get(app: &App, caller: &Caller, called: &IdentityRef) -> Result<Identity> {
    let (id, external_id) = called.names();
    let mut reader = app.store.read().await?;
    let found = reader.identity_named(caller.workspace(), id, external_id).await?;
    let identity = found.ok_or_else(|| not_found(called))?;
    caller.require_on(Action::ReadIdentity, &identity.id)?;
    Ok(identity)
}

/// The environment that all identities are of, in a version that has such.
pub const ENVIRONMENT: &str = "default";

/// Identities, by id: those that the root key may read. Who may read the whole of their environment, where that is
/// given, may read all.
pub async fn list(
    app: &App,
    caller: &Caller,
    environment: Option<&str>,
    paging: &Paging,
) -> Result<Page<Identity>> {
    let may_all = environment.map_or_else(
        || caller.may(Action::ReadIdentity),
        |environment| caller.may_on(Action::ReadIdentity, &environment),
    );
    let readable = match may_all {
        true => None,
        false => Some(caller.instances(Action::ReadIdentity)),
    };
    if readable.as_ref().is_some_and(Vec::is_empty) {
        caller.require(Action::ReadIdentity)?;
    }
    let listing = paging.listing();
    let mut reader = app.store.read().await?;
    let rows = reader.identities(caller.workspace(), readable.as_deref(), &listing).await?;
    Ok(Page::new(rows, paging, |row| &row.id))
}

/// How many identities an environment has; the root key may read all of them.
pub async fn count(app: &App, caller: &Caller, environment: &str) -> Result<i64> {
    caller.require_on(Action::ReadIdentity, &environment)?;
    app.store.read().await?.count_identities(caller.workspace()).await
}

/// Changes an identity, all of it or nothing. The identity then.
pub async fn update(
    app: &App,
    caller: &Caller,
    called: &IdentityRef,
    change: IdentityChange,
) -> Result<Identity> {
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    let mut identity = existing(&mut tx, caller, called, Action::UpdateIdentity).await?;
    let mut entries = AuditBatch::for_caller(caller, now);
    let entry =
        entries.add_change("identity.update", &[target(&identity)], FieldChanges::default());
    let before = IdentitySnapshot::of(&identity);
    if let Some(meta) = change.meta {
        is_kept(&meta)?;
        tx.set_identity_meta(&identity.id, &meta).await?;
        identity.meta = Some(meta);
    }
    if let Some(limits) = change.ratelimits {
        let after = merge_limits(&identity.ratelimits, ratelimits(limits));
        let before = std::mem::take(&mut identity.ratelimits);
        set_limits(&mut tx, caller, &mut entries, &identity, &before, &after).await?;
        identity.ratelimits = after;
    }
    entries.set_change(entry, FieldChanges::updated(&before, &IdentitySnapshot::of(&identity))?);
    entries.write(&mut tx).await?;
    tx.changed(freshness::CacheTag::Identity(identity.id.clone()));
    app.commit(tx).await?;

    Ok(identity)
}

/// Deletes an identity and its limits. Its keys go on, and are nobody's.
pub async fn delete(app: &App, caller: &Caller, called: &IdentityRef) -> Result<()> {
    let mut tx = app.store.begin().await?;
    let (id, external_id) = called.names();
    if let Some(known) = tx.identity_named(caller.workspace(), id, external_id).await? {
        // Its keys first, as who changes a key holds the key first.
        tx.unlink_identity(&known.id).await?;
    }
    let identity = existing(&mut tx, caller, called, Action::DeleteIdentity).await?;
    tx.delete_identity(&identity.id).await?;
    let mut entries = AuditBatch::for_caller(caller, app.clock.now());
    let change = FieldChanges::deleted(&IdentitySnapshot::of(&identity))?;
    entries.add_change("identity.delete", &[target(&identity)], change);
    for limit in &identity.ratelimits {
        entries.add("ratelimit.delete", &[target(&identity), limit_target(limit)]);
    }
    entries.write(&mut tx).await?;
    tx.changed(freshness::CacheTag::Identity(identity.id));
    app.commit(tx).await
}

/// The identity, held until the transaction ends, if the root key may do this to it. Who may do it to some
/// only is not told which others there are.
async fn existing(
    tx: &mut Tx,
    caller: &Caller,
    called: &IdentityRef,
    action: Action,
) -> Result<Identity> {
    let may_all = caller.may(action);
    if !may_all && caller.instances(action).is_empty() {
        caller.require(action)?;
    }
    let (id, external_id) = called.names();
    match tx.lock_identity(caller.workspace(), id, external_id).await? {
        Some(identity) if may_all || caller.may_on(action, &identity.id) => Ok(identity),
        None if may_all => Err(not_found(called)),
        Some(_) | None => Err(Error::Forbidden(action.everywhere())),
    }
}

fn is_kept(meta: &Meta) -> Result<()> {
    let bytes = meta.as_str().len();
    match bytes <= META_MAX_BYTES {
        true => Ok(()),
        false => Err(Error::invalid(
            "/properties/meta",
            format!("meta has {bytes} bytes: it may have at most {META_MAX_BYTES}"),
        )),
    }
}

fn not_found(called: &IdentityRef) -> Error {
    Error::not_found(match called {
        IdentityRef::Id(id) => Subject::IdentityId(id.clone()),
        IdentityRef::ExternalId(named) | IdentityRef::Either(named) => {
            Subject::Identity(named.clone())
        }
    })
}

/// The limits as they will be: those whose name is known keep their id.
fn merge_limits(before: &[Ratelimit], mut after: Vec<Ratelimit>) -> Vec<Ratelimit> {
    for limit in &mut after {
        if let Some(known) = before.iter().find(|known| known.name == limit.name) {
            limit.id = known.id.clone();
        }
    }
    after.sort_by(|a, b| a.name.cmp(&b.name));
    after
}

/// Makes `after` the limits of an identity, and records what that changes.
async fn set_limits(
    tx: &mut Tx,
    caller: &Caller,
    entries: &mut AuditBatch<'_>,
    identity: &Identity,
    before: &[Ratelimit],
    after: &[Ratelimit],
) -> Result<()> {
    if before.is_empty() && after.is_empty() {
        return Ok(());
    }
    tx.set_ratelimits(caller.workspace(), LimitOwner::Identity(&identity.id), after).await?;
    for limit in after {
        let event = match before.iter().find(|known| known.id == limit.id) {
            None => "ratelimit.create",
            Some(known) if known != limit => "ratelimit.update",
            Some(_) => continue,
        };
        entries.add(event, &[target(identity), limit_target(limit)]);
    }
    for limit in before.iter().filter(|known| after.iter().all(|limit| limit.id != known.id)) {
        entries.add("ratelimit.delete", &[target(identity), limit_target(limit)]);
    }
    Ok(())
}

fn target(identity: &Identity) -> Target<'_> {
    Target::new("identity", identity.id.as_str()).named(Some(&identity.external_id))
}

fn limit_target(limit: &Ratelimit) -> Target<'_> {
    Target::new("ratelimit", limit.id.as_str()).named(Some(&limit.name))
}
