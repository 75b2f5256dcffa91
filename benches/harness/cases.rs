//! Defines the benchmark cases.

use super::key_sets::KeySet;

/// The result table of a case. The first case of a table is the baseline by which the others are divided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Memory,
    Redis,
    /// Several limits, compared with one call per limit.
    Several,
    /// One key that all connections verify.
    Hot,
    /// The same verification through both versions of the API.
    Versions,
    /// The standalone limiter, exact and approximate.
    Quick,
    /// Operations for which an embedded server writes to its file.
    Writing,
}

impl Group {
    pub const ALL: [Self; 7] = [
        Self::Memory,
        Self::Redis,
        Self::Several,
        Self::Hot,
        Self::Versions,
        Self::Quick,
        Self::Writing,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Memory => "Decided in the process, against a bare echo (#1)",
            Self::Redis => "Decided in Redis, against an echo with one script call (#3)",
            Self::Several => "Five limits, against an echo with five script calls in turn",
            Self::Hot => "One key that everybody asks for: with credits, against without",
            Self::Versions => "Verification through version 1, against version 2",
            Self::Quick => "Counted in Redis a moment later (`async`), against at once",
            Self::Writing => "Written to the file of an embedded server, against plain keys",
        }
    }
}

/// The server that answers the requests of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Ceiling,
    Embedded,
    Replica,
}

impl Place {
    pub const KEYWARD: [Self; 2] = [Self::Embedded, Self::Replica];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ceiling => "ceiling",
            Self::Embedded => "embedded",
            Self::Replica => "replica",
        }
    }
}

pub struct Case {
    pub name: &'static str,
    pub group: Group,
    pub place: Place,
    pub path: &'static str,
    /// The keys, which also determine the limits that a response must include.
    pub keys: KeySet,
    /// Whether analytics events are written; otherwise nearly all of them are dropped.
    pub is_recorded: bool,
    /// The number of connections with a request in flight.
    pub connections: usize,
}

/// The number of connections of a case, unless it sets another one.
const CONNECTIONS: usize = 64;

impl Case {
    /// Returns whether this is the baseline of its group: its first case.
    pub fn is_base(&self) -> bool {
        CASES.iter().find(|case| case.group == self.group).is_some_and(|c| c.name == self.name)
    }

    /// Returns the environment variables of the server, beyond those that locate its data.
    pub fn variables(&self) -> &'static [(&'static str, &'static str)] {
        if self.is_recorded { &[] } else { &[("KEYWARD_EVENTS_WAITING", "100")] }
    }

    /// Returns whether the server uses Redis.
    pub fn has_redis(&self) -> bool {
        match self.place {
            Place::Ceiling => self.group != Group::Memory,
            Place::Embedded => false,
            Place::Replica => true,
        }
    }
}

pub const VERIFY: &str = "/v2/keys.verifyKey";
const VERIFY_V1: &str = "/v1/keys.verifyKey";
const CREATE: &str = "/v2/keys.createKey";
const LIMIT: &str = "/v2/ratelimit.limit";
const LIMIT_V1: &str = "/v1/ratelimits.limit";

/// All cases; the ceiling comes first in its group.
pub const CASES: [Case; 28] = [
    ceiling("echo", Group::Memory, "/echo", KeySet::Plain),
    verify("verify cached, embedded", Group::Memory, Place::Embedded, KeySet::Plain),
    verify("verify cached, replica", Group::Memory, Place::Replica, KeySet::Plain),
    unrecorded("verify cached, embedded, events dropped", Place::Embedded),
    unrecorded("verify cached, replica, events dropped", Place::Replica),
    verify(
        "verify cached, permission query + role, embedded",
        Group::Memory,
        Place::Embedded,
        KeySet::Permitted,
    ),
    verify(
        "verify cached, permission query + role, replica",
        Group::Memory,
        Place::Replica,
        KeySet::Permitted,
    ),
    verify("verify, one in-process limit", Group::Memory, Place::Embedded, KeySet::OneLimit),
    limit("ratelimit.limit, in the process", Group::Memory, Place::Embedded),
    ceiling("echo+EVALSHA", Group::Redis, "/limit", KeySet::OneLimit),
    verify("verify, one Redis limit", Group::Redis, Place::Replica, KeySet::OneLimit),
    limit("ratelimit.limit, in Redis", Group::Redis, Place::Replica),
    verify("verify, 5 limits", Group::Redis, Place::Replica, KeySet::FiveLimits),
    verify(
        "verify, 5 limits + credits",
        Group::Redis,
        Place::Replica,
        KeySet::FiveLimitsAndCredits,
    ),
    ceiling("echo + 5 EVALSHA in turn", Group::Several, "/limits", KeySet::FiveLimits),
    verify(
        "verify, 5 limits + credits in one",
        Group::Several,
        Place::Replica,
        KeySet::FiveLimitsAndCredits,
    ),
    verify("verify hot key, one limit", Group::Hot, Place::Replica, KeySet::HotLimit),
    verify("verify hot key, one limit + credits", Group::Hot, Place::Replica, KeySet::HotCredits),
    verify("v2 verify, cached", Group::Versions, Place::Replica, KeySet::Plain),
    v1("v1 verify, cached", Group::Versions, VERIFY_V1, KeySet::Plain),
    verify("v2 verify, one limit", Group::Versions, Place::Replica, KeySet::OneLimit),
    v1("v1 verify, one limit", Group::Versions, VERIFY_V1, KeySet::OneLimit),
    v1("v1 limit, exact", Group::Quick, LIMIT_V1, KeySet::FewIdentifiers),
    v1("v1 limit, async", Group::Quick, LIMIT_V1, KeySet::QuickIdentifiers),
    verify("verify, plain keys, embedded", Group::Writing, Place::Embedded, KeySet::Plain),
    writing("verify, keys with credits, embedded", VERIFY, KeySet::Credits, CONNECTIONS),
    writing("verify, keys with credits, 4 clients, embedded", VERIFY, KeySet::Credits, 4),
    writing("creating keys, 16 clients, embedded", CREATE, KeySet::Creations, 16),
];

const fn ceiling(name: &'static str, group: Group, path: &'static str, keys: KeySet) -> Case {
    Case {
        name,
        group,
        place: Place::Ceiling,
        path,
        keys,
        is_recorded: true,
        connections: CONNECTIONS,
    }
}

pub const fn verify(name: &'static str, group: Group, place: Place, keys: KeySet) -> Case {
    Case { name, group, place, path: VERIFY, keys, is_recorded: true, connections: CONNECTIONS }
}

const fn unrecorded(name: &'static str, place: Place) -> Case {
    let (group, keys) = (Group::Memory, KeySet::Plain);
    Case { name, group, place, path: VERIFY, keys, is_recorded: false, connections: CONNECTIONS }
}

const fn limit(name: &'static str, group: Group, place: Place) -> Case {
    Case {
        name,
        group,
        place,
        path: LIMIT,
        keys: KeySet::Identifiers,
        is_recorded: true,
        connections: CONNECTIONS,
    }
}

const fn writing(name: &'static str, path: &'static str, keys: KeySet, connections: usize) -> Case {
    let (group, place) = (Group::Writing, Place::Embedded);
    Case { name, group, place, path, keys, is_recorded: true, connections }
}

const fn v1(name: &'static str, group: Group, path: &'static str, keys: KeySet) -> Case {
    Case {
        name,
        group,
        place: Place::Replica,
        path,
        keys,
        is_recorded: true,
        connections: CONNECTIONS,
    }
}

/// Returns the cases whose name contains `only`, each with the baseline of its group, because a result is meaningful
/// only relative to its baseline.
pub fn selected(only: &str) -> Vec<&'static Case> {
    let wanted = |case: &Case| case.name.contains(only);
    CASES
        .iter()
        .filter(|case| {
            wanted(case)
                || (case.is_base() && CASES.iter().any(|c| c.group == case.group && wanted(c)))
        })
        .collect()
}
