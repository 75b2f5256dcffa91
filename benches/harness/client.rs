//! A blocking HTTP client for what is not measured: creating keys and checking single responses.

use super::Outcome;
use super::cases::{Case, Place};
use super::key_sets::{KeySet, PERMISSIONS, ROLE};
use super::servers::ROOT_KEY;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(20);
const BODY_BYTES_MAX: usize = 1 << 20;
const MAKERS: usize = 32;

/// The headers of a response, by their names in lower case.
pub type Headers = HashMap<String, String>;

/// One keep-alive connection.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a body and returns the status and the response.
    pub fn post(&mut self, path: &str, body: &str) -> std::io::Result<(u16, Value)> {
        let (status, body) = self.post_raw(path, body)?;
        let value = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
        Ok((status, value))
    }

    /// Like [`Client::post`], without the time that it takes to parse the response.
    pub fn post_raw(&mut self, path: &str, body: &str) -> std::io::Result<(u16, Vec<u8>)> {
        self.send("POST", path, body)
    }

    fn send(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, Vec<u8>)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Authorization: Bearer {ROOT_KEY}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.read_answer(|_, _| {})
    }

    /// Sends a GET request with these headers, and returns the status and the headers of the response.
    pub fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> std::io::Result<(u16, Headers)> {
        let mut request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in headers {
            request.extend([name, ": ", value, "\r\n"]);
        }
        request.push_str("\r\n");
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut headers = Headers::new();
        let (status, _) = self.read_answer(|name, value| {
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        })?;
        Ok((status, headers))
    }

    /// Reads a response, and calls `on_header` with the name and the value of each header. Returns the status and the body.
    fn read_answer(
        &mut self,
        mut on_header: impl FnMut(&str, &str),
    ) -> std::io::Result<(u16, Vec<u8>)> {
        let malformed = || std::io::Error::other("not an HTTP answer with a Content-Length");
        let status_line = self.read_line()?;
        let status =
            status_line.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(malformed)?;
        let mut length: Option<usize> = None;
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().ok();
                }
                on_header(name, value.trim());
            }
        }
        let length = length.filter(|l| *l <= BODY_BYTES_MAX).ok_or_else(malformed)?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, body))
    }

    fn read_line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Calls an operation that must succeed and returns its `data`.
    pub fn call(&mut self, operation: &str, body: &Value) -> Outcome<Value> {
        match self.post(&format!("/v2/{operation}"), &body.to_string()) {
            Ok((200, mut answer)) => Ok(answer["data"].take()),
            Ok((status, answer)) => Err(format!("{operation} answered {status}: {answer}")),
            Err(e) => Err(format!("{operation} was not answered: {e}")),
        }
    }
}

/// Creates what the keys need: their API, and the permissions and the role of [`KeySet::Permitted`]. Returns the id of
/// the API.
pub fn make_api(address: SocketAddr) -> Outcome<String> {
    let mut client = Client::connect(address).map_err(|e| format!("no connection: {e}"))?;
    let api = client.call("apis.createApi", &json!({ "name": "benchmark" }))?;
    let api_id = api["apiId"].as_str().ok_or("apis.createApi answered without an apiId")?;
    for slug in PERMISSIONS {
        client.call("permissions.createPermission", &json!({ "name": slug, "slug": slug }))?;
    }
    client.call(
        "permissions.createRole",
        &json!({ "name": ROLE, "permissions": &PERMISSIONS[1..] }),
    )?;
    Ok(api_id.to_owned())
}

/// Creates `count` keys of one set, many at a time, and returns them.
pub fn make_keys(
    address: SocketAddr,
    api_id: &str,
    set: KeySet,
    count: usize,
) -> Outcome<Vec<String>> {
    let next = AtomicUsize::new(0);
    let make_some = || -> Outcome<Vec<String>> {
        let mut client = Client::connect(address).map_err(|e| format!("no connection: {e}"))?;
        let mut keys = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(keys);
            }
            let made = client.call("keys.createKey", &set.creation(api_id, number))?;
            let key = made["key"].as_str().ok_or("keys.createKey answered without a key")?;
            keys.push(key.to_owned());
        }
    };
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..MAKERS).map(|_| scope.spawn(make_some)).collect();
        let mut keys = Vec::with_capacity(count);
        for maker in makers {
            keys.extend(maker.join().map_err(|_| "a thread that makes keys panicked")??);
        }
        Ok(keys)
    })
}

/// Counters of a Keyward server since it started.
#[derive(Default)]
pub struct Counted {
    /// Lease top-ups debited from credit accounts.
    pub withdrawals: u64,
    pub events_written: u64,
    pub events_dropped: u64,
}

pub fn counted(address: SocketAddr) -> Outcome<Counted> {
    let metrics = Metrics::fetch(address)?;
    Ok(Counted {
        withdrawals: metrics.sum("keyward_credits_withdrawals_total")?,
        events_written: metrics.sum("keyward_events_written_total")?,
        events_dropped: metrics.sum("keyward_events_dropped_total")?,
    })
}

/// The metrics of a Keyward server at one moment.
pub struct Metrics(String);

impl Metrics {
    pub fn fetch(address: SocketAddr) -> Outcome<Self> {
        let (_, metrics) = Client::connect(address)
            .and_then(|mut client| client.send("GET", "/metrics", ""))
            .map_err(|e| format!("no metrics: {e}"))?;
        Ok(Self(String::from_utf8_lossy(&metrics).into_owned()))
    }

    /// Returns the values of the samples whose name begins with this text.
    pub fn values<T: FromStr>(&self, name: &str) -> Vec<T> {
        let samples = self.0.lines().filter_map(|line| line.strip_prefix(name));
        samples.filter_map(|rest| rest.rsplit(' ').next()?.parse().ok()).collect()
    }

    /// Returns the sum of these counters.
    pub fn sum(&self, name: &str) -> Outcome<u64> {
        let counts = self.values(name).into_iter();
        counts.reduce(|a, b| a + b).ok_or_else(|| format!("the metrics do not tell {name}"))
    }
}

/// Checks one response: it must be correct and include the limits and credits of the key.
pub fn check(address: SocketAddr, case: &Case, key: &str) -> Outcome<()> {
    let body = case.keys.request(key);
    let (status, answer) = Client::connect(address)
        .and_then(|mut client| client.post(case.path, &body))
        .map_err(|e| format!("no answer: {e}"))?;
    // Version 1 responds without an envelope, and includes one of the limits.
    let (data, limits) = match case.path.starts_with("/v1/") {
        true => (&answer, usize::from(answer["ratelimit"].is_object())),
        false => (&answer["data"], answer["data"]["ratelimits"].as_array().map_or(0, Vec::len)),
    };
    let has_credits = data["credits"].is_number();
    let owes_credits = case.keys.has_credits() && case.place != Place::Ceiling;
    let is_right = match case.keys {
        KeySet::Creations => data["keyId"].is_string(),
        keys if keys.is_made() => data["valid"] == true && data["code"] == "VALID",
        _ => data["success"] == true,
    };
    if status == 200 && is_right && limits == case.keys.limits() && has_credits == owes_credits {
        return Ok(());
    }
    Err(format!(
        "a right answer with {} limits and {} credits is due, but {status} came: {answer}",
        case.keys.limits(),
        if owes_credits { "its" } else { "no" },
    ))
}
