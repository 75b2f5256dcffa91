//! Encodes several consume requests for one call of `lua/consume.lua`, and decodes its reply.

use std::collections::HashMap;

use foundation::clock::Timestamp;
use redis::Cmd;

use super::super::{
    ConsumeReply, ConsumeRequest, GroupChange, LeaseState, LeaseStatus, WindowCount,
};

/// The value of an unknown account balance.
const UNKNOWN: i64 = -1;

/// Encodes the script's arguments. After `deadline`, in Redis time, the script does nothing.
pub fn encode_batch(
    command: &mut Cmd,
    requests: &[ConsumeRequest],
    now: Option<Timestamp>,
    deadline: Option<Timestamp>,
) {
    let mut key_index = KeyIndex { keys: Vec::new(), of: HashMap::new() };
    let mut packed = Vec::with_capacity(64 * requests.len());
    for request in requests {
        let windows = u16::try_from(request.windows.len()).unwrap_or(u16::MAX);
        packed.extend(windows.to_be_bytes());
        packed.push(u8::from(request.spend.is_some()) + u8::from(request.fills()));
        for window in &request.windows {
            let (group, live_max) = match &window.group {
                Some(group) => (key_index.of(&group.name), group.live_max),
                None => (0, 0),
            };
            let numbers = [key_index.of(&window.key), group, live_max];
            packed.extend(numbers.into_iter().flat_map(u16::to_be_bytes));
            packed.extend(doubles([window.limit, window.duration_ms, window.cost]));
        }
        if let Some(spend) = &request.spend {
            packed.extend(key_index.of(&spend.purse).to_be_bytes());
            packed.extend(doubles([spend.cost]));
            if let Some(top_up) = &spend.fill {
                let creates_lease = i64::from(top_up.creates_lease);
                let numbers = [
                    top_up.life,
                    creates_lease,
                    top_up.granted_before,
                    top_up.block,
                    top_up.bank,
                    top_up.refill_at.0,
                ];
                packed.extend(doubles(numbers));
            }
        }
    }
    command.arg(key_index.keys.len()).arg(key_index.keys);
    time(command, now);
    time(command, deadline);
    command.arg(packed);
}

/// Writes a time as an argument; an absent one is an empty string.
pub fn time(command: &mut Cmd, at: Option<Timestamp>) {
    match at {
        Some(at) => command.arg(at.0),
        None => command.arg(""),
    };
}

/// Lists every key once, with its position among the script's keys. The first position is 1.
struct KeyIndex<'a> {
    keys: Vec<&'a str>,
    of: HashMap<&'a str, u16>,
}

impl<'a> KeyIndex<'a> {
    fn of(&mut self, key: &'a str) -> u16 {
        *self.of.entry(key).or_insert_with(|| {
            self.keys.push(key);
            u16::try_from(self.keys.len()).unwrap_or(u16::MAX)
        })
    }
}

/// Encodes numbers as doubles, as a script unpacks them.
pub fn packed(numbers: impl Iterator<Item = i64>) -> Vec<u8> {
    numbers.flat_map(|number| doubles([number])).collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "all values are at most 2^53, up to which doubles are exact"
)]
fn doubles<const N: usize>(numbers: [i64; N]) -> impl Iterator<Item = u8> {
    numbers.into_iter().flat_map(|number| (number as f64).to_be_bytes())
}

#[expect(clippy::cast_possible_truncation, reason = "the script replies with whole numbers")]
fn whole(bytes: [u8; 8]) -> i64 {
    f64::from_be_bytes(bytes) as i64
}

/// The script's reply.
pub struct BatchReply {
    /// The Redis time when the script ran.
    pub at: Timestamp,
    /// The reply to each request in order. `None` means that the deadline had passed.
    pub taken: Option<Vec<ConsumeReply>>,
}

/// Decodes the script's reply. `None` means that it is too short.
pub fn decode_reply(requests: &[ConsumeRequest], reply: &[u8]) -> Option<BatchReply> {
    let (numbers, _) = reply.as_chunks();
    let mut reply = numbers.iter().map(|bytes| whole(*bytes));
    let (redis_time, redis_generation) = (Timestamp(reply.next()?), reply.next()?);
    if reply.len() == 0 && !requests.is_empty() {
        return Some(BatchReply { at: redis_time, taken: None });
    }
    let replies = requests
        .iter()
        .map(|request| read_one(request, redis_generation, &mut reply))
        .collect::<Option<_>>()?;
    Some(BatchReply { at: redis_time, taken: Some(replies) })
}

/// Decodes the counts of this many windows.
pub fn read_counted(reply: &[u8], window_count: usize) -> Option<Vec<WindowCount>> {
    let (numbers, _) = reply.as_chunks();
    let mut reply = numbers.iter().map(|bytes| whole(*bytes));
    let count = |_| Some(WindowCount { effective: reply.next()?, number: reply.next()? });
    (0..window_count).map(count).collect()
}

fn read_one(
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
        windows.push(WindowCount { effective: reply.next()?, number: reply.next()? });
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
            bank: Some(reply.next()?).filter(|balance| *balance != UNKNOWN),
            spent: reply.next()?,
            life: redis_generation,
        }),
    };
    Some(ConsumeReply { is_admitted, windows, purse: lease, group })
}
