//! Checks that all regions together admit no more than the limit, by the rule of the home.

use std::collections::BTreeMap;

use limiter::{ConsumeReply, ConsumeRequest};

use super::{REGIONS, Settings, World};

pub struct Checker {
    pub settings: Settings,
    /// What all regions have admitted, by the number of the window at home.
    by_window: BTreeMap<i64, i64>,
    /// How often the home has lost its data in each window.
    losses: BTreeMap<i64, i64>,
    /// Whether a clock has jumped: then time does not pass at the same speed everywhere.
    pub has_jumped: bool,
    pub admitted: i64,
    pub denied: u64,
    /// How often a home was asked, and how often callers consumed.
    pub asked: u64,
    pub calls: u64,
}

impl Checker {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            by_window: BTreeMap::new(),
            losses: BTreeMap::new(),
            has_jumped: false,
            admitted: 0,
            denied: 0,
            asked: 0,
            calls: 0,
        }
    }

    fn admitted_in(&self, number: i64) -> i64 {
        self.by_window.get(&number).copied().unwrap_or(0)
    }

    /// Records that the home has lost its data.
    pub fn record_loss(&mut self, number: i64) {
        *self.losses.entry(number).or_default() += 1;
    }

    /// How often the limit may be admitted in a window: once, and once more for each loss.
    fn times(&self, number: i64) -> i64 {
        if self.has_jumped {
            // The home may have lost what it counted in a window that comes again.
            return 1 + self.losses.values().sum::<i64>();
        }
        1 + self.losses.range(number - 1..=number).map(|(_, losses)| losses).sum::<i64>()
    }

    /// Records an admission at the moment at which a Redis has executed it.
    pub fn record(
        &mut self,
        world: &World,
        request: &ConsumeRequest,
        reply: &ConsumeReply,
        region: usize,
    ) {
        let (Some(window), Some(count)) = (request.windows.first(), reply.windows.first()) else {
            return;
        };
        let (number, cost, duration) = (count.window_number, window.cost(), window.duration_ms());
        self.calls += 1;
        self.admitted += cost;
        *self.by_window.entry(number).or_default() += cost;
        let (limit, admitted) = (window.limit(), self.admitted_in(number));
        world.sim.trace(|| {
            format!("region {region} admits {cost} in window {number}: {admitted} of {limit}")
        });
        let times = self.times(number);
        if admitted > limit * times {
            world.sim.fail(format!(
                "over-admitted: {admitted} of {limit} in window {number}, allowed {times} times"
            ));
        }
        let home = self.settings.home_of(number);
        if self.has_jumped || times > 1 || region == home {
            return;
        }
        // The lock of this region's Redis is held, which is not the home.
        let home_now = world.redis_now(home);
        if home_now.div_euclid(duration) != number {
            world
                .sim
                .fail(format!("a unit of window {number} was spent at {home_now}, after its end"));
        }
        let left = (number + 1) * duration - home_now;
        let effective = admitted + (self.admitted_in(number - 1) * left).div_euclid(duration);
        if effective > limit {
            world.sim.fail(format!("over-admitted: {effective} of {limit} by the sliding rule"));
        }
    }

    /// Checks how much was admitted in a window without faults, in which every region consumed all the time.
    pub fn check_use(&self, number: i64) -> Result<(), String> {
        let limit = self.settings.limit;
        let requests = i64::try_from(self.denied).unwrap_or(i64::MAX);
        let lacking = limit - self.admitted_in(number);
        let regions = i64::try_from(REGIONS).unwrap_or(i64::MAX);
        let is_demanded = requests > 0 && self.is_exhaustible();
        let tolerance = if limit < 20 { regions } else { limit / 20 };
        if is_demanded && lacking > tolerance.max(1) {
            return Err(format!(
                "under-admitted: {lacking} of {limit} were left in window {number}"
            ));
        }
        Ok(())
    }

    /// Whether the callers ask for more than the limit in one window.
    fn is_exhaustible(&self) -> bool {
        let Settings { limit, duration_ms, pause_ms, callers, .. } = &self.settings;
        let per_caller = duration_ms / (i64::try_from(*pause_ms).unwrap_or(1) + 1);
        per_caller * i64::try_from(callers * 2 * REGIONS).unwrap_or(0) > 4 * limit
    }
}
