//! The body of a request, read within its bounds.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use foundation::error::{Error, Result};
use http_body_util::BodyExt as _;

/// Where a fault of a whole body is said to stand.
pub const LOCATION: &str = "requestBody";
/// How long a body may take to arrive.
const BODY_SECONDS: u64 = 30;
/// How much of a body that is too large is read on, and for how long.
const DISCARD_MAX_BYTES: usize = 16 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// The bytes of a body of at most so many.
pub async fn read(mut body: Body, max_bytes: usize) -> Result<Bytes> {
    let whole = within(Duration::from_secs(BODY_SECONDS), pin!(whole(&mut body, max_bytes))).await;
    match whole {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(BodyError::TooLarge)) => {
            discard_body(body).await;
            Err(Error::BodyTooLarge(max_bytes))
        }
        Some(Err(BodyError::Broken)) => {
            Err(Error::invalid(LOCATION, "the body could not be read to its end"))
        }
        None => Err(Error::BodyTimeout(BODY_SECONDS)),
    }
}

/// Reads on and forgets: who still sends when the connection ends hears no answer. If it takes too long, the
/// answer is sent all the same.
pub async fn discard_body(mut body: Body) {
    let discard = async {
        let mut left = DISCARD_MAX_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    let _ = within(DISCARD_TIMEOUT, pin!(discard)).await;
}

/// Why a body was not read.
enum BodyError {
    TooLarge,
    Broken,
}

/// A body's bytes; without a copy where they come in one piece, as those of most requests do.
async fn whole(body: &mut Body, max_bytes: usize) -> std::result::Result<Bytes, BodyError> {
    // What the Content-Length announces.
    if usize::try_from(body.size_hint().lower()).map_or(true, |bytes| bytes > max_bytes) {
        return Err(BodyError::TooLarge);
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        if whole.len() + piece.len() > max_bytes {
            return Err(BodyError::TooLarge);
        }
        if whole.is_empty() && body.is_end_stream() {
            return Ok(piece);
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// The future's outcome, unless it takes longer. One that is ready at once, as most are, costs no
/// timer.
pub async fn within<F: Future>(limit: Duration, mut future: Pin<&mut F>) -> Option<F::Output> {
    let at_once = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
    match at_once {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => tokio::time::timeout(limit, future).await.ok(),
    }
}
