//! A Redis with a follower, which takes its place.

use std::net::SocketAddr;
use std::path::Path;

use crate::proxy::{LinkState, Proxy};
use crate::servers::Redis;

pub struct RedisPair {
    pub master: Redis,
    pub follower: Redis,
    /// The proxy on the follower's replication connection.
    link: Proxy,
}

impl RedisPair {
    /// Starts both, with clocks that are ahead of the machine's by this many seconds.
    pub fn start(directory: &Path, ahead_seconds: i64) -> Self {
        let redis = || Redis::start(directory, ahead_seconds);
        let (master, follower) = (redis(), redis());
        let link = Proxy::to(master.address());
        follower.follow(link.address);
        Self { master, follower, link }
    }

    /// Returns the address of the master.
    pub fn address(&self) -> SocketAddr {
        self.master.address()
    }

    /// Promotes the follower and demotes the master, which keeps its connections.
    pub fn begin_demotion(&self) {
        self.master.await_follower();
        self.follower.promote();
        self.master.follow(self.follower.address());
    }

    /// Directs these ways to the new master.
    pub fn end_demotion(&mut self, ways: &[Proxy]) {
        std::mem::swap(&mut self.master, &mut self.follower);
        for way in ways {
            way.lead_new_to(self.master.address());
        }
        self.link.lead_to(self.master.address());
        self.follower.follow(self.link.address);
    }

    /// Lets the follower lag from now on. A follower without any data would be an empty Redis, which is another fault.
    pub fn begin_lag(&self) {
        self.master.await_follower();
        self.link.set(LinkState::Hole, LinkState::Hole);
    }

    /// Promotes the follower, which lags, and directs these ways to it.
    pub fn fail_over(&mut self, ways: &[Proxy]) {
        self.master.kill();
        self.link.cut();
        self.follower.promote();
        std::mem::swap(&mut self.master, &mut self.follower);
        for way in ways {
            way.lead_to(self.master.address());
        }
        self.link.mend();
        self.link.lead_to(self.master.address());
        self.follower.wipe();
        self.follower.restart();
        self.follower.follow(self.link.address);
    }
}
