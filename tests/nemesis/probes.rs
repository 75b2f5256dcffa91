//! Measures Redis as a replica sees it, through the replica's proxy: with all processes on a few cores, Redis or a proxy
//! occasionally gets no processor for longer than a replica waits for a reply.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use foundation::clock::Stopwatch;

use crate::caller::{Shared, pause};
use crate::record::Stall;

/// A reply that took at least this long is a stall: a request that was sent a pause earlier may have waited 40 ms.
const STALL_MIN: Duration = Duration::from_millis(25);
/// How long a reply, or a connection, is waited for.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns the proxy of each replica.
pub fn addresses(replicas: &[crate::fleet::Replica]) -> Vec<SocketAddr> {
    replicas.iter().map(|replica| replica.redis.address).collect()
}

/// Sends PING through each proxy, one after the other with pauses, until the run is over. Returns the stalls.
pub fn run(shared: &Shared, addresses: &[SocketAddr]) -> Vec<Stall> {
    std::thread::scope(|scope| {
        let probes: Vec<_> = (0..)
            .zip(addresses)
            .map(|(replica, address)| scope.spawn(move || probe(shared, replica, *address)))
            .collect();
        probes.into_iter().flat_map(|probe| probe.join().expect("a probe")).collect()
    })
}

fn probe(shared: &Shared, replica: usize, address: SocketAddr) -> Vec<Stall> {
    let (mut stalls, mut connection) = (Vec::new(), None);
    while !shared.is_over() {
        let (began, took) = (shared.began.elapsed(), Stopwatch::new());
        connection = connection.or_else(|| connect(address)).and_then(ping);
        if connection.is_none() || took.elapsed() >= STALL_MIN {
            stalls.push(Stall { replica, began, ended: shared.began.elapsed() });
        }
        pause();
    }
    stalls
}

fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).ok()?;
    stream.set_nodelay(true).ok()?;
    Some(stream)
}

/// Returns the connection if it can be used again.
fn ping(mut stream: TcpStream) -> Option<TcpStream> {
    stream.write_all(b"PING\r\n").ok()?;
    let mut reply = [0; b"+PONG\r\n".len()];
    stream.read_exact(&mut reply).ok()?;
    (&reply == b"+PONG\r\n").then_some(stream)
}
