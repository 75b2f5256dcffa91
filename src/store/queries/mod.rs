//! Every query, once. Compiled for each engine by its dialect file, which brings `Connection` and the
//! macros `items!`, `texts!`, `array!`, `object!`, `now_ms!` and `locked!`.

/// The purses of a key.
macro_rules! purses {
    () => {
        "SELECT epoch, life, granted, spent, opened_at, asked_at, asked_by, withheld_at
        FROM purses
        WHERE key_id = $1
        ORDER BY epoch"
    };
}

/// A key's account, and the database's own time.
macro_rules! account {
    () => {
        concat!(
            "SELECT credits, credits_version, refill_amount, refill_day, refilled, ",
            now_ms!(),
            " AS now FROM keys"
        )
    };
}

mod ratelimits;
mod reads;
mod writes;

use super::Connection;
