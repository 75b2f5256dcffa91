//! The first steps in a workspace, from an API to the first verification.

use analytics::Analytics;
use foundation::error::Result;
use foundation::model::EventKind;

use crate::analytics_access::{self, RollupUnit};
use crate::caller::Caller;
use crate::context::Context;
use crate::page::{KeyOrder, Paging};
use crate::permission::{Action, Grants};
use crate::root_keys::{self, StoredRootKey};
use crate::users::ResourceCounts;

/// The number of root keys that are searched for one that can verify keys.
const ROOT_KEYS_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstStep {
    CreateApi,
    /// A service can verify keys with a root key.
    CreateRootKey,
    CreateKey,
    VerifyKey,
}

impl FirstStep {
    pub const ALL: [Self; 4] =
        [Self::CreateApi, Self::CreateRootKey, Self::CreateKey, Self::VerifyKey];
}

/// A set of first steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstSteps(Vec<FirstStep>);

impl FirstSteps {
    pub fn filter(is_included: impl Fn(FirstStep) -> bool) -> Self {
        Self(FirstStep::ALL.into_iter().filter(|step| is_included(*step)).collect())
    }

    pub fn contains(&self, step: FirstStep) -> bool {
        self.0.contains(&step)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn is_complete(&self) -> bool {
        self.0.len() == FirstStep::ALL.len()
    }
}

/// Returns the first steps that have been completed in a workspace that has these resources.
pub async fn find(
    context: &Context,
    analytics: &Analytics,
    caller: &Caller,
    counts: &ResourceCounts,
) -> Result<FirstSteps> {
    let paging = Paging { limit: ROOT_KEYS_MAX, ..Paging::default() };
    let root_keys =
        root_keys::list_for_caller(context, caller, true, KeyOrder::LatestFirst, &paging).await?;
    let (kind, unit) = (EventKind::Verifications, RollupUnit::Month);
    let coverage = analytics_access::find_coverage(analytics, caller, kind, unit).await?;
    let has_root_key = root_keys.items.iter().any(is_for_service);
    Ok(FirstSteps::filter(|step| match step {
        FirstStep::CreateApi => counts.apis > 0,
        FirstStep::CreateRootKey => has_root_key,
        FirstStep::CreateKey => counts.keys > 0,
        FirstStep::VerifyKey => coverage.first_at.is_some(),
    }))
}

/// Returns whether a root key can verify keys, and is not one with every permission that nobody has used: the first start
/// creates such a root key.
fn is_for_service(root_key: &StoredRootKey) -> bool {
    let grants: Grants = root_key.key.permissions.iter().map(String::as_str).collect();
    let is_allowed_all = Action::ALL.iter().all(|action| grants.is_allowed(*action));
    let verifies = grants.is_allowed(Action::VerifyKey)
        || grants.allowed_ids(Action::VerifyKey).next().is_some();
    verifies && (!is_allowed_all || root_key.last_used_at.is_some())
}
