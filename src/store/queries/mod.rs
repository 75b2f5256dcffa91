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

macro_rules! ratelimits_of {
    ($owner:literal) => {
        concat!(
            "(SELECT ",
            array!(object!(
                "'id', l.id, 'name', l.name, 'limit', l.\"limit\",
                'duration_ms', l.duration_ms, 'auto_apply', l.auto_apply"
            )),
            " FROM ratelimits l WHERE ",
            $owner,
            ") AS ratelimits"
        )
    };
}

mod identities;
mod migrations;
mod ratelimits;
mod rbac;
mod reads;
mod vault;
mod writes;

use super::Connection;
