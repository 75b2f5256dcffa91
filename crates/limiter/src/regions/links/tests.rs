//! Links for tests: they answer at once, with what a test has prepared, and record the calls.

use std::collections::VecDeque;

use foundation::clock::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use super::super::super::{
    Granted, GroupChange, RegionalReply, WindowCount, WindowLease, WindowLeaseState,
};
use super::*;

/// What the links answer, and what they were asked.
#[derive(Default)]
pub struct Script {
    pub now_ms: u64,
    /// How long a call takes, to this region or to a home.
    pub call_ms: u64,
    pub calls: Vec<String>,
    /// The replies of this region. The last one is repeated.
    pub replies: VecDeque<ConsumeReply>,
    /// The replies of homes. The last one is repeated; without any, a home does not reply.
    pub home_replies: VecDeque<ConsumeReply>,
    /// The counts of closed windows; `None` if one cannot be read.
    pub counts: VecDeque<Option<i64>>,
    pub taken: TakenBack,
    pub tasks: Vec<BoxFuture<'static, ()>>,
}

impl Script {
    fn record(&mut self, call: String) {
        self.calls.push(call);
    }

    fn next(replies: &mut VecDeque<ConsumeReply>) -> Option<ConsumeReply> {
        match replies.len() {
            0 | 1 => replies.front().cloned(),
            _ => replies.pop_front(),
        }
    }
}

#[derive(Clone, Default)]
pub struct ScriptedLinks(Arc<Mutex<Script>>);

impl ScriptedLinks {
    /// Creates links whose regions give these replies.
    pub fn new<const N: usize, const M: usize>(
        replies: [ConsumeReply; N],
        home_replies: [ConsumeReply; M],
    ) -> Self {
        let (replies, home_replies) = (replies.into(), home_replies.into());
        Self(Arc::new(Mutex::new(Script { replies, home_replies, ..Script::default() })))
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock()
    }

    /// Returns the calls that begin so, and forgets all.
    pub fn take_calls(&self, prefix: &str) -> Vec<String> {
        let mut calls = std::mem::take(&mut self.script().calls);
        calls.retain(|call| call.starts_with(prefix));
        calls
    }
}

/// Returns the name of a region in a record.
fn name(region: Option<RegionIndex>) -> String {
    region.map_or_else(|| "here".to_owned(), |region| region.0.to_string())
}

impl RegionLinks for ScriptedLinks {
    type CallError = Arc<Error>;

    async fn consume_here(
        &self,
        request: ConsumeRequest,
    ) -> std::result::Result<ConsumeReply, Arc<Error>> {
        let mut script = self.script();
        let homes: Vec<_> = request
            .windows
            .iter()
            .map(|window| name(window.away().map(|away| away.home)))
            .collect();
        let top_up = if request.has_top_up() { " with a top-up" } else { "" };
        script.record(format!("consume {}{top_up}", homes.join(" ")));
        script.now_ms += script.call_ms;
        Ok(Script::next(&mut script.replies).expect("a reply"))
    }

    async fn ask_home(&self, home: RegionIndex, request: ConsumeRequest) -> Result<ConsumeReply> {
        let reply = {
            let mut script = self.script();
            let terms = request.grant_terms.expect("a question");
            script.record(format!(
                "ask {}: {} for {}, at least {}, in {} parts",
                home.0,
                request.windows[0].cost(),
                terms.waiting,
                terms.least,
                terms.parts
            ));
            script.now_ms += script.call_ms;
            Script::next(&mut script.home_replies)
        };
        match reply {
            Some(reply) => Ok(reply),
            None => std::future::pending().await,
        }
    }

    async fn add_grants(&self, grants: Vec<Grant>) -> Result<()> {
        for Grant { lease, units, denied_until, .. } in grants {
            let denied_until = denied_until.0;
            self.script().record(format!("add {units} to {lease}, denied until {denied_until}"));
        }
        Ok(())
    }

    async fn take_back(&self, leases: &[Arc<str>]) -> Result<Vec<TakenBack>> {
        Ok(vec![self.script().taken; leases.len()])
    }

    async fn give_back(&self, home: RegionIndex, window: &Window, taken: TakenBack) -> Result<()> {
        let (home, units, limit) = (home.0, taken.units, window.limit());
        self.script().record(format!("give {units} of {limit} back to {home}"));
        Ok(())
    }

    async fn close_window(
        &self,
        region: Option<RegionIndex>,
        _window: &Window,
        window_number: i64,
    ) -> Result<i64> {
        let mut script = self.script();
        script.record(format!("close {window_number} in {}", name(region)));
        let count = script.counts.pop_front().expect("a count");
        count.ok_or_else(|| Error::Internal("it cannot be read".into()))
    }

    async fn seed_window(
        &self,
        region: Option<RegionIndex>,
        _window: &Window,
        window_number: i64,
        count: i64,
    ) -> Result<()> {
        let region = name(region);
        self.script().record(format!("seed {window_number} in {region} with {count}"));
        Ok(())
    }

    fn record_decision(&self, has_waited: bool) {
        let text = if has_waited { "decided after waiting" } else { "decided at once" };
        self.script().record(text.to_owned());
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let mut script = self.script();
        script.record("spawn".to_owned());
        script.tasks.push(task);
    }

    fn now(&self) -> Monotonic {
        Monotonic::from_ms(self.script().now_ms)
    }
}

/// Returns a lease of this many units.
pub fn lease(state: WindowLeaseState, units: i64) -> WindowLease {
    WindowLease {
        state,
        units,
        count: 0,
        window_number: 9,
        granted_units: 0,
        spent_units: 0,
        since_ms: 0,
    }
}

/// Returns a reply about one window, with its lease if it has one.
fn reply(is_admitted: bool, number: i64, regional: RegionalReply) -> ConsumeReply {
    ConsumeReply {
        is_admitted,
        windows: vec![WindowCount { effective_count: 0, window_number: number }],
        lease: None,
        group_change: GroupChange::None,
        regional: Some(Box::new(regional)),
    }
}

/// Returns the reply of this region to a request for one window that is counted elsewhere.
pub fn lease_reply(lease: WindowLease) -> ConsumeReply {
    let regional = RegionalReply {
        redis_time: Timestamp(50_000),
        redis_generation: 7,
        leases: vec![lease],
        ..RegionalReply::default()
    };
    reply(lease.state == WindowLeaseState::Sufficient, lease.window_number, regional)
}

/// Returns the reply of a region to a request for one window that it counts.
pub fn count_reply(is_admitted: bool, number: i64) -> ConsumeReply {
    reply(is_admitted, number, RegionalReply::default())
}

/// Returns the reply of a region that does not count the window of this number, or not yet.
pub fn misplaced_reply(number: i64) -> ConsumeReply {
    let granted = Granted { units: 0, left_ms: 500, retry_ms: 0, generation: 3 };
    let regional =
        RegionalReply { granted: Some(granted), is_misplaced: true, ..RegionalReply::default() };
    reply(false, number, regional)
}

/// Returns the reply of a home that grants units. With none, another request may succeed after `retry_ms`.
pub fn home_reply(units: i64, retry_ms: i64) -> ConsumeReply {
    let granted = Granted { units, left_ms: 500, retry_ms, generation: 3 };
    reply(units > 0, 9, RegionalReply { granted: Some(granted), ..RegionalReply::default() })
}
