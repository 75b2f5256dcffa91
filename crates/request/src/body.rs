//! Reads the body of a request within its bounds.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use foundation::error::{Error, Result};
use http_body_util::BodyExt as _;

/// The location of an error of the whole body.
pub const BODY_LOCATION: &str = "requestBody";
/// How long a body may take to arrive.
const BODY_TIMEOUT_SECONDS: u64 = 30;
/// How much of a body that nobody needs is read and discarded, and for how long.
const DISCARD_MAX_BYTES: usize = 16 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads a body of at most `max_bytes`.
pub async fn read(mut body: Body, max_bytes: usize) -> Result<Bytes> {
    let result = with_timeout(
        Duration::from_secs(BODY_TIMEOUT_SECONDS),
        pin!(read_to_end(&mut body, max_bytes)),
    )
    .await;
    match result {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(BodyError::TooLarge)) => {
            discard_body(body).await;
            Err(Error::BodyTooLarge(max_bytes))
        }
        Some(Err(BodyError::Broken)) => {
            Err(Error::invalid(BODY_LOCATION, "the body could not be read completely"))
        }
        None => Err(Error::BodyTimeout(BODY_TIMEOUT_SECONDS)),
    }
}

/// Reads and discards the rest of a body: a client that still sends when the connection ends receives no response. If
/// it takes too long, the response is sent anyway.
pub async fn discard_body(body: Body) {
    discard_body_within(DISCARD_TIMEOUT, body).await;
}

/// Reads and discards the rest of a body for at most `limit`. Returns whether it has ended: if not, the connection of HTTP/1
/// cannot be used for another request.
pub async fn discard_body_within(limit: Duration, mut body: Body) -> bool {
    let discard = async {
        let mut left = DISCARD_MAX_BYTES;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return false;
            }
        }
        true
    };
    with_timeout(limit, pin!(discard)).await.unwrap_or(false)
}

/// Why a body was not read.
enum BodyError {
    TooLarge,
    Broken,
}

/// Returns the bytes of a body, without a copy if they arrive in one piece, as most do.
async fn read_to_end(body: &mut Body, max_bytes: usize) -> std::result::Result<Bytes, BodyError> {
    // The size that Content-Length announces.
    if usize::try_from(body.size_hint().lower()).map_or(true, |bytes| bytes > max_bytes) {
        return Err(BodyError::TooLarge);
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        if bytes.len() + piece.len() > max_bytes {
            return Err(BodyError::TooLarge);
        }
        if bytes.is_empty() && body.is_end_stream() {
            return Ok(piece);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

/// Awaits a future for at most `limit`. A future that is ready immediately, as most are, costs no timer.
pub async fn with_timeout<F: Future>(
    limit: Duration,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    let first_poll = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
    match first_poll {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => tokio::time::timeout(limit, future).await.ok(),
    }
}
