//! A way to a server that can be cut, clogged and slowed, and led to another server.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How the bytes of one direction fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    #[default]
    Open,
    /// They come so much later, at most twice as much.
    Slow(Duration),
    /// They wait until the way is open again, as in a network that loses every packet.
    Hole,
}

#[derive(Clone)]
pub struct Proxy {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    target: SocketAddr,
    is_cut: bool,
    there: Way,
    back: Way,
    streams: Vec<TcpStream>,
    /// Of connections on which changes are announced.
    feeds: Vec<TcpStream>,
    is_feed_cut: bool,
}

#[derive(Clone, Copy)]
enum Direction {
    There,
    Back,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (there, back) = (Way::Open, Way::Open);
        let (streams, feeds) = (Vec::new(), Vec::new());
        let (is_cut, is_feed_cut) = (false, false);
        let state = State { target, is_cut, there, back, streams, feeds, is_feed_cut };
        let proxy = Self { address, state: Arc::new(Mutex::new(state)) };
        let taker = proxy.clone();
        std::thread::spawn(move || listener.incoming().flatten().for_each(|it| taker.take(&it)));
        proxy
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, client: &TcpStream) {
        let target = self.state().target;
        let Ok(server) = TcpStream::connect(target) else { return };
        let mut state = self.state();
        if state.is_cut || state.target != target {
            return;
        }
        for (from, to, direction) in
            [(client, &server, Direction::There), (&server, client, Direction::Back)]
        {
            let _ = from.set_nodelay(true);
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
            state.streams.extend(from.try_clone());
            let proxy = self.clone();
            std::thread::spawn(move || proxy.forward(from, to, direction));
        }
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream, direction: Direction) {
        let mut bytes = vec![0; 16 * 1024];
        let mut is_known_feed = false;
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            self.await_way(direction);
            if !is_known_feed && is_feed(&bytes[..read]) {
                is_known_feed = true;
                if !self.keep_feed(&from) {
                    break;
                }
            }
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    /// Remembers a connection on which changes are announced; whether it may go on.
    fn keep_feed(&self, stream: &TcpStream) -> bool {
        let mut state = self.state();
        state.feeds.extend(stream.try_clone());
        !state.is_feed_cut
    }

    /// Breaks the connections on which changes are announced, and lets none through until [`Proxy::mend`].
    pub fn cut_feed(&self) {
        let mut state = self.state();
        state.is_feed_cut = true;
        for stream in state.feeds.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn await_way(&self, direction: Direction) {
        let way = || match direction {
            Direction::There => self.state().there,
            Direction::Back => self.state().back,
        };
        match way() {
            Way::Open => {}
            Way::Slow(by) => std::thread::sleep(by),
            Way::Hole => {
                while way() == Way::Hole && !self.state().is_cut {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }

    /// Breaks every connection, and lets none through until [`Proxy::mend`].
    pub fn cut(&self) {
        self.state().is_cut = true;
        self.break_all();
    }

    fn break_all(&self) {
        for stream in self.state().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn set(&self, there: Way, back: Way) {
        let mut state = self.state();
        (state.there, state.back) = (there, back);
    }

    pub fn mend(&self) {
        let mut state = self.state();
        (state.is_cut, state.there, state.back) = (false, Way::Open, Way::Open);
        state.is_feed_cut = false;
    }

    /// From now on leads to another server; what led to the old one breaks.
    pub fn lead_to(&self, target: SocketAddr) {
        self.lead_new_to(target);
        self.break_all();
    }

    /// Leads new connections to another server and keeps the established ones.
    pub fn lead_new_to(&self, target: SocketAddr) {
        self.state().target = target;
    }
}

/// Whether a replica asks to be told of changes.
fn is_feed(sent: &[u8]) -> bool {
    [&b"SUBSCRIBE"[..], b"XREAD"].iter().any(|word| sent.windows(word.len()).any(|it| it == *word))
}
