//! Decides windows while Redis does not reply in time: by this replica's share. What is admitted is consumed in Redis
//! as soon as it replies.
//!
//! The share is the smaller of two: of the limit, and of what remained at this replica's last reply for the window.
//! What is admitted here counts against the share until Redis has counted it: because the late call turns out to have
//! consumed it, or because `lua/charge.lua` has. A charge whose reply is lost is never sent again. What is counted in another
//! region is charged there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use foundation::clock::{Clock, Timestamp};
use foundation::fault_injection::Safeguard;
use foundation::metrics::Counter;
use parking_lot::Mutex;
use redis::Cmd;
use tokio::sync::oneshot;

use super::super::local::LocalCounters;
use super::super::{
    Away, ConsumeReply, ConsumeRequest, ReplicaRank, Window, WindowCount, WindowLease,
};
use super::batch;
use super::usage::LastUsage;

/// The maximum number of windows with charges that wait for Redis.
const WINDOWS_MAX: usize = 100_000;

/// A cost to add to one window; a negative cost is subtracted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    pub key: Arc<str>,
    /// The number of the window since the Unix epoch.
    pub window_number: i64,
    pub duration_ms: i64,
    pub cost: i64,
}

/// A consume request whose outcome in Redis is not known yet. Redis may still execute it.
#[derive(Debug)]
pub struct UnresolvedRequest(oneshot::Sender<Vec<Charge>>);

impl UnresolvedRequest {
    pub(super) fn new() -> (Self, oneshot::Receiver<Vec<Charge>>) {
        let (decision, decided) = oneshot::channel();
        (Self(decision), decided)
    }

    /// Reports what was admitted instead; nothing if the request was denied. If Redis has executed the request, what
    /// was admitted is not charged again and what was denied is refunded. If this is dropped, the state in Redis stays
    /// as it is.
    pub fn resolve(self, admitted: Vec<Charge>) {
        let _ = self.0.send(admitted);
    }
}

pub struct OutageWindows {
    usage: OnceLock<Arc<KnownUsage>>,
    pending_charges: Mutex<HashMap<(Arc<str>, i64), Charge>>,
    is_charge_due: AtomicBool,
    is_charging: AtomicBool,
    dropped_costs: Counter,
}

/// What this replica knows of the usage of windows.
struct KnownUsage {
    last_usage: LastUsage,
    /// What was admitted here and is not known to be consumed in Redis.
    uncharged_counters: LocalCounters,
}

impl KnownUsage {
    fn new() -> Arc<Self> {
        let uncharged_counters = LocalCounters::new(Clock::default());
        Arc::new(Self { last_usage: LastUsage::new(), uncharged_counters })
    }
}

impl OutageWindows {
    pub fn new(dropped: Counter) -> Self {
        Self {
            usage: OnceLock::new(),
            pending_charges: Mutex::default(),
            is_charge_due: AtomicBool::new(false),
            is_charging: AtomicBool::new(false),
            dropped_costs: dropped,
        }
    }

    /// Makes the windows of another region, which must not have been used, know the same usage: they charge what is admitted
    /// here.
    pub fn share_usage(&self, other: &Self) {
        let _ = other.usage.set(self.usage.get_or_init(KnownUsage::new).clone());
    }

    fn usage(&self) -> &KnownUsage {
        self.usage.get_or_init(KnownUsage::new)
    }

    /// Records the counts in a reply from Redis.
    pub fn record_reply(&self, request: &ConsumeRequest, reply: &ConsumeReply) {
        let mut leases = reply.regional.iter().flat_map(|regional| &regional.leases);
        for (window, count) in request.windows.iter().zip(&reply.windows) {
            if window.is_away() {
                // What its home had counted at the last grant, including the units that it has granted to this region. The
                // reply of the home, or what it was charged since, tells more.
                let known = leases.next().filter(|lease| lease.window_number > 0);
                if let Some(WindowLease { window_number, count, .. }) = known {
                    let last_usage = &self.usage().last_usage;
                    last_usage.record_earlier(&window.key, *window_number, *count);
                }
                continue;
            }
            let granted = reply.regional.as_ref().and_then(|regional| regional.granted);
            let cost = granted.map_or(window.cost, |granted| granted.units);
            let cost = if reply.is_admitted { cost } else { 0 };
            self.usage().last_usage.record(
                &window.key,
                count.window_number,
                count.effective_count.saturating_add(cost),
            );
        }
    }

    /// Consumes from this replica's share of all windows, or from none. Also returns the shares, as windows with a
    /// lower limit. What was admitted is charged when Redis replies; `charge_away` receives the windows that are counted
    /// in other regions, with their charges.
    pub fn consume(
        &self,
        windows: &[Window],
        rank: ReplicaRank,
        may_consume: bool,
        unresolved: Option<UnresolvedRequest>,
        now: Timestamp,
        mut charge_away: impl FnMut(&Away, Charge),
    ) -> (ConsumeReply, Vec<Window>) {
        let shares: Vec<_> =
            windows.iter().map(|window| self.to_share(window, rank, now)).collect();
        let reply = match may_consume {
            true => self.usage().uncharged_counters.consume_at(&shares, now),
            false => self.usage().uncharged_counters.peek_at(&shares, now),
        };
        let mut charges = Vec::new();
        if reply.is_admitted {
            for (window, charge) in charges_for(&shares, &reply.windows) {
                match window.away() {
                    Some(away) => charge_away(away, charge),
                    None => charges.push(charge),
                }
            }
        }
        match unresolved {
            Some(unresolved) => unresolved.resolve(charges),
            None => self.add_charges(charges),
        }
        (reply, shares)
    }

    fn to_share(&self, window: &Window, rank: ReplicaRank, now: Timestamp) -> Window {
        let share = rank.share_of(window.limit, &window.key);
        let used =
            self.usage().last_usage.find(window, now).filter(|_| !Safeguard::Charge.is_disabled());
        let share_of_remaining =
            used.map_or(share, |used| rank.share_of(window.limit - used, &window.key));
        // A peek succeeds however little is left.
        let limit = if window.cost == 0 { window.limit } else { share.min(share_of_remaining) };
        Window { limit, ..window.clone() }
    }

    pub fn remove_expired_groups(&self) {
        self.usage().uncharged_counters.count_group_counters();
    }

    /// Adds charges to send. Charges beyond [`WINDOWS_MAX`] are dropped.
    pub fn add_charges(&self, charges: Vec<Charge>) {
        if charges.is_empty() || Safeguard::Charge.is_disabled() {
            return;
        }
        let mut pending = self.pending_charges.lock();
        for charge in charges {
            let name = (charge.key.clone(), charge.window_number);
            let is_full = pending.len() >= WINDOWS_MAX;
            match pending.get_mut(&name) {
                Some(existing) => existing.cost = existing.cost.saturating_add(charge.cost),
                None if is_full => self.record_dropped_charge(&charge),
                None => drop(pending.insert(name, charge)),
            }
        }
        self.is_charge_due.store(!pending.is_empty(), Ordering::Relaxed);
    }

    fn record_dropped_charge(&self, charge: &Charge) {
        self.dropped_costs.inc_by(charge.cost.max(0).unsigned_abs());
    }

    /// Records charges that will not be sent again, because it is unknown whether Redis has executed them.
    pub fn record_dropped_charges(&self, charges: &[Charge]) {
        for charge in charges {
            self.record_dropped_charge(charge);
        }
    }

    /// Returns whether there are charges to send.
    pub fn is_charge_due(&self) -> bool {
        self.is_charge_due.load(Ordering::Relaxed)
    }

    /// Acquires the right to send charges, which one task has at a time. Returns `None` if another task has it.
    pub fn try_start_charging(&self) -> Option<ChargeGuard<'_>> {
        (!self.is_charging.swap(true, Ordering::AcqRel)).then_some(ChargeGuard(self))
    }

    /// Reconciles a request that was decided here with what Redis has executed, if anything.
    pub fn reconcile(
        &self,
        request: &ConsumeRequest,
        executed: Option<&ConsumeReply>,
        admitted: Vec<Charge>,
    ) {
        match executed.filter(|reply| reply.is_admitted) {
            Some(_) if !admitted.is_empty() => self.release_uncharged(&admitted),
            Some(reply) => {
                // Units of another region's windows stay consumed: they were counted there before.
                let consumed = charges_for(&request.windows, &reply.windows);
                let here = consumed.filter(|(window, _)| !window.is_away());
                let refund = here.map(|(_, charge)| Charge { cost: -charge.cost, ..charge });
                self.add_charges(refund.collect());
            }
            None => self.add_charges(admitted),
        }
    }

    /// Releases charges that Redis has counted from the local counts.
    fn release_uncharged(&self, charges: &[Charge]) {
        for charge in charges.iter().filter(|charge| charge.cost > 0) {
            self.usage().uncharged_counters.refund(&charge.key, charge.window_number, charge.cost);
        }
    }

    /// Records charges that Redis has executed, with the counts of their windows afterwards.
    pub fn record_charged(&self, charges: &[Charge], counts: &[WindowCount]) {
        self.release_uncharged(charges);
        for (charge, count) in charges.iter().zip(counts) {
            self.usage().last_usage.record(&charge.key, count.window_number, count.effective_count);
        }
    }
}

/// Returns the windows that an admitted request consumes from, with their charges.
fn charges_for<'a>(
    windows: &'a [Window],
    counts: &'a [WindowCount],
) -> impl Iterator<Item = (&'a Window, Charge)> {
    let charge = |(window, count): (&'a Window, &WindowCount)| {
        let charge = Charge {
            key: window.key.clone(),
            window_number: count.window_number,
            duration_ms: window.duration_ms,
            cost: window.cost,
        };
        (window, charge)
    };
    windows.iter().zip(counts).filter(|(window, _)| window.cost > 0).map(charge)
}

/// The right to send charges, until it is dropped.
pub struct ChargeGuard<'a>(&'a OutageWindows);

impl ChargeGuard<'_> {
    /// Removes and returns the next charges, for at most this many windows.
    pub fn take_next(&self, windows_max: usize) -> Vec<Charge> {
        let mut pending = self.0.pending_charges.lock();
        let names: Vec<_> = pending.keys().take(windows_max).cloned().collect();
        let charges = names.iter().filter_map(|name| pending.remove(name)).collect();
        self.0.is_charge_due.store(!pending.is_empty(), Ordering::Relaxed);
        charges
    }
}

impl Drop for ChargeGuard<'_> {
    fn drop(&mut self) {
        self.0.is_charging.store(false, Ordering::Release);
    }
}

/// Encodes the arguments of `lua/charge.lua`.
pub fn encode_charges(command: &mut Cmd, charges: &[Charge], now: Option<Timestamp>) {
    command.arg(charges.len());
    for charge in charges {
        command.arg(&*charge.key);
    }
    batch::encode_time(command, now);
    let numbers = charges.iter().flat_map(|it| [it.window_number, it.duration_ms, it.cost]);
    command.arg(batch::encode_doubles(numbers));
}

#[cfg(test)]
mod tests;
