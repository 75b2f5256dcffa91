//! Servers of a test's own, to be stopped, hung and cut off. Ended by their process id.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::process::{free_port, signal};

/// A Redis without persistence.
pub struct Redis {
    pub port: u16,
    child: Option<Child>,
}

impl Redis {
    pub fn start() -> Self {
        let mut redis = Self { port: free_port(), child: None };
        redis.restart();
        redis
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts it, empty, on the port that it had.
    pub fn restart(&mut self) {
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed by ./test");
        self.child = Some(child);
        for _ in 0..500 {
            if answers(self.port) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("redis-server does not answer");
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// `STOP` has it accept and never answer; `CONT` ends that.
    pub fn signal(&self, name: &str) {
        signal(self.child.as_ref().expect("it runs").id(), name);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut answer = [0; 5];
    stream.write_all(b"PING\r\n").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && &answer == b"+PONG"
}

/// A way to a server that can be cut.
pub struct Proxy {
    pub address: SocketAddr,
    way: Arc<Mutex<Way>>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    Cut,
    /// It is accepted and never answered.
    Hole,
}

impl Proxy {
    pub fn to(target: String) -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), target)
    }

    pub fn at(address: SocketAddr, target: String) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("an address");
        let way = Arc::new(Mutex::new(Way::Open));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let proxy = Self { address, way: way.clone(), streams: streams.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let way = *way.lock().expect("no panic while it is held");
                let mut known = streams.lock().expect("no panic while it is held");
                match way {
                    Way::Cut => {}
                    Way::Hole => known.push(client),
                    Way::Open => {
                        let Ok(server) = TcpStream::connect(&target) else { continue };
                        for (from, to) in [(&client, &server), (&server, &client)] {
                            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
                                continue;
                            };
                            known.extend(from.try_clone());
                            std::thread::spawn(move || forward(from, to));
                        }
                    }
                }
            }
        });
        proxy
    }

    /// Breaks every connection, and lets none through until [`Proxy::mend`].
    pub fn cut(&self) {
        self.set(Way::Cut);
        for stream in self.streams.lock().expect("no panic while it is held").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Accepts new connections and never answers them, until [`Proxy::mend`] for those that come then.
    pub fn swallow(&self) {
        self.set(Way::Hole);
    }

    pub fn mend(&self) {
        self.set(Way::Open);
    }

    fn set(&self, way: Way) {
        *self.way.lock().expect("no panic while it is held") = way;
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
