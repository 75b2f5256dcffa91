//! Binds balances and leases of several keys: a list in JSON.

use foundation::id::KeyId;
use foundation::model::{Credits, Lease};
use serde_json::json;
use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

/// Binds the parameter of `balance_items!`.
pub fn bind_balances<'q>(
    query: Query<'q, Sqlite, SqliteArguments>,
    credits: &[(KeyId, Credits)],
) -> Query<'q, Sqlite, SqliteArguments> {
    let item = |(key, credits): &(KeyId, Credits)| {
        json!({ "key": key, "balance": credits.balance, "version": credits.last_lease_number,
            "refilled": credits.refilled_period })
    };
    let items: Vec<_> = credits.iter().map(item).collect();
    query.bind(json!(items).to_string())
}

/// Binds the parameter of `lease_items!`.
pub fn bind_leases<'q>(
    query: Query<'q, Sqlite, SqliteArguments>,
    leases: &[(KeyId, Lease)],
) -> Query<'q, Sqlite, SqliteArguments> {
    let item = |(key, lease): &(KeyId, Lease)| {
        json!({ "key": key, "epoch": lease.lease_number, "life": lease.redis_generation,
            "granted": lease.granted, "spent": lease.spent, "opened_at": lease.opened_at,
            "asked_at": lease.topped_up_at, "asked_by": lease.topped_up_by,
            "withheld_at": lease.withheld_at, "closed": lease.closed, "region": lease.region })
    };
    let items: Vec<_> = leases.iter().map(item).collect();
    query.bind(json!(items).to_string())
}
