//! Tells what an error of Redis means for the connection, and for the caller.

use std::time::Duration;

use deadpool::managed::PoolError;
use foundation::error::Error;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Returns the error of a call that took longer than the timeout.
pub fn timeout_error(timeout: Duration) -> Error {
    Error::RedisTimeout(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
}

/// Returns whether a master of a cluster rejected a key that belongs to another one.
pub fn has_moved(e: &RedisError) -> bool {
    let moved = [ServerErrorKind::Moved, ServerErrorKind::Ask, ServerErrorKind::TryAgain];
    matches!(e.kind(), ErrorKind::Server(server) if moved.contains(&server))
}

/// Returns whether another connection may succeed: this one is broken, or leads to a server that is not the master, or
/// not yet.
pub fn is_connection_unusable(e: &RedisError) -> bool {
    e.is_io_error() || e.is_connection_dropped() || is_not_master(e)
}

fn is_not_master(e: &RedisError) -> bool {
    let ErrorKind::Server(server) = e.kind() else { return false };
    match server {
        ServerErrorKind::ReadOnly
        | ServerErrorKind::MasterDown
        | ServerErrorKind::BusyLoading
        | ServerErrorKind::ClusterDown => true,
        // Redis 6 wraps the error that a script received.
        _ => e.detail().is_some_and(|text| text.contains("-READONLY ")),
    }
}

pub fn error_from_pool(cause: PoolError<RedisError>) -> Error {
    match cause {
        PoolError::Backend(cause) => cause.into(),
        PoolError::Timeout(_)
        | PoolError::Closed
        | PoolError::NoRuntimeSpecified
        | PoolError::PostCreateHook(_) => {
            RedisError::from((ErrorKind::Io, "no connection", cause.to_string())).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn redis_error(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("{line}\r\n").as_bytes());
        value.and_then(Value::extract_error).expect_err("an error")
    }

    #[test]
    fn connection_is_discarded_when_server_is_not_the_master() {
        for line in [
            "-READONLY You can't write against a read only replica.",
            "-LOADING Redis is loading the dataset in memory",
            "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "-CLUSTERDOWN The cluster is down",
            "-ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write.",
        ] {
            assert!(is_connection_unusable(&redis_error(line)), "{line}");
        }
        for line in ["-NOSCRIPT No matching script.", "-ERR unknown command", "-OOM command"] {
            assert!(!is_connection_unusable(&redis_error(line)), "{line}");
        }
    }

    #[test]
    fn connection_is_discarded_when_it_is_broken() {
        let timed_out = std::io::Error::from(std::io::ErrorKind::TimedOut);
        assert!(is_connection_unusable(&timed_out.into()));
        assert!(is_connection_unusable(&RedisError::from((ErrorKind::Io, "it ended"))));
    }

    #[test]
    fn key_has_moved_when_a_master_names_another_one() {
        for line in [
            "-MOVED 3999 127.0.0.1:6381",
            "-ASK 3999 127.0.0.1:6381",
            "-TRYAGAIN Multiple keys request during rehashing of slot",
        ] {
            let e = redis_error(line);
            assert!(has_moved(&e) && !is_connection_unusable(&e), "{line}");
        }
        for line in ["-CLUSTERDOWN The cluster is down", "-CROSSSLOT Keys don't hash to one slot"] {
            assert!(!has_moved(&redis_error(line)), "{line}");
        }
    }
}
