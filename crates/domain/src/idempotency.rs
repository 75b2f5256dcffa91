//! Idempotent operations: a client that has received no reply repeats its request with the same `Idempotency-Key`,
//! and the operation runs only once.
//!
//! The reply is stored in the transaction of the operation itself, sealed with a secret that only the caller has, its
//! root key: the database contains no readable key.

use foundation::error::{Error, Result};
use foundation::model::RootKey;
use serde_json::Value;
use store::Tx;

use crate::caller::Caller;
use crate::context::Context;
use crate::idempotency_key::IdempotencyKey;

/// A reply that can be stored and returned again.
pub trait StoredReply: Sized {
    fn to_json(&self) -> Value;
    fn from_json(stored: &Value) -> Option<Self>;
}

/// How often an operation is attempted that another request with the same key overtakes.
const CONFLICT_ATTEMPTS_MAX: u8 = 3;

/// Runs an operation, or returns its stored reply if it has run already. The operation calls [`store_reply`] before
/// it commits.
pub async fn run_idempotent<T, F>(
    context: &Context,
    caller: &Caller,
    operation: impl Fn() -> F,
) -> Result<T>
where
    T: StoredReply,
    F: Future<Output = Result<T>>,
{
    let (Some(key), Some(root_key)) = (&caller.idempotency_key, caller.principal.value.root_key())
    else {
        return operation().await;
    };
    for _ in 0..CONFLICT_ATTEMPTS_MAX {
        if let Some(reply) = find_reply(context, root_key, key).await? {
            return Ok(reply);
        }
        match operation().await {
            Err(Error::IdempotencyConflict) => {}
            // The same request, sent at the same time, may have been faster: then what it changed may be in the way.
            Err(error @ Error::PreconditionFailed(_)) => {
                return find_reply(context, root_key, key).await?.ok_or(error);
            }
            outcome => return outcome,
        }
    }
    Err(Error::IdempotencyConflict)
}

async fn find_reply<T: StoredReply>(
    context: &Context,
    root_key: &RootKey,
    key: &IdempotencyKey,
) -> Result<Option<T>> {
    let stored = context.store.read().await?.find_stored_reply(&root_key.id, &key.key_hash).await?;
    let Some((request, sealed)) = stored else { return Ok(None) };
    if request != key.request_hash {
        return Err(Error::IdempotencyKeyReused);
    }
    let opened = key.sealer.open(&sealed, &key.request_hash);
    let reply = opened.and_then(|bytes| T::from_json(&serde_json::from_slice(&bytes).ok()?));
    reply.map(Some).ok_or_else(|| Error::Internal("failed to decrypt a stored reply".into()))
}

/// Stores the reply of an operation in the operation's own transaction.
pub async fn store_reply<T: StoredReply>(tx: &mut Tx, caller: &Caller, reply: &T) -> Result<()> {
    let (Some(key), Some(root_key)) = (&caller.idempotency_key, caller.principal.value.root_key())
    else {
        return Ok(());
    };
    let sealed = key.sealer.seal(reply.to_json().to_string().as_bytes(), &key.request_hash);
    match tx.insert_stored_reply(&root_key.id, &key.key_hash, &key.request_hash, &sealed).await? {
        true => Ok(()),
        false => Err(Error::IdempotencyConflict),
    }
}
