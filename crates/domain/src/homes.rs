//! Homes: where the limits of APIs, identities and namespaces are counted, and moving them to another region.

use foundation::clock::Timestamp;
use foundation::error::{Error, ResourceRef, Result};
use foundation::home::Home;
use foundation::id::{ApiId, IdentityId, NamespaceId, WorkspaceId};
use serde::Serialize;
use store::freshness::CacheTag;
use store::{HomeOwner, Tx};

use crate::audit::{self, Actor, AuditEvent, FieldChanges, Target};
use crate::context::Context;

/// How long after the change a home moves: every replica has learned of it by then. One that has no proof of that trusts
/// a cached row for at most five seconds.
const MOVE_DELAY_MS: i64 = 10_000;

/// A move of a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMove {
    pub from: String,
    pub to: String,
    /// Windows that begin at this time or later are counted in `to`.
    pub at: Timestamp,
}

/// The part of an audit entry that describes a home.
#[derive(Serialize)]
struct HomeSnapshot<'a> {
    home: &'a str,
}

/// Returns the owner that an ID names by its prefix.
fn parse_owner(id: &str) -> Result<HomeOwner> {
    match id.split_once('_').map(|(kind, _)| kind) {
        Some("api") => Ok(HomeOwner::Api(ApiId::from(id))),
        Some("id") => Ok(HomeOwner::Identity(IdentityId::from(id))),
        Some("rlns") => Ok(HomeOwner::Namespace(NamespaceId::from(id))),
        Some(_) | None => Err(Error::invalid(
            "id",
            format!(
                "{id:?} must be the ID of an API (api_…), an identity (id_…) or a namespace (rlns_…)"
            ),
        )),
    }
}

/// Moves the home of an API, an identity or a namespace to another region, for an operator. Each of its windows is counted,
/// from begin to end, where the home was when it began.
pub async fn move_as_operator(
    context: &Context,
    workspace: &WorkspaceId,
    id: &str,
    region: &str,
) -> Result<PlannedMove> {
    let owner = parse_owner(id)?;
    let Some(regions) = &context.regions else {
        return Err(Error::invalid("to", "KEYWARD_REGIONS is not set: there is one region"));
    };
    if !regions.names().iter().any(|name| name == region) {
        let names = regions.names().join(", ");
        let message = format!("{region:?} must be one of the regions in KEYWARD_REGIONS, {names}");
        return Err(Error::invalid("to", message));
    }
    let mut tx = context.store.begin().await?;
    let found = tx.lock_home(workspace, &owner).await?;
    let home = found.ok_or_else(|| Error::not_found(resource(&owner)))?;
    let home = home.unwrap_or_else(|| Home::new(regions.names()[0].clone()));
    if home.region == region {
        return Err(Error::invalid("to", format!("the home of {id} is {region} already")));
    }
    let now = tx.load_database_time().await?;
    let at = Timestamp(now.0.saturating_add(MOVE_DELAY_MS));
    let moved = home.moved_to(region, at).ok_or_else(|| {
        Error::invalid("to", format!("{id} has moved too often: at most 16 times are possible"))
    })?;
    tx.set_home(&owner, &moved).await?;
    let (kind, tag) = match &owner {
        HomeOwner::Api(id) => ("api", CacheTag::Api(id.clone())),
        HomeOwner::Identity(id) => ("identity", CacheTag::Identity(id.clone())),
        HomeOwner::Namespace(id) => ("ratelimitNamespace", CacheTag::Namespace(id.clone())),
    };
    let change = FieldChanges::updated(
        &HomeSnapshot { home: &home.region },
        &HomeSnapshot { home: region },
    )?;
    let (targets, event) = ([Target::new(kind, id)], AuditEvent::HomeMoved);
    let actor = Actor::Command("cli");
    let recorded_at = context.clock.now();
    audit::record_change(&mut tx, actor, workspace, recorded_at, event, &targets, change).await?;
    tx.record_change(tag);
    context.commit(tx).await?;
    Ok(PlannedMove { from: home.region, to: region.to_owned(), at })
}

/// Replaces the home of what is restored by the region of this replica, if its own was removed while it was deleted. A
/// region is removed when every window that it counts has ended, so the new one begins with none. Returns the change; `None` if
/// the home stays.
pub fn replace_removed(context: &Context, home: &mut Option<Home>) -> Result<Option<FieldChanges>> {
    let (Some(regions), Some(own), Some(stored)) =
        (&context.regions, context.home_of_new(), home.as_ref())
    else {
        return Ok(None);
    };
    // Without a name it is the first region, which cannot be removed.
    if stored.region.is_empty() || regions.names().contains(&stored.region) {
        return Ok(None);
    }
    let change = FieldChanges::updated(
        &HomeSnapshot { home: &stored.region },
        &HomeSnapshot { home: &own.region },
    )?;
    *home = Some(own);
    Ok(Some(change))
}

/// Stores the home that [`replace_removed`] returns, and returns the change; no change if the home stays.
pub async fn store_if_replaced(
    context: &Context,
    tx: &mut Tx,
    owner: &HomeOwner,
    home: &mut Option<Home>,
) -> Result<FieldChanges> {
    let change = replace_removed(context, home)?;
    if let (Some(_), Some(home)) = (&change, home) {
        tx.set_home(owner, home).await?;
    }
    Ok(change.unwrap_or_default())
}

fn resource(owner: &HomeOwner) -> ResourceRef {
    match owner {
        HomeOwner::Api(id) => ResourceRef::Api(id.clone()),
        HomeOwner::Identity(id) => ResourceRef::IdentityId(id.as_str().to_owned()),
        HomeOwner::Namespace(id) => ResourceRef::Namespace(id.as_str().to_owned()),
    }
}

/// The number of owners that a region counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionUse {
    pub name: String,
    pub apis: i64,
    pub identities: i64,
    pub namespaces: i64,
}

/// Lists the regions of the deployment, the first one first, with what each counts.
pub async fn list_regions(context: &Context) -> Result<Vec<RegionUse>> {
    let mut reader = context.store.read().await?;
    let names = reader.list_regions().await?;
    let counts = reader.count_homes().await?;
    let region_use = |(position, name): (usize, String)| {
        let is_home = |home: &str| match home.parse::<Home>() {
            Ok(home) => home.region == name || (home.region.is_empty() && position == 0),
            Err(_) => false,
        };
        let of = counts.iter().filter(|(home, ..)| is_home(home));
        let mut region = RegionUse { name: name.clone(), apis: 0, identities: 0, namespaces: 0 };
        for (_, apis, identities, namespaces) in of {
            region.apis += apis;
            region.identities += identities;
            region.namespaces += namespaces;
        }
        region
    };
    Ok(names.into_iter().enumerate().map(region_use).collect())
}
