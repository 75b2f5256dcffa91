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
    /// The endpoint of gateways, compared with the operation: key in the cache, no limits, no credits.
    GatewayCached,
    /// The same with a limit that is counted in the process.
    GatewayLocal,
    /// The same with a limit that is counted in Redis.
    GatewayRedis,
    /// The rate-limit service of Envoy.
    RateLimitService,
    /// nginx in front of a service, which asks another server about each request.
    Nginx,
}

impl Group {
    pub const ALL: [Self; 12] = [
        Self::Memory,
        Self::Redis,
        Self::Several,
        Self::Hot,
        Self::Versions,
        Self::Quick,
        Self::Writing,
        Self::GatewayCached,
        Self::GatewayLocal,
        Self::GatewayRedis,
        Self::RateLimitService,
        Self::Nginx,
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
            Self::GatewayCached => {
                "Asked by a gateway, against keys.verifyKey: cached keys, a replica"
            }
            Self::GatewayLocal => "Asked by a gateway, against keys.verifyKey: one limit, embedded",
            Self::GatewayRedis => {
                "Asked by a gateway, against keys.verifyKey: one limit, a replica"
            }
            Self::RateLimitService => {
                "Rate limits over gRPC, against a bare tonic server with one script call"
            }
            Self::Nginx => "Requests through nginx with auth_request, against a fixed 204",
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

/// How the requests of a case reach the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// As an operation of the API.
    Operation,
    /// As a gateway asks over HTTP.
    Gateway,
    /// As Envoy asks its external authorization, over gRPC.
    ExtAuthz,
    /// As Envoy asks its rate-limit service, over gRPC.
    RateLimitService,
    /// As requests to a service behind nginx.
    Nginx,
}

impl Interface {
    pub fn is_grpc(self) -> bool {
        matches!(self, Self::ExtAuthz | Self::RateLimitService)
    }
}

pub struct Case {
    pub name: &'static str,
    pub group: Group,
    pub place: Place,
    pub interface: Interface,
    pub path: &'static str,
    /// The keys, which also determine the limits that a response must include.
    pub keys: KeySet,
    /// Whether analytics events are written; otherwise nearly all of them are dropped.
    pub is_recorded: bool,
    /// The number of connections.
    pub connections: usize,
    /// The number of requests that each connection has in flight.
    pub streams: usize,
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
            Place::Ceiling => self.keys != KeySet::Plain,
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
/// The policy has this name.
const GATEWAY: &str = "/gateway/edge";
const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// A path of the service behind nginx.
const DOCUMENT: &str = "/documents/1";

/// All cases; the ceiling comes first in its group.
pub const CASES: [Case; 42] = [
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
    verify("keys.verifyKey, cached", Group::GatewayCached, Place::Replica, KeySet::Plain),
    gateway("gateway, cached", Group::GatewayCached, Place::Replica, KeySet::Plain),
    ext_authz("ext_authz, cached", Group::GatewayCached, KeySet::Plain),
    verify("keys.verifyKey, embedded", Group::GatewayLocal, Place::Embedded, KeySet::OneLimit),
    gateway("gateway, embedded", Group::GatewayLocal, Place::Embedded, KeySet::OneLimit),
    verify("keys.verifyKey, replica", Group::GatewayRedis, Place::Replica, KeySet::OneLimit),
    gateway("gateway, replica", Group::GatewayRedis, Place::Replica, KeySet::OneLimit),
    ext_authz("ext_authz, replica", Group::GatewayRedis, KeySet::OneLimit),
    rate_limit("tonic echo+EVALSHA", Place::Ceiling),
    rate_limit("ShouldRateLimit, in Redis", Place::Replica),
    rate_limit("ShouldRateLimit, in the process", Place::Embedded),
    nginx("nginx, a fixed 204", Place::Ceiling, KeySet::Plain),
    nginx("nginx, cached keys, embedded", Place::Embedded, KeySet::Plain),
    nginx("nginx, one limit, replica", Place::Replica, KeySet::OneLimit),
];

/// A verification, from which the other cases differ in what their functions name.
pub const fn verify(name: &'static str, group: Group, place: Place, keys: KeySet) -> Case {
    Case {
        name,
        group,
        place,
        interface: Interface::Operation,
        path: VERIFY,
        keys,
        is_recorded: true,
        connections: CONNECTIONS,
        streams: 1,
    }
}

const fn ceiling(name: &'static str, group: Group, path: &'static str, keys: KeySet) -> Case {
    Case { path, ..verify(name, group, Place::Ceiling, keys) }
}

const fn unrecorded(name: &'static str, place: Place) -> Case {
    Case { is_recorded: false, ..verify(name, Group::Memory, place, KeySet::Plain) }
}

const fn limit(name: &'static str, group: Group, place: Place) -> Case {
    Case { path: LIMIT, ..verify(name, group, place, KeySet::Identifiers) }
}

const fn writing(name: &'static str, path: &'static str, keys: KeySet, connections: usize) -> Case {
    Case { path, connections, ..verify(name, Group::Writing, Place::Embedded, keys) }
}

const fn v1(name: &'static str, group: Group, path: &'static str, keys: KeySet) -> Case {
    Case { path, ..verify(name, group, Place::Replica, keys) }
}

const fn gateway(name: &'static str, group: Group, place: Place, keys: KeySet) -> Case {
    let interface = Interface::Gateway;
    Case { interface, path: GATEWAY, ..verify(name, group, place, keys) }
}

/// As many requests are in flight as in the cases of HTTP, over the few connections that a gateway opens.
const fn ext_authz(name: &'static str, group: Group, keys: KeySet) -> Case {
    Case {
        interface: Interface::ExtAuthz,
        path: CHECK,
        connections: 4,
        streams: CONNECTIONS / 4,
        ..verify(name, group, Place::Replica, keys)
    }
}

/// As many connections and requests as in the measurement of Envoy's own service.
const fn rate_limit(name: &'static str, place: Place) -> Case {
    Case {
        interface: Interface::RateLimitService,
        path: SHOULD_RATE_LIMIT,
        connections: 4,
        streams: 64,
        ..verify(name, Group::RateLimitService, place, KeySet::Identifiers)
    }
}

/// As many connections as nginx keeps open to the servers behind it, by the shipped configuration.
const fn nginx(name: &'static str, place: Place, keys: KeySet) -> Case {
    Case {
        interface: Interface::Nginx,
        path: DOCUMENT,
        connections: 32,
        ..verify(name, Group::Nginx, place, keys)
    }
}

/// Returns the cases that `only` names, each with the baseline of its group, because a result is meaningful only
/// relative to its baseline.
pub fn selected(only: &str) -> Vec<&'static Case> {
    let wanted = |case: &Case| is_named(case.name, only);
    CASES
        .iter()
        .filter(|case| {
            wanted(case)
                || (case.is_base() && CASES.iter().any(|c| c.group == case.group && wanted(c)))
        })
        .collect()
}

/// Returns whether a name contains one of the texts, which are separated by `|`.
pub fn is_named(name: &str, only: &str) -> bool {
    only.split('|').any(|text| name.contains(text))
}
