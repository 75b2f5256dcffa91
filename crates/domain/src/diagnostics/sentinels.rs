//! Checks of the Redis Sentinels that name the primary.

use foundation::error::{Error, Result};
use limiter::redis::RedisAddress;
use limiter::redis::inspect::inspect_sentinels;

use super::{Finding, format_count};

const CHECK: &str = "redis-sentinel";

/// Checks that the Sentinels in the URL respond, and that enough of them can replace the primary. Absent: there are none.
pub async fn check_sentinels(redis: &RedisAddress) -> Option<Finding> {
    let replies = inspect_sentinels(redis).await;
    (!replies.is_empty()).then(|| report_sentinels(&replies))
}

fn report_sentinels(replies: &[(String, Result<String>)]) -> Finding {
    let failures = replies.iter().filter_map(|(address, reply)| {
        let error = reply.as_ref().err()?;
        Some((format!("{address}: {}", error.innermost_message()), is_reply(error)))
    });
    let (answers, silence): (Vec<_>, Vec<_>) = failures.partition(|(_, is_reply)| *is_reply);
    let list = |failures: &[(String, bool)]| {
        failures.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(", ")
    };
    if !answers.is_empty() {
        let found = format!("Sentinel cannot replace the primary, at {}", list(&answers));
        let todo =
            "start the missing Sentinels, and check the name of the service and the password";
        return Finding::problem(CHECK, found, todo);
    }
    let found = format!("no reply from Sentinel at {}", list(&silence));
    let todo = "start it, or correct the address in KEYWARD_REDIS_URL";
    match replies.len() - silence.len() {
        0 => Finding::problem(CHECK, found, todo),
        count if silence.is_empty() => {
            let sentinels = format_count(count, "Sentinel", "Sentinels");
            Finding::ok(CHECK, format!("{sentinels} can replace the primary"))
        }
        _ => Finding::warning(CHECK, found, todo),
    }
}

/// Returns whether a Sentinel has replied with this error.
fn is_reply(error: &Error) -> bool {
    matches!(error, Error::Redis(e) if e.code().is_some())
}
