//! Acts that may be asked for again: a client that has heard no answer repeats its request, and what was done is
//! not done twice.
//!
//! The reply is kept in the transaction of the act itself, sealed with what only the caller has, its root key:
//! the database holds no key that could be read.

use foundation::error::{Error, Result};
use foundation::model::RootKey;
use foundation::secret::KeyHash;
use foundation::vault::Sealer;
use serde_json::Value;
use store::Tx;

use super::caller::Caller;
use crate::app::App;

/// How a request is told from others.
pub struct IdempotencyKey {
    /// A hash of the caller's own name for it.
    name: String,
    /// A hash of what is asked for.
    request: String,
    sealer: Sealer,
}

impl IdempotencyKey {
    /// `name` is the Idempotency-Key; `bearer` the root key as it was sent.
    pub fn new(name: &[u8], bearer: &[u8], operation: &str, body: &[u8]) -> Self {
        let hash = |parts: &[&[u8]]| KeyHash::of(parts.concat());
        Self {
            name: hash(&[name]).base64(),
            request: hash(&[operation.as_bytes(), b"\n", body]).base64(),
            sealer: Sealer::new(hash(&[b"kept reply\n", bearer, b"\n", name]).bytes()),
        }
    }
}

impl std::fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Once(…)")
    }
}

/// What can be kept and given again.
pub trait StoredReply: Sized {
    fn write(&self) -> Value;
    fn read(kept: &Value) -> Option<Self>;
}

/// How often an act is tried that another request with the same name overtakes.
const ATTEMPTS: u8 = 3;

/// Does an act, unless it has been done: then gives what was given. The act calls [`keep`] before it commits.
pub async fn run_idempotent<T, F>(app: &App, caller: &Caller, act: impl Fn() -> F) -> Result<T>
where
    T: StoredReply,
    F: Future<Output = Result<T>>,
{
    let (Some(once), Some(root_key)) = (&caller.idempotency_key, caller.authority.value.root_key())
    else {
        return act().await;
    };
    for _ in 0..ATTEMPTS {
        if let Some(kept) = kept(app, root_key, once).await? {
            return Ok(kept);
        }
        match act().await {
            Err(Error::IdempotencyConflict) => {}
            outcome => return outcome,
        }
    }
    Err(Error::IdempotencyConflict)
}

async fn kept<T: StoredReply>(
    app: &App,
    root_key: &RootKey,
    once: &IdempotencyKey,
) -> Result<Option<T>> {
    let kept = app.store.read().await?.find_stored_reply(&root_key.id, &once.name).await?;
    let Some((request, sealed)) = kept else { return Ok(None) };
    if request != once.request {
        return Err(Error::IdempotencyKeyReused);
    }
    let opened = once.sealer.open(&sealed, &once.request);
    let reply = opened.and_then(|bytes| T::read(&serde_json::from_slice(&bytes).ok()?));
    reply.map(Some).ok_or_else(|| Error::Internal("a kept reply does not open".into()))
}

/// Keeps what an act is about to give, in its own transaction.
pub async fn store_reply<T: StoredReply>(tx: &mut Tx, caller: &Caller, reply: &T) -> Result<()> {
    let (Some(once), Some(root_key)) = (&caller.idempotency_key, caller.authority.value.root_key())
    else {
        return Ok(());
    };
    let sealed = once.sealer.seal(reply.write().to_string().as_bytes(), &once.request);
    match tx.insert_stored_reply(&root_key.id, &once.name, &once.request, &sealed).await? {
        true => Ok(()),
        false => Err(Error::IdempotencyConflict),
    }
}
