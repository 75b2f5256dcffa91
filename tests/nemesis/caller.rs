//! A program that calls Keyward, and writes down what it asked and what came of it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foundation::clock::Stopwatch;
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::client::Client;
use crate::fleet::ROOT_KEY;
use crate::record::{Act, Answer, Asked, Change, KeyFacts, KeyNo, Withdrawal};

/// How long a caller rests between two requests: the databases share the cores with everything here.
const REST: Duration = Duration::from_millis(8);

static NO_ANSWER: Answer = Answer {
    status: 0,
    request_id: String::new(),
    degraded: false,
    code: String::new(),
    credits: None,
    limits: Vec::new(),
};

/// What all callers share.
pub struct Shared {
    pub addresses: Vec<SocketAddr>,
    pub began: Stopwatch,
    /// The machine's clock at that moment.
    pub began_unix_ms: i64,
    /// When all that is needed had been made.
    pub loaded: Duration,
    pub api: String,
    pub keys: Mutex<Vec<KeyFacts>>,
    /// Keys that no replica has seen.
    pub fresh: Mutex<VecDeque<KeyNo>>,
    /// A key that is re-rolled while everybody spends it, and the one that has taken its place.
    pub rerolled: Mutex<Vec<KeyNo>>,
    /// Whether a replica is of an earlier version, which leaves the credits on a re-rolled key.
    pub has_earlier_version: bool,
    pub stop: AtomicBool,
}

impl Shared {
    pub fn keys(&self) -> MutexGuard<'_, Vec<KeyFacts>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn fresh(&self) -> MutexGuard<'_, VecDeque<KeyNo>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn rerolled(&self) -> MutexGuard<'_, Vec<KeyNo>> {
        self.rerolled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

pub fn rest() {
    std::thread::sleep(REST);
}

pub struct Caller<'a> {
    pub shared: &'a Shared,
    pub random: StdRng,
    clients: Vec<Client>,
    pub acts: Vec<Act>,
}

impl<'a> Caller<'a> {
    pub fn new(shared: &'a Shared, random: StdRng) -> Self {
        let clients = shared.addresses.iter().map(|address| Client::of(*address)).collect();
        Self { shared, random, clients, acts: Vec::new() }
    }

    pub fn replicas(&self) -> usize {
        self.clients.len()
    }

    pub fn any_replica(&mut self) -> usize {
        self.random.random_range(0..self.clients.len())
    }

    /// Sends a request, waits for its answer, and writes both down.
    pub fn ask(&mut self, replica: usize, asked: Asked) -> &Answer {
        let (operation, body) = self.request(&asked);
        let sent = self.shared.began.elapsed();
        let client = &mut self.clients[replica];
        let told = match operation {
            "" => client.get("/livez"),
            _ => client.v2(ROOT_KEY, operation, &body),
        };
        let received = self.shared.began.elapsed();
        let answer = told.ok().map(|told| Answer::read(told.status, &told.body, &asked));
        if answer.is_none() {
            // Whoever is refused at once would ask in a circle.
            rest();
        }
        self.acts.push(Act { replica, asked, sent, received, answer });
        self.acts.last().and_then(|act| act.answer.as_ref()).unwrap_or(&NO_ANSWER)
    }

    fn request(&self, asked: &Asked) -> (&'static str, Value) {
        let keys = self.shared.keys();
        let id = |key: &KeyNo| keys[*key].id.as_str();
        match asked {
            Asked::Control | Asked::Create { .. } | Asked::Reroll { .. } => ("", Value::Null),
            Asked::Verify { key, cost } => {
                let mut body = json!({ "key": keys[*key].key });
                if keys[*key].credits.is_some() {
                    body["credits"] = json!({ "cost": cost });
                }
                if let Some(permission) = &keys[*key].permission {
                    body["permissions"] = json!(permission);
                }
                ("keys.verifyKey", body)
            }
            Asked::Limit { counter, limit, duration_ms, cost } => {
                let (namespace, identifier) =
                    counter.split_once('/').unwrap_or(("nemesis", counter));
                let body = json!({
                    "namespace": namespace, "identifier": identifier,
                    "limit": limit, "duration": duration_ms, "cost": cost
                });
                ("ratelimit.limit", body)
            }
            Asked::Credits { key, change } => {
                let (operation, value) = match change {
                    Change::Set(value) => ("set", Some(value)),
                    Change::Unlimit => ("set", None),
                    Change::Increment(value) => ("increment", Some(value)),
                    Change::Decrement(value) => ("decrement", Some(value)),
                };
                let body = json!({ "keyId": id(key), "operation": operation, "value": value });
                ("keys.updateCredits", body)
            }
            Asked::Rename { key, name } => {
                ("keys.updateKey", json!({ "keyId": id(key), "name": name }))
            }
            Asked::Disable { key } => {
                ("keys.updateKey", json!({ "keyId": id(key), "enabled": false }))
            }
            Asked::Delete { key } => ("keys.deleteKey", json!({ "keyId": id(key) })),
            Asked::Withdraw { key, what } => withdrawal(&keys[*key], *what),
            Asked::Override { counter } => {
                let (namespace, identifier) =
                    counter.split_once('/').unwrap_or(("nemesis", counter));
                let body = json!({
                    "namespace": namespace, "identifier": identifier, "limit": 0, "duration": 60_000
                });
                ("ratelimit.setOverride", body)
            }
        }
    }

    /// Makes what a key needs, which is not written down; whether it was acknowledged.
    pub fn make(&mut self, replica: usize, operation: &str, body: &Value) -> bool {
        let told = self.clients[replica].v2(ROOT_KEY, operation, body);
        told.is_ok_and(|told| told.status == 200)
    }

    /// Makes a key. `None`: not acknowledged.
    pub fn create(&mut self, replica: usize, facts: KeyFacts) -> Option<KeyNo> {
        let limit = |(name, limit, duration): &(String, i64, i64)| json!({ "name": name, "limit": limit, "duration": duration, "autoApply": true });
        let mut body = json!({
            "apiId": self.shared.api,
            "ratelimits": facts.limits.iter().map(limit).collect::<Vec<_>>()
        });
        if let Some(remaining) = facts.credits {
            body["credits"] = json!({ "remaining": remaining });
        }
        match (&facts.role, &facts.permission) {
            (Some(role), _) => body["roles"] = json!([role]),
            (None, Some(permission)) => body["permissions"] = json!([permission]),
            (None, None) => {}
        }
        if let Some(identity) = &facts.identity {
            body["externalId"] = json!(identity);
        }
        if let Some(amount) = facts.refill {
            body["credits"]["refill"] = json!({ "interval": "daily", "amount": amount });
        }
        self.issue(replica, ("keys.createKey", &body), facts, |key| Asked::Create { key })
    }

    /// Issues a key that takes the place of one with credits, which ends after `grace_ms`. `None`: not acknowledged.
    pub fn reroll(&mut self, replica: usize, key: KeyNo, grace_ms: i64) -> Option<KeyNo> {
        let facts = self.shared.keys()[key].clone();
        let body = json!({ "keyId": facts.id, "expiration": grace_ms });
        let asked = |new| Asked::Reroll { key, grace_ms, new };
        self.issue(replica, ("keys.rerollKey", &body), facts, asked)
    }

    /// Has a key issued, and writes that down. `None`: not acknowledged.
    fn issue(
        &mut self,
        replica: usize,
        (operation, body): (&str, &Value),
        facts: KeyFacts,
        asked: impl Fn(Option<KeyNo>) -> Asked,
    ) -> Option<KeyNo> {
        let sent = self.shared.began.elapsed();
        let told = self.clients[replica].v2(ROOT_KEY, operation, body);
        let received = self.shared.began.elapsed();
        let mut issued = None;
        let answer = told.ok().map(|told| {
            let data: Value = serde_json::from_str(&told.body).unwrap_or(Value::Null);
            if let (200, Some(id), Some(key)) =
                (told.status, data["data"]["keyId"].as_str(), data["data"]["key"].as_str())
            {
                let mut keys = self.shared.keys();
                issued = Some(keys.len());
                keys.push(KeyFacts { id: id.to_owned(), key: key.to_owned(), ..facts });
            }
            Answer::read(told.status, &told.body, &asked(issued))
        });
        self.acts.push(Act { replica, asked: asked(issued), sent, received, answer });
        issued
    }
}

fn withdrawal(facts: &KeyFacts, what: Withdrawal) -> (&'static str, Value) {
    match what {
        Withdrawal::Permission => {
            let permissions = [&facts.permission];
            ("keys.removePermissions", json!({ "keyId": facts.id, "permissions": permissions }))
        }
        Withdrawal::Role => ("permissions.deleteRole", json!({ "role": facts.role })),
        Withdrawal::IdentityLimit => {
            let limits = identity_limits(Withdrawal::LIMIT_AFTER);
            let body = json!({ "identity": facts.identity, "ratelimits": limits });
            ("identities.updateIdentity", body)
        }
        Withdrawal::Reroll => ("keys.rerollKey", json!({ "keyId": facts.id, "expiration": 0 })),
    }
}

/// The limits of an identity.
pub fn identity_limits(limit: i64) -> Value {
    json!([{ "name": "identity", "limit": limit, "duration": 60_000, "autoApply": true }])
}
