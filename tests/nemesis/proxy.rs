//! A proxy in front of a server whose connections can be cut, blocked, slowed down, and directed to another server.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use foundation::clock::Stopwatch;

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkState {
    #[default]
    Open,
    /// They arrive later by this duration.
    Slow(Duration),
    /// They wait until the connection is open again, as in a network that loses every packet.
    Hole,
}

#[derive(Clone)]
pub struct Proxy {
    pub address: SocketAddr,
    state: Arc<Mutex<ProxyState>>,
}

struct ProxyState {
    target: SocketAddr,
    is_cut: bool,
    to_server: LinkState,
    to_client: LinkState,
    streams: Vec<TcpStream>,
    /// Connections that carry the change feed.
    feeds: Vec<TcpStream>,
    is_feed_cut: bool,
}

#[derive(Clone, Copy)]
enum Direction {
    ToServer,
    ToClient,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (to_server, to_client) = (LinkState::Open, LinkState::Open);
        let (streams, feeds) = (Vec::new(), Vec::new());
        let (is_cut, is_feed_cut) = (false, false);
        let state =
            ProxyState { target, is_cut, to_server, to_client, streams, feeds, is_feed_cut };
        let proxy = Self { address, state: Arc::new(Mutex::new(state)) };
        let acceptor = proxy.clone();
        std::thread::spawn(move || {
            listener.incoming().flatten().for_each(|it| acceptor.accept(&it));
        });
        proxy
    }

    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, client: &TcpStream) {
        let target = self.state().target;
        let Ok(server) = TcpStream::connect(target) else { return };
        let mut state = self.state();
        if state.is_cut || state.target != target {
            return;
        }
        for (from, to, direction) in
            [(client, &server, Direction::ToServer), (&server, client, Direction::ToClient)]
        {
            let _ = from.set_nodelay(true);
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
            state.streams.extend(from.try_clone());
            let proxy = self.clone();
            std::thread::spawn(move || proxy.forward(from, to, direction));
        }
    }

    /// Forwards what arrives in one direction, each part as late as the link is slow, however many are on their way.
    fn forward(&self, mut from: TcpStream, to: TcpStream, direction: Direction) {
        let (sender, arriving) = mpsc::channel();
        let (proxy, Ok(end)) = (self.clone(), from.try_clone()) else { return };
        std::thread::spawn(move || proxy.deliver(&arriving, to, &end, direction));
        let mut bytes = vec![0; 16 * 1024];
        let mut is_known_feed = false;
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            if !is_known_feed && is_feed(&bytes[..read]) {
                is_known_feed = true;
                if !self.record_feed(&from) {
                    break;
                }
            }
            if sender.send((Stopwatch::new(), bytes[..read].to_vec())).is_err() {
                break;
            }
        }
    }

    fn deliver(
        &self,
        arriving: &mpsc::Receiver<(Stopwatch, Vec<u8>)>,
        mut to: TcpStream,
        from: &TcpStream,
        direction: Direction,
    ) {
        while let Ok((age, bytes)) = arriving.recv() {
            self.wait_until_open(direction, &age);
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    /// Records a connection that carries the change feed. Returns whether it may continue.
    fn record_feed(&self, stream: &TcpStream) -> bool {
        let mut state = self.state();
        state.feeds.extend(stream.try_clone());
        !state.is_feed_cut
    }

    /// Breaks the connections that carry the change feed, and accepts none until [`Proxy::mend`].
    pub fn cut_feed(&self) {
        let mut state = self.state();
        state.is_feed_cut = true;
        for stream in state.feeds.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn wait_until_open(&self, direction: Direction, age: &Stopwatch) {
        let link_state = || match direction {
            Direction::ToServer => self.state().to_server,
            Direction::ToClient => self.state().to_client,
        };
        match link_state() {
            LinkState::Open => {}
            LinkState::Slow(by) => std::thread::sleep(by.saturating_sub(age.elapsed())),
            LinkState::Hole => {
                while link_state() == LinkState::Hole && !self.state().is_cut {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }

    /// Breaks every connection, and accepts none until [`Proxy::mend`].
    pub fn cut(&self) {
        self.state().is_cut = true;
        self.break_all();
    }

    fn break_all(&self) {
        for stream in self.state().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn set(&self, to_server: LinkState, to_client: LinkState) {
        let mut state = self.state();
        (state.to_server, state.to_client) = (to_server, to_client);
    }

    pub fn mend(&self) {
        let mut state = self.state();
        (state.is_cut, state.to_server, state.to_client) =
            (false, LinkState::Open, LinkState::Open);
        state.is_feed_cut = false;
    }

    /// Connects to another server from now on and breaks the connections to the old one.
    pub fn lead_to(&self, target: SocketAddr) {
        self.lead_new_to(target);
        self.break_all();
    }

    /// Directs new connections to another server and keeps the established ones.
    pub fn lead_new_to(&self, target: SocketAddr) {
        self.state().target = target;
    }
}

/// Whether a replica subscribes to changes.
fn is_feed(sent: &[u8]) -> bool {
    [&b"SUBSCRIBE"[..], b"XREAD"].iter().any(|word| sent.windows(word.len()).any(|it| it == *word))
}
