//! Provides a future that runs to its end even if nobody waits for it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

/// A future that is finished in the background if it is dropped before.
pub struct Uncancelled<T: Send + 'static>(Option<BoxFuture<'static, T>>);

impl<T: Send + 'static> Uncancelled<T> {
    pub fn new(future: BoxFuture<'static, T>) -> Self {
        Self(Some(future))
    }
}

impl<T: Send + 'static> Future for Uncancelled<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let output = ready!(future.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(output)
    }
}

impl<T: Send + 'static> Drop for Uncancelled<T> {
    fn drop(&mut self) {
        // Without a runtime, the process is about to end.
        if let Some(future) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(future);
        }
    }
}
