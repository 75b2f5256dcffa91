//! How long a connection may keep the server waiting.
//!
//! hyper has a timer for a request's head; it costs one for every request, and closes connections
//! that merely rest between two. Here a connection notes what it waits for, and one look every few
//! seconds finds those that have waited too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};

/// How long a request's head may take to arrive, and as much again as between two looks.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection may rest between two requests, likewise.
const REST: Duration = Duration::from_secs(75);
/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What a connection waits for, in the lowest two bits; above them, how often that has changed. So
/// no clock has to be read while requests come.
#[derive(Debug)]
pub struct ConnectionTimer(AtomicU32);

const BUSY: u32 = 0;
const RESTS: u32 = 1;
const HEAD_ARRIVES: u32 = 2;
const KIND: u32 = 3;

impl ConnectionTimer {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(RESTS)))
    }

    /// Only the connection's own task changes it.
    fn becomes(&self, kind: u32) {
        let changes = (self.0.load(Ordering::Relaxed) & !KIND).wrapping_add(KIND + 1);
        self.0.store(changes | kind, Ordering::Relaxed);
    }

    /// Bytes have come: if it rested, a head has begun.
    fn bytes(&self) {
        if self.0.load(Ordering::Relaxed) & KIND == RESTS {
            self.becomes(HEAD_ARRIVES);
        }
    }

    /// A head is complete.
    pub fn busy(&self) {
        self.becomes(BUSY);
    }

    /// An answer is on its way.
    pub fn rest(&self) {
        self.becomes(RESTS);
    }

    /// Completes when the connection has waited too long.
    pub async fn expired(&self) {
        let mut seen = self.0.load(Ordering::Relaxed);
        let mut waited = Duration::ZERO;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let before = std::mem::replace(&mut seen, self.0.load(Ordering::Relaxed));
            waited = if seen == before { waited + LOOK_EVERY } else { Duration::ZERO };
            let patience = match seen & KIND {
                HEAD_ARRIVES => HEAD,
                RESTS => REST,
                _ => continue,
            };
            if waited >= patience {
                return;
            }
        }
    }
}

/// A stream that tells its patience when bytes come.
pub struct TimedStream<S> {
    pub stream: S,
    pub patience: Arc<ConnectionTimer>,
}

impl<S: Read + Unpin> Read for TimedStream<S> {
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
