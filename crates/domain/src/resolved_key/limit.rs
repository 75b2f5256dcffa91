//! The limits of a resolved key.

use std::sync::{Arc, OnceLock};

use foundation::home::Home;
use foundation::model::Ratelimit;
use limiter::{Placement, Window};

use crate::context::Context;

/// The approximate length of the part of a reply that describes a key or a limit, without their texts.
pub const REPLY_BYTES: usize = 128;

/// The owner of limits: a key or an identity.
#[derive(Debug, Clone, Copy)]
pub struct RatelimitOwner<'a> {
    pub id: &'a str,
    /// The region that counts its limits. Absent: the first region.
    pub home: Option<&'a Home>,
    /// Whether it is an identity, whose keys share its limits.
    pub is_identity: bool,
}

/// A limit to check.
#[derive(Debug, PartialEq, Eq)]
pub struct ResolvedLimit {
    /// Empty for a limit given with the request.
    pub id: Box<str>,
    pub name: Box<str>,
    pub limit: i64,
    pub duration_ms: i64,
    pub auto_apply: bool,
    /// Whether it is a limit of an identity, which its keys share.
    pub is_shared: bool,
    /// The name of its counter.
    pub counter: Arc<str>,
    /// Where it is counted.
    placement: Placement,
    /// The part of a version 2 reply that describes the limit, as the first verification serialized it.
    pub cached_json: OnceLock<Box<str>>,
}

impl ResolvedLimit {
    /// Creates a limit of a key or an identity.
    pub fn new(context: &Context, limit: &Ratelimit, owner: RatelimitOwner<'_>) -> Arc<Self> {
        let counter = context.keyspace.window(owner.id, limit.duration_ms, &limit.name);
        Arc::new(Self {
            id: limit.id.as_str().into(),
            name: limit.name.as_str().into(),
            limit: limit.limit,
            duration_ms: limit.duration_ms,
            auto_apply: limit.auto_apply,
            is_shared: owner.is_identity,
            placement: context.placement(owner.home, &counter, limit.duration_ms),
            counter: counter.into(),
            cached_json: OnceLock::new(),
        })
    }

    /// Returns the approximate size in bytes, with the reply that it will store.
    pub fn size(&self) -> usize {
        let texts = self.id.len() + 2 * self.name.len() + self.counter.len();
        size_of::<Self>() + texts + REPLY_BYTES
    }

    /// Returns the window to consume a cost from.
    pub fn window(&self, context: &Context, cost: i64) -> Window {
        let window = Window::new(self.counter.clone(), self.limit, self.duration_ms, cost);
        window.placed(&self.placement, || context.clock.now())
    }
}
