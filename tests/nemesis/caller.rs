//! A client program that calls Keyward and records its requests and their replies.

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
use crate::record::{Action, Answer, Call, Change, KeyIndex, KeyInfo, Withdrawal};

/// The pause of a caller between two requests: the databases share the cores with all other processes.
const PAUSE: Duration = Duration::from_millis(8);

static NO_ANSWER: Answer = Answer {
    status: 0,
    request_id: String::new(),
    degraded: false,
    code: String::new(),
    credits: None,
    limits: Vec::new(),
};

/// The state that all callers share.
pub struct Shared {
    pub addresses: Vec<SocketAddr>,
    pub began: Stopwatch,
    /// The machine's clock when `began` was started.
    pub began_unix_ms: i64,
    /// When the data for the load had been created.
    pub loaded: Duration,
    pub api: String,
    pub keys: Mutex<Vec<KeyInfo>>,
    /// Keys that no replica has seen.
    pub fresh: Mutex<VecDeque<KeyIndex>>,
    /// A key that is re-rolled while all callers spend from it, and the key that replaces it.
    pub rerolled: Mutex<Vec<KeyIndex>>,
    /// Whether a replica runs an earlier version, which leaves the credits on a re-rolled key.
    pub has_earlier_version: bool,
    pub stop: AtomicBool,
}

impl Shared {
    pub fn keys(&self) -> MutexGuard<'_, Vec<KeyInfo>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn fresh(&self) -> MutexGuard<'_, VecDeque<KeyIndex>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn rerolled(&self) -> MutexGuard<'_, Vec<KeyIndex>> {
        self.rerolled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

pub fn pause() {
    std::thread::sleep(PAUSE);
}

pub struct Caller<'a> {
    pub shared: &'a Shared,
    pub random: StdRng,
    clients: Vec<Client>,
    pub calls: Vec<Call>,
}

impl<'a> Caller<'a> {
    pub fn new(shared: &'a Shared, random: StdRng) -> Self {
        let clients = shared.addresses.iter().map(|address| Client::new(*address)).collect();
        Self { shared, random, clients, calls: Vec::new() }
    }

    pub fn replicas(&self) -> usize {
        self.clients.len()
    }

    pub fn any_replica(&mut self) -> usize {
        self.random.random_range(0..self.clients.len())
    }

    /// Sends a request, waits for the reply, and records both.
    pub fn send(&mut self, replica: usize, action: Action) -> &Answer {
        let (operation, body) = self.request(&action);
        let sent = self.shared.began.elapsed();
        let client = &mut self.clients[replica];
        let response = match operation {
            "" => client.get("/livez"),
            _ => client.v2(ROOT_KEY, operation, &body),
        };
        let received = self.shared.began.elapsed();
        let answer =
            response.ok().map(|response| Answer::parse(response.status, &response.body, &action));
        if answer.is_none() {
            // If requests fail at once, the caller would loop without a pause.
            pause();
        }
        self.calls.push(Call { replica, action, sent, received, answer });
        self.calls.last().and_then(|call| call.answer.as_ref()).unwrap_or(&NO_ANSWER)
    }

    fn request(&self, action: &Action) -> (&'static str, Value) {
        let keys = self.shared.keys();
        let id = |key: &KeyIndex| keys[*key].id.as_str();
        match action {
            Action::Control | Action::Create { .. } | Action::Reroll { .. } => ("", Value::Null),
            Action::Verify { key, cost } => {
                let mut body = json!({ "key": keys[*key].key });
                if keys[*key].credits.is_some() {
                    body["credits"] = json!({ "cost": cost });
                }
                if let Some(permission) = &keys[*key].permission {
                    body["permissions"] = json!(permission);
                }
                ("keys.verifyKey", body)
            }
            Action::Limit { counter, limit, duration_ms, cost } => {
                let (namespace, identifier) =
                    counter.split_once('/').unwrap_or(("nemesis", counter));
                let body = json!({
                    "namespace": namespace, "identifier": identifier,
                    "limit": limit, "duration": duration_ms, "cost": cost
                });
                ("ratelimit.limit", body)
            }
            Action::Credits { key, change } => {
                let (operation, value) = match change {
                    Change::Set(value) => ("set", Some(value)),
                    Change::Unlimit => ("set", None),
                    Change::Increment(value) => ("increment", Some(value)),
                    Change::Decrement(value) => ("decrement", Some(value)),
                };
                let body = json!({ "keyId": id(key), "operation": operation, "value": value });
                ("keys.updateCredits", body)
            }
            Action::Rename { key, name } => {
                ("keys.updateKey", json!({ "keyId": id(key), "name": name }))
            }
            Action::SetLimit { key, limit } => {
                let (name, _, duration) = &keys[*key].limits[0];
                let changed = json!([{
                    "name": name, "limit": limit, "duration": duration, "autoApply": true
                }]);
                ("keys.updateKey", json!({ "keyId": id(key), "ratelimits": changed }))
            }
            Action::Disable { key } => {
                ("keys.updateKey", json!({ "keyId": id(key), "enabled": false }))
            }
            Action::Delete { key } => ("keys.deleteKey", json!({ "keyId": id(key) })),
            Action::Withdraw { key, what } => withdrawal_request(&keys[*key], *what),
            Action::Override { counter } => {
                let (namespace, identifier) =
                    counter.split_once('/').unwrap_or(("nemesis", counter));
                let body = json!({
                    "namespace": namespace, "identifier": identifier, "limit": 0, "duration": 60_000
                });
                ("ratelimit.setOverride", body)
            }
        }
    }

    /// Creates something that a key needs, without recording the call. Returns whether it was acknowledged.
    pub fn create_resource(&mut self, replica: usize, operation: &str, body: &Value) -> bool {
        let response = self.clients[replica].v2(ROOT_KEY, operation, body);
        response.is_ok_and(|response| response.status == 200)
    }

    /// Creates a key. Returns `None` if it was not acknowledged.
    pub fn create(&mut self, replica: usize, info: KeyInfo) -> Option<KeyIndex> {
        let limit = |(name, limit, duration): &(String, i64, i64)| json!({ "name": name, "limit": limit, "duration": duration, "autoApply": true });
        let mut body = json!({
            "apiId": self.shared.api,
            "ratelimits": info.limits.iter().map(limit).collect::<Vec<_>>()
        });
        if let Some(remaining) = info.credits {
            body["credits"] = json!({ "remaining": remaining });
        }
        match (&info.role, &info.permission) {
            (Some(role), _) => body["roles"] = json!([role]),
            (None, Some(permission)) => body["permissions"] = json!([permission]),
            (None, None) => {}
        }
        if let Some(identity) = &info.identity {
            body["externalId"] = json!(identity);
        }
        if let Some(amount) = info.refill {
            body["credits"]["refill"] = json!({ "interval": "daily", "amount": amount });
        }
        self.issue(replica, ("keys.createKey", &body), info, |key| Action::Create { key })
    }

    /// Re-rolls a key with credits, which expires after `grace_ms`. Returns the new key, or `None` if it was not
    /// acknowledged.
    pub fn reroll(&mut self, replica: usize, key: KeyIndex, grace_ms: i64) -> Option<KeyIndex> {
        let info = self.shared.keys()[key].clone();
        let body = json!({ "keyId": info.id, "expiration": grace_ms });
        let action = |new| Action::Reroll { key, grace_ms, new };
        self.issue(replica, ("keys.rerollKey", &body), info, action)
    }

    /// Issues a key and records the call. Returns `None` if it was not acknowledged.
    fn issue(
        &mut self,
        replica: usize,
        (operation, body): (&str, &Value),
        info: KeyInfo,
        action: impl Fn(Option<KeyIndex>) -> Action,
    ) -> Option<KeyIndex> {
        let sent = self.shared.began.elapsed();
        let response = self.clients[replica].v2(ROOT_KEY, operation, body);
        let received = self.shared.began.elapsed();
        let mut issued = None;
        let answer = response.ok().map(|response| {
            let data: Value = serde_json::from_str(&response.body).unwrap_or(Value::Null);
            if let (200, Some(id), Some(key)) =
                (response.status, data["data"]["keyId"].as_str(), data["data"]["key"].as_str())
            {
                let mut keys = self.shared.keys();
                issued = Some(keys.len());
                keys.push(KeyInfo { id: id.to_owned(), key: key.to_owned(), ..info });
            }
            Answer::parse(response.status, &response.body, &action(issued))
        });
        self.calls.push(Call { replica, action: action(issued), sent, received, answer });
        issued
    }
}

fn withdrawal_request(info: &KeyInfo, what: Withdrawal) -> (&'static str, Value) {
    match what {
        Withdrawal::Permission => {
            let permissions = [&info.permission];
            ("keys.removePermissions", json!({ "keyId": info.id, "permissions": permissions }))
        }
        Withdrawal::Role => ("permissions.deleteRole", json!({ "role": info.role })),
        Withdrawal::IdentityLimit => {
            let limits = identity_limits(Withdrawal::LIMIT_AFTER);
            let body = json!({ "identity": info.identity, "ratelimits": limits });
            ("identities.updateIdentity", body)
        }
        Withdrawal::Reroll => ("keys.rerollKey", json!({ "keyId": info.id, "expiration": 0 })),
    }
}

/// Returns the limits of an identity as a request has them.
pub fn identity_limits(limit: i64) -> Value {
    json!([{ "name": "identity", "limit": limit, "duration": 60_000, "autoApply": true }])
}
