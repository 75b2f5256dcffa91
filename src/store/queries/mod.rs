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

macro_rules! permissions_of {
    ($links:literal) => {
        concat!(
            "(SELECT ",
            array!(object!(
                "'id', p.id, 'slug', p.slug, 'name', p.name, 'description', p.description"
            )),
            " FROM permissions p JOIN ",
            $links,
            ") AS permissions"
        )
    };
}

mod ratelimits;
mod rbac;
mod reads;
mod writes;

use super::Connection;
