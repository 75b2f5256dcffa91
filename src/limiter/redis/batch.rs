//! Several takes in one script call, as `lua/take.lua` reads and answers them.

use std::collections::HashMap;

use redis::Cmd;

use super::super::{Counted, Purse, PurseState, Take, Taken};
use crate::clock::Timestamp;

/// How long an untouched purse is kept: longer than any key is likely to rest.
const PURSE_LIFE_MS: i64 = 400 * 24 * 60 * 60 * 1000;
/// What the script is told where the bank's balance is not known.
const UNKNOWN: i64 = -1;

/// Writes the script's arguments.
pub fn write(command: &mut Cmd, takes: &[&Take], now: Option<Timestamp>) {
    let mut places = Places { keys: Vec::new(), of: HashMap::new() };
    let mut packed = Vec::with_capacity(64 * takes.len());
    for take in takes {
        let windows = u16::try_from(take.windows.len()).unwrap_or(u16::MAX);
        packed.extend(windows.to_be_bytes());
        packed.push(u8::from(take.spend.is_some()));
        for window in &take.windows {
            packed.extend(places.of(&window.key).to_be_bytes());
            packed.extend(doubles([window.limit, window.duration_ms, window.cost]));
        }
        if let Some(spend) = &take.spend {
            let bank = spend.bank.unwrap_or(UNKNOWN);
            packed.extend(places.of(&spend.purse).to_be_bytes());
            packed.extend(doubles([spend.cost, spend.put, bank, PURSE_LIFE_MS]));
        }
    }
    command.arg(places.keys.len()).arg(places.keys);
    match now {
        Some(now) => command.arg(now.0),
        None => command.arg(""),
    };
    command.arg(packed);
}

/// Every key once, by its place among the script's keys; the first is 1.
struct Places<'a> {
    keys: Vec<&'a str>,
    of: HashMap<&'a str, u16>,
}

impl<'a> Places<'a> {
    fn of(&mut self, key: &'a str) -> u16 {
        *self.of.entry(key).or_insert_with(|| {
            self.keys.push(key);
            u16::try_from(self.keys.len()).unwrap_or(u16::MAX)
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "all of them are exact up to 2^53, and end there")]
fn doubles<const N: usize>(numbers: [i64; N]) -> impl Iterator<Item = u8> {
    numbers.into_iter().flat_map(|number| (number as f64).to_be_bytes())
}

/// Reads the script's answer to one take after the other; nothing where it is too short.
pub fn read(takes: &[&Take], reply: &[i64]) -> Option<Vec<Taken>> {
    let mut reply = reply.iter().copied();
    takes.iter().map(|take| read_one(take, &mut reply)).collect()
}

fn read_one(take: &Take, reply: &mut impl Iterator<Item = i64>) -> Option<Taken> {
    let taken = reply.next()? == 1;
    let mut windows = Vec::with_capacity(take.windows.len());
    for _ in &take.windows {
        windows.push(Counted { effective: reply.next()?, number: reply.next()? });
    }
    let purse = match take.spend {
        None => None,
        Some(_) => Some(Purse {
            state: match reply.next()? {
                0 => PurseState::Enough,
                1 => PurseState::Short,
                _ => PurseState::Exceeded,
            },
            units: reply.next()?,
            bank: Some(reply.next()?).filter(|bank| *bank != UNKNOWN),
        }),
    };
    Some(Taken { taken, windows, purse })
}
