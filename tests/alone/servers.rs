//! Servers of a test's own, to be stopped, hung and cut off. Ended by their process id.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::process::{free_port, signal};

/// A Redis of a test's own.
pub struct Redis {
    pub port: u16,
    /// Where it keeps what is written; absent: it starts empty each time.
    directory: Option<tempfile::TempDir>,
    child: Option<Child>,
}

impl Redis {
    /// One without persistence.
    pub fn start() -> Self {
        Self::start_keeping(false)
    }

    /// One that does or does not keep its data when it is killed.
    pub fn start_keeping(keeps: bool) -> Self {
        let directory = keeps.then(|| tempfile::tempdir().expect("a directory"));
        let mut redis = Self { port: free_port(), directory, child: None };
        redis.restart();
        redis
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts it on the port that it had.
    pub fn restart(&mut self) {
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", ""]);
        match &self.directory {
            Some(directory) => command.args(["--appendonly", "yes", "--dir"]).arg(directory.path()),
            None => command.args(["--appendonly", "no"]),
        };
        let child =
            command.stdout(Stdio::null()).spawn().expect("redis-server is installed by ./test");
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
    cut: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub fn to(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let cut = Arc::new(AtomicBool::new(false));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let proxy = Self { address, cut: cut.clone(), streams: streams.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&target) else { continue };
                let mut known = streams.lock().expect("no panic while it is held");
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    known.extend(from.try_clone());
                    std::thread::spawn(move || forward(from, to));
                }
            }
        });
        proxy
    }

    /// Breaks every connection, and lets none through until [`Proxy::mend`].
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        for stream in self.streams.lock().expect("no panic while it is held").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
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
