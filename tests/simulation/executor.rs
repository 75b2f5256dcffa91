//! Runs tasks in virtual time, on one thread, in an order that follows from a seed.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use foundation::clock::Monotonic;
use futures_util::future::{Either, select};

/// A machine or process on which tasks run.
pub type Node = usize;
type TaskId = usize;
type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    static NOW: Cell<Monotonic> = const { Cell::new(Monotonic::from_ms(0)) };
}

/// Returns the time of the node whose task is running, by its own monotonic clock.
pub fn now() -> Monotonic {
    NOW.get()
}

/// Locks a mutex, which is never contended: there is one thread.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A simulated world: its time, its tasks, and the source of everything random.
#[derive(Clone)]
pub struct Sim {
    state: Arc<Mutex<State>>,
    ready: Arc<Mutex<VecDeque<TaskId>>>,
}

struct State {
    now_us: u64,
    /// When to wake which task. Tasks of the same time are woken in the order in which they were started.
    timers: BinaryHeap<Reverse<(u64, TaskId)>>,
    /// The tasks by id; absent if they have ended.
    tasks: Vec<Option<Task>>,
    /// The task that is running.
    polled: TaskId,
    nodes: BTreeMap<Node, NodeState>,
    random: u64,
    /// The events so far; absent if they are not recorded.
    trace: Option<Vec<String>>,
    violation: Option<String>,
}

struct Task {
    node: Node,
    /// Absent while it is polled.
    future: Option<TaskFuture>,
}

#[derive(Default, Clone, Copy)]
struct NodeState {
    paused_until_us: u64,
    /// How far its monotonic clock is ahead of the virtual time.
    clock_offset: Duration,
}

struct TaskWaker(TaskId, Arc<Mutex<VecDeque<TaskId>>>);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.1).push_back(self.0);
    }
}

impl Sim {
    pub fn new(seed: u64, is_traced: bool) -> Self {
        let state = State {
            now_us: 0,
            timers: BinaryHeap::new(),
            tasks: Vec::new(),
            polled: 0,
            nodes: BTreeMap::new(),
            random: seed,
            trace: is_traced.then(Vec::new),
            violation: None,
        };
        Self { state: Arc::new(Mutex::new(state)), ready: Arc::default() }
    }

    /// Returns the virtual time in microseconds.
    pub fn now_us(&self) -> u64 {
        lock(&self.state).now_us
    }

    /// Returns a random number from `0..end`, by the generator `SplitMix64`.
    pub fn random(&self, end: u64) -> u64 {
        let mut state = lock(&self.state);
        state.random = state.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state.random ^ (state.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Returns `true` once in `times` calls on average.
    pub fn is_once_in(&self, times: u64) -> bool {
        self.random(times) == 0
    }

    /// Records an event if events are recorded.
    pub fn trace(&self, event: impl FnOnce() -> String) {
        let mut state = lock(&self.state);
        let now_us = state.now_us;
        if let Some(trace) = &mut state.trace {
            trace.push(format!("{:>6}.{:03} ms  {}", now_us / 1_000, now_us % 1_000, event()));
        }
    }

    /// Ends the run, because a guarantee does not hold.
    pub fn fail(&self, violation: String) {
        self.trace(|| format!("VIOLATION: {violation}"));
        lock(&self.state).violation.get_or_insert(violation);
    }

    /// Returns what ended the run.
    pub fn violation(&self) -> Option<String> {
        lock(&self.state).violation.clone()
    }

    /// Starts a task on a node.
    pub fn spawn(&self, node: Node, future: impl Future<Output = ()> + Send + 'static) {
        let mut state = lock(&self.state);
        lock(&self.ready).push_back(state.tasks.len());
        state.tasks.push(Some(Task { node, future: Some(Box::pin(future)) }));
    }

    /// Ends all tasks of a node at once, as SIGKILL does.
    pub fn kill(&self, node: Node) {
        let mut state = lock(&self.state);
        let is_of_node = |task: &mut Task| task.node == node;
        let tasks = state.tasks.iter_mut();
        let killed: Vec<_> = tasks.filter_map(|task| task.take_if(is_of_node)).collect();
        drop(state);
        drop(killed);
    }

    /// Stops a node for a time, as SIGSTOP does. Its clock continues.
    pub fn pause(&self, node: Node, duration: Duration) {
        let mut state = lock(&self.state);
        let until_us = state.now_us + micros(duration);
        state.nodes.entry(node).or_default().paused_until_us = until_us;
    }

    /// Sets how far the monotonic clock of a node is ahead.
    pub fn set_clock(&self, node: Node, clock_offset: Duration) {
        lock(&self.state).nodes.entry(node).or_default().clock_offset = clock_offset;
    }

    pub async fn sleep(&self, duration: Duration) {
        let until_us = self.now_us() + micros(duration);
        let mut is_set = false;
        std::future::poll_fn(|_| {
            let mut state = lock(&self.state);
            if state.now_us >= until_us {
                return Poll::Ready(());
            }
            if !is_set {
                let id = state.polled;
                state.timers.push(Reverse((until_us, id)));
                is_set = true;
            }
            Poll::Pending
        })
        .await;
    }

    pub async fn sleep_ms(&self, ms: u64) {
        self.sleep(Duration::from_millis(ms)).await;
    }

    /// Waits for a future for a limited time. Returns `None` if it did not end.
    pub async fn timeout<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        match select(pin!(future), pin!(self.sleep(limit))).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }

    /// Runs all tasks until this time. Returns the violation that ended the run early.
    pub fn run_until(&self, end_us: u64) -> Result<(), String> {
        loop {
            let next = lock(&self.ready).pop_front();
            if let Some(id) = next {
                self.poll(id);
                if let Some(violation) = &lock(&self.state).violation {
                    return Err(violation.clone());
                }
                continue;
            }
            let mut state = lock(&self.state);
            match state.timers.peek() {
                Some(Reverse((at_us, id))) if *at_us <= end_us => {
                    lock(&self.ready).push_back(*id);
                    state.now_us = *at_us;
                    state.timers.pop();
                }
                _ => return Ok(()),
            }
        }
    }

    fn poll(&self, id: TaskId) {
        let mut state = lock(&self.state);
        let now_us = state.now_us;
        let Some(node) = state.tasks[id].as_ref().map(|task| task.node) else { return };
        let NodeState { paused_until_us, clock_offset } =
            state.nodes.get(&node).copied().unwrap_or_default();
        if paused_until_us > now_us {
            return state.timers.push(Reverse((paused_until_us, id)));
        }
        let future = state.tasks[id].as_mut().and_then(|task| task.future.take());
        let Some(mut future) = future else { return };
        state.polled = id;
        drop(state);
        let waker = Waker::from(Arc::new(TaskWaker(id, self.ready.clone())));
        NOW.set(Monotonic::default() + Duration::from_micros(now_us) + clock_offset);
        let result = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = lock(&self.state);
        let ended = match (result, &mut state.tasks[id]) {
            (Poll::Pending, Some(task)) => task.future.replace(future),
            (Poll::Ready(()) | Poll::Pending, ended) => {
                *ended = None;
                Some(future)
            }
        };
        drop(state);
        drop(ended);
    }

    /// Ends every task, and returns the recorded events.
    pub fn finish(self) -> Vec<String> {
        // Tasks hold their world, which holds them; a task that ends may start another one.
        loop {
            let tasks = std::mem::take(&mut lock(&self.state).tasks);
            if tasks.is_empty() {
                return lock(&self.state).trace.take().unwrap_or_default();
            }
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
