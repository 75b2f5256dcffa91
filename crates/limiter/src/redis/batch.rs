//! Encodes several consume requests for one call of `lua/consume.lua`, and decodes its reply.

use std::collections::HashMap;

use foundation::clock::Timestamp;
use redis::Cmd;

use super::super::{
    ConsumeReply, ConsumeRequest, GroupChange, LeaseState, LeaseStatus, WindowCount,
};

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
        let windows = u16::try_from(request.windows.len()).unwrap_or(u16::MAX);
        packed.extend(windows.to_be_bytes());
        packed.push(u8::from(request.spend.is_some()) + u8::from(request.has_top_up()));
        for window in &request.windows {
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
    }
    command.arg(key_index.keys.len()).arg(key_index.keys);
    encode_time(command, now);
    encode_time(command, deadline);
    command.arg(packed);
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
            u16::try_from(self.keys.len()).unwrap_or(u16::MAX)
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
        .map(|request| decode_consume_reply(request, redis_generation, &mut reply))
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
    redis_generation: i64,
    reply: &mut impl Iterator<Item = i64>,
) -> Option<ConsumeReply> {
    let (is_admitted, group) = match reply.next()? {
        0 => (false, GroupChange::None),
        1 => (true, GroupChange::None),
        2 => (true, GroupChange::Grown),
        _ => (false, GroupChange::Full),
    };
    let mut windows = Vec::with_capacity(request.windows.len());
    for _ in &request.windows {
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
    Some(ConsumeReply { is_admitted, windows, lease, group_change: group })
}
