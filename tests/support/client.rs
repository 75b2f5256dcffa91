//! A client with a persistent connection, like the programs that call Keyward.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longer than any operation may take.
const TIMEOUT: Duration = Duration::from_secs(20);

pub struct Client {
    address: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
}

/// A reply: the status, the body, and whether the server keeps the connection open.
pub struct ClientReply {
    pub status: u16,
    pub body: String,
    pub is_keep_alive: bool,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, connection: None }
    }

    /// Whether the next request is sent over a connection that is open already.
    pub fn is_connected(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !is_closed(connection.get_ref()))
    }

    /// Calls an operation of version 2.
    pub fn v2(&mut self, root_key: &str, operation: &str, body: &Value) -> io::Result<ClientReply> {
        self.post(&format!("/v2/{operation}"), root_key, body)
    }

    pub fn post(&mut self, path: &str, root_key: &str, body: &Value) -> io::Result<ClientReply> {
        let body = body.to_string();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {root_key}\r\n\
            Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        ))
    }

    pub fn get(&mut self, path: &str) -> io::Result<ClientReply> {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address))
    }

    /// Sends a request once, over the persistent connection or over a new one.
    fn send(&mut self, request: &str) -> io::Result<ClientReply> {
        let connection =
            self.connection.take().filter(|connection| !is_closed(connection.get_ref()));
        let mut stream = match connection {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                BufReader::new(stream)
            }
        };
        stream.get_mut().write_all(request.as_bytes())?;
        let answer = read_reply(&mut stream)?;
        if answer.is_keep_alive {
            self.connection = Some(stream);
        }
        Ok(answer)
    }
}

/// Whether the server has closed an idle connection.
fn is_closed(stream: &TcpStream) -> bool {
    let mut byte = [0];
    let _ = stream.set_nonblocking(true);
    let seen = stream.peek(&mut byte);
    let _ = stream.set_nonblocking(false);
    !matches!(seen, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
}

fn read_reply(stream: &mut BufReader<TcpStream>) -> io::Result<ClientReply> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let Some(status) = status else { return Err(io::ErrorKind::UnexpectedEof.into()) };
    let (mut length, mut keeps) = (0, true);
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let header = line.trim_end().to_ascii_lowercase();
        match header.split_once(": ") {
            None => break,
            Some(("content-length", value)) => length = value.parse().unwrap_or(0),
            Some(("connection", value)) => keeps = value != "close",
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(ClientReply {
        status,
        body: String::from_utf8_lossy(&body).into_owned(),
        is_keep_alive: keeps,
    })
}
