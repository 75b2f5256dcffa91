//! Runs the requests of an HTTP/2 connection in its own task, so that their responses are written together.
//!
//! A connection often has many requests at once, which are decided at once: without waiting, or by one reply of Redis. If each had
//! a task, its response would wake the connection, which would write it alone. In the task of the connection, all responses that
//! are complete are written with one call.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use hyper::rt::Executor;
use parking_lot::Mutex;

/// The requests of one connection that have not been polled yet.
#[derive(Clone, Default)]
pub struct RequestQueue(Arc<Mutex<Vec<BoxFuture<'static, ()>>>>);

impl<F> Executor<F> for RequestQueue
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        // A panic ends only this request, as it would in its own task.
        let request = AssertUnwindSafe(request).catch_unwind();
        self.0.lock().push(Box::pin(request.map(drop)));
    }
}

impl RequestQueue {
    /// Drives the connection whose executor this is, and its requests, until the connection ends.
    pub async fn run<T>(self, mut connection: BoxFuture<'static, T>) -> T {
        let mut requests = FuturesUnordered::new();
        poll_fn(|context| {
            loop {
                let polled = connection.poll_unpin(context);
                requests.extend(self.0.lock().drain(..));
                let mut has_responses = false;
                while let Poll::Ready(Some(())) = requests.poll_next_unpin(context) {
                    has_responses = true;
                }
                if polled.is_ready() || !has_responses {
                    return polled;
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a connection that reads requests when it is first polled, and ends when they are complete. Returns how often it is
    /// polled.
    async fn run(requests: Vec<BoxFuture<'static, ()>>) -> u32 {
        let (queue, incomplete) = (RequestQueue::default(), Arc::new(()));
        let (executor, mut unread, mut polls) = (queue.clone(), Some(requests), 0);
        let connection = poll_fn(move |context| {
            polls += 1;
            for request in unread.take().into_iter().flatten() {
                let (incomplete, waker) = (incomplete.clone(), context.waker().clone());
                executor.execute(async move {
                    request.await;
                    drop(incomplete);
                    waker.wake();
                });
            }
            match Arc::strong_count(&incomplete) {
                1 => Poll::Ready(polls),
                _ => Poll::Pending,
            }
        });
        queue.run(Box::pin(connection)).await
    }

    #[tokio::test]
    async fn requests_that_do_not_wait_are_complete_before_the_connection_is_polled_again() {
        let requests = (0..30).map(|_| Box::pin(async {}) as BoxFuture<'static, ()>);

        assert_eq!(run(requests.collect()).await, 2);
    }

    #[tokio::test]
    async fn requests_that_one_event_decides_are_complete_before_the_connection_is_polled_again() {
        let (sender, receiver) = tokio::sync::watch::channel(());
        let wait = |mut receiver: tokio::sync::watch::Receiver<()>| {
            Box::pin(async move { receiver.changed().await.expect("the event") })
                as BoxFuture<'static, ()>
        };
        let mut requests: Vec<_> = (0..30).map(|_| wait(receiver.clone())).collect();
        requests.push(Box::pin(async move {
            tokio::task::yield_now().await;
            sender.send(()).expect("they wait");
        }));

        assert!(run(requests).await <= 4);
    }

    #[tokio::test]
    async fn panic_ends_only_its_own_request() {
        let queue = RequestQueue::default();
        queue.execute(async { panic!("this request fails") });
        let (sender, receiver) = tokio::sync::oneshot::channel();
        queue.execute(async move { sender.send(()).expect("it is awaited") });

        assert!(queue.run(Box::pin(receiver)).await.is_ok());
    }
}
