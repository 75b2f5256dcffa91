//! Closes connections that keep the server waiting.
//!
//! hyper has a timer for a request's head, but it costs one timer per request and also closes connections that are idle
//! between two requests. Here a connection records what it waits for, and a check every few seconds finds the ones that
//! have waited too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};

/// Limits how long a request's head may take to arrive, with a tolerance of one check interval.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Limits how long a connection may be idle between two requests, with the same tolerance.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// The interval between two checks of a connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Records what a connection waits for, in the lowest two bits; the bits above count the changes. Thus no clock has to
/// be read while requests arrive.
#[derive(Debug)]
pub struct ConnectionTimer(AtomicU32);

const BUSY: u32 = 0;
const IDLE: u32 = 1;
const READING_HEAD: u32 = 2;
const STATE_MASK: u32 = 3;

impl ConnectionTimer {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(IDLE)))
    }

    /// Changes the state. Only the connection's own task may call it, because load and store are not atomic together.
    fn set_state(&self, kind: u32) {
        let changes = (self.0.load(Ordering::Relaxed) & !STATE_MASK).wrapping_add(STATE_MASK + 1);
        self.0.store(changes | kind, Ordering::Relaxed);
    }

    /// Records received bytes: on an idle connection, a request head begins.
    fn record_bytes(&self) {
        if self.0.load(Ordering::Relaxed) & STATE_MASK == IDLE {
            self.set_state(READING_HEAD);
        }
    }

    /// Records that a request head is complete.
    pub fn record_head(&self) {
        self.set_state(BUSY);
    }

    /// Records that a response was produced; the connection is idle until the next request.
    pub fn record_response(&self) {
        self.set_state(IDLE);
    }

    /// Completes when the connection has waited longer than its state allows.
    pub async fn expired(&self) {
        let mut seen = self.0.load(Ordering::Relaxed);
        let mut waited = Duration::ZERO;
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let before = std::mem::replace(&mut seen, self.0.load(Ordering::Relaxed));
            waited = if seen == before { waited + CHECK_INTERVAL } else { Duration::ZERO };
            let limit = match seen & STATE_MASK {
                READING_HEAD => HEAD_TIMEOUT,
                IDLE => IDLE_TIMEOUT,
                _ => continue,
            };
            if waited >= limit {
                return;
            }
        }
    }
}

/// Records how many requests of an HTTP/2 connection are in flight. A connection without one is idle, whatever frames
/// arrive: a head that arrives slowly blocks only its own connection.
#[derive(Debug, Default)]
pub struct StreamTimer {
    in_flight: AtomicU32,
    /// Counts the requests.
    begun: AtomicU32,
}

/// A request in flight.
pub struct ActiveStream(Arc<StreamTimer>);

impl StreamTimer {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Records a request, until the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> ActiveStream {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        ActiveStream(self.clone())
    }

    /// Completes when the connection has been idle for too long.
    pub async fn expired(&self) {
        let mut idle = IdleTime::default();
        while idle.observe(self) < IDLE_TIMEOUT {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }
}

/// How long a connection has been idle, by observations at each check interval.
#[derive(Default)]
struct IdleTime {
    /// The number of requests at the last observation.
    begun: u32,
    waited: Duration,
}

impl IdleTime {
    fn observe(&mut self, timer: &StreamTimer) -> Duration {
        let before = std::mem::replace(&mut self.begun, timer.begun.load(Ordering::Relaxed));
        let is_idle = self.begun == before && timer.in_flight.load(Ordering::Relaxed) == 0;
        self.waited = if is_idle { self.waited + CHECK_INTERVAL } else { Duration::ZERO };
        self.waited
    }
}

impl Drop for ActiveStream {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that reports received bytes to its [`ConnectionTimer`].
pub struct TimedStream<S> {
    pub stream: S,
    pub timer: Arc<ConnectionTimer>,
}

impl<S: Read + Unpin> Read for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.timer.record_bytes();
        }
        read
    }
}

impl<S: Write + Unpin> Write for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http2_connection_is_idle_while_no_request_is_in_flight() {
        let timer = StreamTimer::new();
        let mut idle = IdleTime::default();
        let mut waited = |checks| (0..checks).map(|_| idle.observe(&timer)).last();

        assert_eq!(waited(3), Some(3 * CHECK_INTERVAL));
        let (first, second) = (timer.begin(), timer.begin());
        assert_eq!(waited(100), Some(Duration::ZERO));
        drop(first);
        assert_eq!(waited(100), Some(Duration::ZERO), "one is still in flight");
        drop(second);
        assert_eq!(waited(3), Some(3 * CHECK_INTERVAL));
        drop(timer.begin());
        assert_eq!(waited(1), Some(Duration::ZERO), "a request has come and gone");
    }
}
