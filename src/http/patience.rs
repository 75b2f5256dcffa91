//! How long a connection may keep the server waiting.
//!
//! hyper has a timer for a request's head; it costs one for every request, and closes connections
//! that merely rest between two. Here a connection notes what it waits for, and one look every few
//! seconds finds those that have waited too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::clock::Stopwatch;

/// How long a request's head may take to arrive.
const HEAD_MS: i64 = 10_000;
/// How long a connection may rest between two requests.
const REST_MS: i64 = 75_000;
/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What a connection waits for: nothing, when it is busy answering.
#[derive(Debug)]
pub struct Patience {
    watch: Stopwatch,
    /// Since when it rests, in milliseconds of `watch`; negative: since when a head is arriving; 0:
    /// it is busy.
    since: AtomicI64,
}

impl Patience {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { watch: Stopwatch::new(), since: AtomicI64::new(1) })
    }

    fn now(&self) -> i64 {
        self.watch.elapsed_ms().max(1)
    }

    /// Bytes have come: if it rested, a head has begun.
    fn bytes(&self) {
        if self.since.load(Ordering::Relaxed) > 0 {
            self.since.store(-self.now(), Ordering::Relaxed);
        }
    }

    /// A head is complete.
    pub fn busy(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// An answer is on its way.
    pub fn rest(&self) {
        self.since.store(self.now(), Ordering::Relaxed);
    }

    /// Completes when the connection has waited too long.
    pub async fn runs_out(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let since = self.since.load(Ordering::Relaxed);
            let waited = self.now() - since.abs();
            if (since < 0 && waited > HEAD_MS) || (since > 0 && waited > REST_MS) {
                return;
            }
        }
    }
}

/// A stream that tells its patience when bytes come.
pub struct Watched<S> {
    pub stream: S,
    pub patience: Arc<Patience>,
}

impl<S: Read + Unpin> Read for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.patience.bytes();
        }
        read
    }
}

impl<S: Write + Unpin> Write for Watched<S> {
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

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}
