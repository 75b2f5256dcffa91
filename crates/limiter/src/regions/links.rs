//! The calls that a replica makes for windows of other regions.

use std::sync::Arc;

use foundation::clock::Monotonic;
use foundation::error::{Error, Result};
use futures_util::future::BoxFuture;

use super::super::{ConsumeReply, ConsumeRequest, Grant, RegionIndex, Window};

/// The calls of a replica to the Redis of its own region and to those of others.
pub trait RegionLinks: Clone + Send + Sync + 'static {
    /// The error of a call whose effect is unknown.
    type CallError: From<Arc<Error>>;

    /// Runs a request in this region.
    fn consume_here(
        &self,
        request: ConsumeRequest,
    ) -> impl Future<Output = std::result::Result<ConsumeReply, Self::CallError>> + Send;

    /// Asks a home for a grant.
    fn ask_home(
        &self,
        home: RegionIndex,
        request: ConsumeRequest,
    ) -> impl Future<Output = Result<ConsumeReply>> + Send;

    /// Adds grants to leases of this region.
    fn add_grants(&self, grants: Vec<Grant>) -> impl Future<Output = Result<()>> + Send;

    /// Takes units out of leases at rest.
    fn take_back(&self, leases: &[Arc<str>])
    -> impl Future<Output = Result<Vec<TakenBack>>> + Send;

    /// Returns units to a home. They must not be returned twice.
    fn give_back(
        &self,
        home: RegionIndex,
        window: &Window,
        taken: TakenBack,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Ends the counting of a window in a region, because its home moves (`None`: in this region), and returns the count
    /// of its last window there. The result is the same each time.
    fn close_window(
        &self,
        region: Option<RegionIndex>,
        window: &Window,
        window_number: i64,
    ) -> impl Future<Output = Result<i64>> + Send;

    /// Begins the counting of a window in a region to which its home moves (`None`: in this region), with the count of
    /// the window before.
    fn seed_window(
        &self,
        region: Option<RegionIndex>,
        window: &Window,
        window_number: i64,
        count: i64,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Records that a request was decided, and whether it waited for another region.
    fn record_decision(&self, has_waited: bool);

    /// Continues a task in the background.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    fn now(&self) -> Monotonic;
}

/// What was taken out of a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakenBack {
    /// Whether there is a lease that had units.
    pub had_units: bool,
    pub home_generation: i64,
    pub window_number: i64,
    pub units: i64,
}

#[cfg(test)]
pub(super) mod tests;
