//! Closes connections that keep the server waiting.
//!
//! hyper has a timer for a request's head, but it costs one timer per request and also closes connections that are idle
//! between two requests. Here a connection records what it waits for, and a check every few seconds finds the ones that
//! have waited too long.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};

/// Limits how long a request's head may take to arrive, with a tolerance of one check interval.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Limits how long a connection may be idle between two requests, with the same tolerance. It is not idle while the client takes
/// a response.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// The interval between two checks of a connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The number of bytes of a response that a client of HTTP/2 takes at least while it is not idle. Replies to its PING frames
/// have less.
const SENT_BYTES_MIN: usize = 1024;

/// Records the bytes of a connection.
pub trait ByteRecorder {
    fn record_received(&self);
    fn record_sent(&self, bytes: usize);
}

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

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed) & STATE_MASK == IDLE
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
        let mut state = StateTime::new(self);
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if state.is_over(self) {
                return;
            }
        }
    }
}

impl ByteRecorder for ConnectionTimer {
    /// Records received bytes: on an idle connection, a request head begins.
    fn record_received(&self) {
        if self.is_idle() {
            self.set_state(READING_HEAD);
        }
    }

    /// Records sent bytes: the time in which the client must take more of the response, or send a request, begins again.
    fn record_sent(&self, _: usize) {
        if self.is_idle() {
            self.set_state(IDLE);
        }
    }
}

/// How long a connection has been in its state, by observations at each check interval.
struct StateTime {
    /// The state at the last observation, and the number of changes.
    seen: u32,
    waited: Duration,
}

impl StateTime {
    fn new(timer: &ConnectionTimer) -> Self {
        Self { seen: timer.0.load(Ordering::Relaxed), waited: Duration::ZERO }
    }

    /// Observes the state after a check interval. Returns whether it has lasted longer than it may.
    fn is_over(&mut self, timer: &ConnectionTimer) -> bool {
        let before = std::mem::replace(&mut self.seen, timer.0.load(Ordering::Relaxed));
        let is_same = self.seen == before;
        self.waited = if is_same { self.waited + CHECK_INTERVAL } else { Duration::ZERO };
        match self.seen & STATE_MASK {
            READING_HEAD => self.waited >= HEAD_TIMEOUT,
            IDLE => self.waited >= IDLE_TIMEOUT,
            _ => false,
        }
    }
}

/// Records how many requests of an HTTP/2 connection are in flight, and what is sent. A connection without either is idle,
/// whatever frames arrive: a head that arrives slowly blocks only its own connection.
#[derive(Debug, Default)]
pub struct StreamTimer {
    in_flight: AtomicU32,
    /// Counts the requests.
    begun: AtomicU32,
    sent_bytes: AtomicUsize,
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

impl ByteRecorder for StreamTimer {
    fn record_received(&self) {}

    /// Counts sent bytes. Only the connection's own task may call it, because load and store are not atomic together.
    fn record_sent(&self, bytes: usize) {
        let before = self.sent_bytes.load(Ordering::Relaxed);
        self.sent_bytes.store(before.wrapping_add(bytes), Ordering::Relaxed);
    }
}

/// How long a connection has been idle, by observations at each check interval.
#[derive(Default)]
struct IdleTime {
    /// The number of requests at the last observation.
    begun: u32,
    /// The number of sent bytes when the connection was not idle for the last time.
    sent_bytes: usize,
    waited: Duration,
}

impl IdleTime {
    fn observe(&mut self, timer: &StreamTimer) -> Duration {
        let before = std::mem::replace(&mut self.begun, timer.begun.load(Ordering::Relaxed));
        let has_no_request = self.begun == before && timer.in_flight.load(Ordering::Relaxed) == 0;
        let sent_bytes = timer.sent_bytes.load(Ordering::Relaxed);
        if has_no_request && sent_bytes.wrapping_sub(self.sent_bytes) < SENT_BYTES_MIN {
            self.waited += CHECK_INTERVAL;
        } else {
            (self.sent_bytes, self.waited) = (sent_bytes, Duration::ZERO);
        }
        self.waited
    }
}

impl Drop for ActiveStream {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that reports received and sent bytes to its timer.
pub struct TimedStream<S, T> {
    pub stream: S,
    pub timer: Arc<T>,
}

impl<S, T: ByteRecorder> TimedStream<S, T> {
    /// Records the result of a write, and returns it.
    fn record_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written
            && *bytes > 0
        {
            self.timer.record_sent(*bytes);
        }
        written
    }
}

impl<S: Read + Unpin, T: ByteRecorder> Read for TimedStream<S, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.timer.record_received();
        }
        read
    }
}

impl<S: Write + Unpin, T: ByteRecorder> Write for TimedStream<S, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.record_write(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.record_write(written)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A stream whose client takes this number of bytes.
    struct ClientWindow(usize);

    impl Write for ClientWindow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 { Poll::Pending } else { Poll::Ready(Ok(taken)) }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Sends a byte before each check until the connection has waited too long. Returns the number of checks.
    fn count_checks(timer: &Arc<ConnectionTimer>, client_window: usize) -> Option<u32> {
        let mut stream = TimedStream { stream: ClientWindow(client_window), timer: timer.clone() };
        let mut state = StateTime::new(timer);
        (1..=500).find(|_| {
            let mut context = Context::from_waker(Waker::noop());
            let _ = Pin::new(&mut stream).poll_write(&mut context, b"a");
            state.is_over(timer)
        })
    }

    #[test]
    fn http1_connection_is_idle_when_the_client_takes_no_more_of_a_response() {
        let timer = ConnectionTimer::new();
        timer.record_head();
        assert_eq!(count_checks(&timer, 0), None, "the request is in flight");
        timer.record_response();

        assert_eq!(count_checks(&timer, 500), None);
        assert_eq!(count_checks(&timer, 100), Some(100 + 38));
        assert_eq!(count_checks(&timer, 0), Some(38));
    }

    #[test]
    fn http1_head_has_no_more_time_when_bytes_are_sent() {
        let timer = ConnectionTimer::new();
        timer.record_received();

        assert_eq!(count_checks(&timer, 500), Some(5));
    }

    #[test]
    fn http2_connection_is_idle_when_the_client_takes_no_more_of_a_response() {
        let timer = StreamTimer::new();
        let mut idle = IdleTime::default();
        let mut waited_after = |bytes| {
            timer.record_sent(bytes);
            idle.observe(&timer)
        };
        drop(timer.begin());
        assert_eq!(waited_after(SENT_BYTES_MIN), Duration::ZERO);

        for _ in 0..100 {
            assert_eq!(waited_after(SENT_BYTES_MIN), Duration::ZERO);
        }
        assert_eq!(waited_after(SENT_BYTES_MIN - 1), CHECK_INTERVAL);
        assert_eq!(waited_after(0), 2 * CHECK_INTERVAL);
        assert_eq!(waited_after(1), Duration::ZERO, "slowly, but it takes them");
        // Replies to PING frames.
        let waited = (0..38).map(|_| waited_after(17)).last();
        assert_eq!(waited, Some(38 * CHECK_INTERVAL));
    }

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
