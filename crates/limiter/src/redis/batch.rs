//! Encodes several consume requests for one call of `lua/consume.lua`, and decodes its reply.

use foundation::clock::Timestamp;
use hashbrown::HashMap;
use redis::Cmd;

use super::super::{
    ConsumeReply, ConsumeRequest, EXACT_MAX, Granted, GroupChange, LeaseState, LeaseStatus,
    RegionalReply, Side, Window, WindowCount, WindowLease, WindowLeaseState,
};

/// The outcome of a request with a window that is not counted here.
const MISPLACED: i64 = 4;
/// The value of an unknown account balance.
const BALANCE_UNKNOWN: i64 = -1;

/// Encodes the script's arguments. After `deadline`, in Redis time, the script does nothing.
pub fn encode_batch(
    command: &mut Cmd,
    requests: &[ConsumeRequest],
    now: Option<Timestamp>,
    deadline: Option<Timestamp>,
) {
    let mut key_index = KeyIndex { keys: Vec::new(), positions: HashMap::new() };
    let mut packed = Vec::with_capacity(64 * requests.len());
    for request in requests {
        let (has_leases, has_bounds) = (request.uses_window_leases(), request.has_bounds());
        packed.extend(to_u16(request.windows_here().count()).to_be_bytes());
        packed.push(
            u8::from(request.spend.is_some())
                + u8::from(request.has_top_up())
                + 4 * u8::from(has_leases)
                + 8 * u8::from(request.grant_terms.is_some())
                + 16 * u8::from(has_bounds),
        );
        if let Some(terms) = &request.grant_terms {
            packed.extend(double_bytes([terms.waiting, terms.least, terms.parts]));
        }
        for window in request.windows_here() {
            let (group, live_max) = match &window.group {
                Some(group) => (key_index.position_of(&group.name), group.live_max),
                None => (0, 0),
            };
            let numbers = [key_index.position_of(&window.key), group, live_max];
            packed.extend(numbers.into_iter().flat_map(u16::to_be_bytes));
            packed.extend(double_bytes([window.limit, window.duration_ms, window.cost]));
        }
        if let Some(spend) = &request.spend {
            packed.extend(key_index.position_of(&spend.lease).to_be_bytes());
            packed.extend(double_bytes([spend.cost]));
            if let Some(top_up) = &spend.top_up {
                let creates_lease = i64::from(top_up.creates_lease);
                let numbers = [
                    top_up.redis_generation,
                    creates_lease,
                    top_up.granted_before,
                    top_up.top_up,
                    top_up.account_balance,
                    top_up.refill_at.0,
                ];
                packed.extend(double_bytes(numbers));
            }
        }
        if has_leases {
            encode_window_leases(request, &mut key_index, &mut packed);
        }
        if has_bounds {
            for window in request.windows_here() {
                let (first, last) = window.side.as_ref().map_or((-1, EXACT_MAX), Side::bounds);
                packed.extend(double_bytes([first, last]));
                let begun = window.side.as_ref().and_then(Side::begun);
                let begun = begun.map_or(0, |begun| key_index.position_of(begun));
                packed.extend(begun.to_be_bytes());
            }
        }
    }
    command.arg(key_index.keys.len()).arg(key_index.keys);
    encode_time(command, now);
    encode_time(command, deadline);
    command.arg(packed);
}

fn encode_window_leases<'a>(
    request: &'a ConsumeRequest,
    key_index: &mut KeyIndex<'a>,
    packed: &mut Vec<u8>,
) {
    packed.extend(to_u16(request.grants.len()).to_be_bytes());
    for grant in &request.grants {
        packed.extend(key_index.position_of(&grant.lease).to_be_bytes());
        packed.extend(double_bytes([
            grant.redis_generation,
            grant.home_generation,
            grant.window_number,
            grant.limit,
            grant.units,
            grant.count,
            grant.ends_at.0,
            grant.denied_until.0,
            grant.denied_cost,
        ]));
    }
    packed.extend(to_u16(request.windows_away().count()).to_be_bytes());
    for (_, window, away) in request.windows_away() {
        packed.extend(key_index.position_of(&away.lease).to_be_bytes());
        packed.extend(double_bytes([window.limit, window.cost]));
    }
}

fn to_u16(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// Writes a time as an argument; an absent one is an empty string.
pub fn encode_time(command: &mut Cmd, at: Option<Timestamp>) {
    match at {
        Some(at) => command.arg(at.0),
        None => command.arg(""),
    };
}

/// Lists every key once, with its position among the script's keys. The first position is 1.
struct KeyIndex<'a> {
    keys: Vec<&'a str>,
    positions: HashMap<&'a str, u16>,
}

impl<'a> KeyIndex<'a> {
    fn position_of(&mut self, key: &'a str) -> u16 {
        *self.positions.entry(key).or_insert_with(|| {
            self.keys.push(key);
            to_u16(self.keys.len())
        })
    }
}

/// Encodes numbers as doubles, as a script unpacks them.
pub fn encode_doubles(numbers: impl Iterator<Item = i64>) -> Vec<u8> {
    numbers.flat_map(|number| double_bytes([number])).collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "all values are at most 2^53, up to which doubles are exact"
)]
fn double_bytes<const N: usize>(numbers: [i64; N]) -> impl Iterator<Item = u8> {
    numbers.into_iter().flat_map(|number| (number as f64).to_be_bytes())
}

#[expect(clippy::cast_possible_truncation, reason = "the script replies with whole numbers")]
fn decode_double(bytes: [u8; 8]) -> i64 {
    f64::from_be_bytes(bytes) as i64
}

/// Decodes whole numbers that a script packed as doubles.
pub fn decode_doubles<const N: usize>(packed: &[u8]) -> [i64; N] {
    let (numbers, _) = packed.as_chunks();
    std::array::from_fn(|at| numbers.get(at).map_or(0, |bytes| decode_double(*bytes)))
}

/// The script's reply.
pub struct BatchReply {
    /// The Redis time when the script ran.
    pub redis_time: Timestamp,
    /// The reply to each request in order. `None` means that the deadline had passed.
    pub replies: Option<Vec<ConsumeReply>>,
}

/// Decodes the script's reply. `None` means that it is too short.
pub fn decode_reply(requests: &[ConsumeRequest], reply: &[u8]) -> Option<BatchReply> {
    let (numbers, _) = reply.as_chunks();
    let mut reply = numbers.iter().map(|bytes| decode_double(*bytes));
    let (redis_time, redis_generation) = (Timestamp(reply.next()?), reply.next()?);
    if reply.len() == 0 && !requests.is_empty() {
        return Some(BatchReply { redis_time, replies: None });
    }
    let replies = requests
        .iter()
        .map(|request| decode_consume_reply(request, (redis_time, redis_generation), &mut reply))
        .collect::<Option<_>>()?;
    Some(BatchReply { redis_time, replies: Some(replies) })
}

/// Decodes the counts of this many windows.
pub fn decode_window_counts(reply: &[u8], window_count: usize) -> Option<Vec<WindowCount>> {
    let (numbers, _) = reply.as_chunks();
    let mut reply = numbers.iter().map(|bytes| decode_double(*bytes));
    let count =
        |_| Some(WindowCount { effective_count: reply.next()?, window_number: reply.next()? });
    (0..window_count).map(count).collect()
}

fn decode_consume_reply(
    request: &ConsumeRequest,
    (redis_time, redis_generation): (Timestamp, i64),
    reply: &mut impl Iterator<Item = i64>,
) -> Option<ConsumeReply> {
    let outcome = reply.next()?;
    let (is_admitted, group) = match outcome {
        0 | MISPLACED => (false, GroupChange::None),
        1 => (true, GroupChange::None),
        2 => (true, GroupChange::Grown),
        _ => (false, GroupChange::Full),
    };
    let mut windows = Vec::with_capacity(request.windows.len());
    for _ in request.windows_here() {
        windows.push(WindowCount { effective_count: reply.next()?, window_number: reply.next()? });
    }
    let lease = match request.spend {
        None => None,
        Some(_) => Some(LeaseStatus {
            state: match reply.next()? {
                0 => LeaseState::Sufficient,
                1 => LeaseState::Insufficient,
                2 => LeaseState::AccountExhausted,
                3 => LeaseState::Closed,
                4 => LeaseState::WrongGeneration,
                _ => LeaseState::NotFound,
            },
            units: reply.next()?,
            account_balance: Some(reply.next()?).filter(|balance| *balance != BALANCE_UNKNOWN),
            spent_units: reply.next()?,
            redis_generation,
        }),
    };
    let is_regional =
        request.grant_terms.is_some() || request.uses_window_leases() || request.has_bounds();
    let regional = match is_regional {
        false => None,
        true => {
            let granted = match request.grant_terms {
                None => None,
                Some(_) => Some(Granted {
                    units: reply.next()?,
                    left_ms: reply.next()?,
                    retry_ms: reply.next()?,
                    generation: redis_generation,
                }),
            };
            let leases = request.windows_away().map(|_| decode_window_lease(reply));
            let leases = leases.collect::<Option<Vec<_>>>()?;
            windows = merge_counts(request, windows, &leases, redis_time);
            let is_misplaced = outcome == MISPLACED;
            let reply =
                RegionalReply { redis_time, redis_generation, leases, granted, is_misplaced };
            Some(Box::new(reply))
        }
    };
    Some(ConsumeReply { is_admitted, windows, lease, group_change: group, regional })
}

fn decode_window_lease(reply: &mut impl Iterator<Item = i64>) -> Option<WindowLease> {
    Some(WindowLease {
        state: match reply.next()? {
            0 => WindowLeaseState::Sufficient,
            1 => WindowLeaseState::Insufficient,
            3 => WindowLeaseState::Scarce,
            _ => WindowLeaseState::Denied,
        },
        units: reply.next()?,
        count: reply.next()?,
        window_number: reply.next()?,
        granted_units: reply.next()?,
        spent_units: reply.next()?,
        since_ms: reply.next()?,
    })
}

/// Returns the counts of all windows, in their order: those that are counted here, and what the leases tell of the others.
fn merge_counts(
    request: &ConsumeRequest,
    here: Vec<WindowCount>,
    leases: &[WindowLease],
    redis_time: Timestamp,
) -> Vec<WindowCount> {
    let (mut here, mut leases) = (here.into_iter(), leases.iter());
    let count = |window: &Window| match window.is_away() {
        false => here.next(),
        true => leases.next().map(|lease| lease.window_count(window, redis_time)),
    };
    request.windows.iter().filter_map(count).collect()
}
