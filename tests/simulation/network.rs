//! Carries calls between nodes: with delays, losses, and calls that are executed although nobody waits any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::executor::{Node, Sim, lock};

/// The node on which calls travel. It is never killed or paused.
const NETWORK: Node = 900;

/// The call failed, or its reply was lost: it is unknown whether it was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// The state of a link between two nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LinkState {
    #[default]
    Up,
    /// Calls fail at once.
    Refused,
    /// Calls wait until the link is up, and are then delivered or lost.
    Hanging,
}

/// All servers of a kind, and the one that their address leads each replica to: the first, unless it is routed.
pub struct Servers<S> {
    pub all: Vec<S>,
    routes: BTreeMap<Node, usize>,
}

impl<S> Servers<S> {
    pub fn from_first(first: S) -> Self {
        Self { all: vec![first], routes: BTreeMap::new() }
    }

    pub fn route(&mut self, replica: Node, server: usize) {
        self.routes.insert(replica, server);
    }

    pub fn server_of(&mut self, replica: Node) -> &mut S {
        let number = self.routes.get(&replica).copied().unwrap_or(0);
        &mut self.all[number]
    }
}

#[derive(Clone)]
pub struct Network {
    pub sim: Sim,
    state: Arc<Mutex<NetworkState>>,
    link_changed: Arc<Notify>,
}

#[derive(Default)]
struct NetworkState {
    /// The links that are not up.
    links: BTreeMap<(Node, Node), LinkState>,
    /// How many times longer than usual each call to a server takes.
    slowness: BTreeMap<Node, u64>,
    /// How long a message takes more than usual, one way.
    distances: BTreeMap<(Node, Node), Duration>,
}

impl Network {
    pub fn new(sim: &Sim) -> Self {
        Self { sim: sim.clone(), state: Arc::default(), link_changed: Arc::default() }
    }

    pub fn set_link(&self, from: Node, to: Node, state: LinkState) {
        lock(&self.state).links.insert((from, to), state);
        self.link_changed.notify_waiters();
    }

    pub fn set_slowness(&self, server: Node, times: u64) {
        lock(&self.state).slowness.insert(server, times);
    }

    pub fn set_distance(&self, from: Node, to: Node, one_way: Duration) {
        lock(&self.state).distances.insert((from, to), one_way);
    }

    pub fn link(&self, from: Node, to: Node) -> LinkState {
        lock(&self.state).links.get(&(from, to)).copied().unwrap_or_default()
    }

    /// Executes `operation` on a server and returns its reply. It is also executed if the caller ends meanwhile.
    pub async fn call<T, F>(&self, from: Node, to: Node, operation: F) -> Result<T, Lost>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let network = self.clone();
        self.sim.spawn(NETWORK, async move {
            if network.travel(from, to).await {
                let reply = operation.await;
                if network.travel(from, to).await {
                    let _ = sender.send(reply);
                }
            }
        });
        receiver.await.map_err(|_| Lost)
    }

    /// Runs a task that no fault ends.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.sim.spawn(NETWORK, task);
    }

    /// Waits until a server notices that a client has given up: at once, unless the link between them hangs.
    pub async fn wait_until_noticed(&self, client: Node, server: Node, max: Duration) {
        match self.link(client, server) {
            LinkState::Up | LinkState::Refused => self.sim.sleep_ms(1).await,
            LinkState::Hanging => self.sim.sleep(max).await,
        }
    }

    /// Travels one way. Returns whether the message arrives.
    async fn travel(&self, from: Node, to: Node) -> bool {
        let slowness = lock(&self.state).slowness.get(&to).copied().unwrap_or(1);
        let usual_us = 50 + self.sim.random(500);
        let delay_us = if self.sim.is_once_in(100) { 20 * usual_us } else { usual_us };
        let distance = lock(&self.state).distances.get(&(from, to)).copied().unwrap_or_default();
        self.sim.sleep(Duration::from_micros(delay_us * slowness) + distance).await;
        let mut has_waited = false;
        loop {
            match self.link(from, to) {
                LinkState::Up => return !has_waited || self.sim.is_once_in(2),
                LinkState::Refused => return false,
                LinkState::Hanging => self.link_changed.notified().await,
            }
            has_waited = true;
        }
    }
}
