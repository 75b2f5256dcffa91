//! Several takes in one script call, as `lua/consume.lua` reads and answers them.

use std::collections::HashMap;

use foundation::clock::Timestamp;
use redis::Cmd;

use super::super::{
    ConsumeReply, ConsumeRequest, GroupChange, LeaseState, LeaseStatus, WindowCount,
};

/// What stands for a balance that is not known.
const UNKNOWN: i64 = -1;

/// Writes the script's arguments. After `deadline`, by Redis' time, the script does nothing.
pub fn encode_batch(
    command: &mut Cmd,
    takes: &[ConsumeRequest],
    now: Option<Timestamp>,
    deadline: Option<Timestamp>,
) {
    let mut places = KeyIndex { keys: Vec::new(), of: HashMap::new() };
    let mut packed = Vec::with_capacity(64 * takes.len());
    for take in takes {
        let windows = u16::try_from(take.windows.len()).unwrap_or(u16::MAX);
        packed.extend(windows.to_be_bytes());
        packed.push(u8::from(take.spend.is_some()) + u8::from(take.fills()));
        for window in &take.windows {
            let (group, live_max) = match &window.group {
                Some(group) => (places.of(&group.name), group.live_max),
                None => (0, 0),
            };
            let numbers = [places.of(&window.key), group, live_max];
            packed.extend(numbers.into_iter().flat_map(u16::to_be_bytes));
            packed.extend(doubles([window.limit, window.duration_ms, window.cost]));
        }
        if let Some(spend) = &take.spend {
            packed.extend(places.of(&spend.purse).to_be_bytes());
            packed.extend(doubles([spend.cost]));
            if let Some(fill) = &spend.fill {
                let opens = i64::from(fill.creates_lease);
                let said = [
                    fill.life,
                    opens,
                    fill.granted_before,
                    fill.block,
                    fill.bank,
                    fill.refill_at.0,
                ];
                packed.extend(doubles(said));
            }
        }
    }
    command.arg(places.keys.len()).arg(places.keys);
    time(command, now);
    time(command, deadline);
    command.arg(packed);
}

/// Writes a moment as an argument; an absent one is an empty text.
pub fn time(command: &mut Cmd, at: Option<Timestamp>) {
    match at {
        Some(at) => command.arg(at.0),
        None => command.arg(""),
    };
}

/// Every key once, by its place among the script's keys; the first is 1.
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

/// Numbers as a script unpacks them.
pub fn packed(numbers: impl Iterator<Item = i64>) -> Vec<u8> {
    numbers.flat_map(|number| doubles([number])).collect()
}

#[expect(clippy::cast_precision_loss, reason = "all of them are exact up to 2^53, and end there")]
fn doubles<const N: usize>(numbers: [i64; N]) -> impl Iterator<Item = u8> {
    numbers.into_iter().flat_map(|number| (number as f64).to_be_bytes())
}

#[expect(clippy::cast_possible_truncation, reason = "the script answers in whole numbers")]
fn whole(bytes: [u8; 8]) -> i64 {
    f64::from_be_bytes(bytes) as i64
}

/// The script's answer.
pub struct BatchReply {
    /// Redis' time when it ran.
    pub at: Timestamp,
    /// What came of one take after the other; nothing when it ran too late.
    pub taken: Option<Vec<ConsumeReply>>,
}

/// Reads the script's answer; nothing where it is too short.
pub fn decode_reply(takes: &[ConsumeRequest], reply: &[u8]) -> Option<BatchReply> {
    let (numbers, _) = reply.as_chunks();
    let mut reply = numbers.iter().map(|bytes| whole(*bytes));
    let (at, life) = (Timestamp(reply.next()?), reply.next()?);
    if reply.len() == 0 && !takes.is_empty() {
        return Some(BatchReply { at, taken: None });
    }
    let taken = takes.iter().map(|take| read_one(take, life, &mut reply)).collect::<Option<_>>()?;
    Some(BatchReply { at, taken: Some(taken) })
}

/// Reads how so many windows were found.
pub fn read_counted(reply: &[u8], windows: usize) -> Option<Vec<WindowCount>> {
    let (numbers, _) = reply.as_chunks();
    let mut reply = numbers.iter().map(|bytes| whole(*bytes));
    let counted = |_| Some(WindowCount { effective: reply.next()?, number: reply.next()? });
    (0..windows).map(counted).collect()
}

fn read_one(
    take: &ConsumeRequest,
    life: i64,
    reply: &mut impl Iterator<Item = i64>,
) -> Option<ConsumeReply> {
    let (taken, group) = match reply.next()? {
        0 => (false, GroupChange::None),
        1 => (true, GroupChange::None),
        2 => (true, GroupChange::Grown),
        _ => (false, GroupChange::Full),
    };
    let mut windows = Vec::with_capacity(take.windows.len());
    for _ in &take.windows {
        windows.push(WindowCount { effective: reply.next()?, number: reply.next()? });
    }
    let purse = match take.spend {
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
            bank: Some(reply.next()?).filter(|bank| *bank != UNKNOWN),
            spent: reply.next()?,
            life,
        }),
    };
    Some(ConsumeReply { is_admitted: taken, windows, purse, group })
}
