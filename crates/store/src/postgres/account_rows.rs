//! Binds balances and leases of several keys: a parameter for each column, which Postgres reads faster than JSON.

use foundation::id::KeyId;
use foundation::model::{Credits, Lease};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

use super::event_rows::column;

/// Binds the parameters of `balance_items!`.
pub fn bind_balances<'q>(
    query: Query<'q, Postgres, PgArguments>,
    credits: &[(KeyId, Credits)],
) -> Query<'q, Postgres, PgArguments> {
    query
        .bind(column(credits, |(key, _)| key.as_str()))
        .bind(column(credits, |(_, credits)| credits.balance))
        .bind(column(credits, |(_, credits)| credits.last_lease_number))
        .bind(column(credits, |(_, credits)| credits.refilled_period))
}

/// Binds the parameters of `lease_items!`.
pub fn bind_leases<'q>(
    query: Query<'q, Postgres, PgArguments>,
    leases: &[(KeyId, Lease)],
) -> Query<'q, Postgres, PgArguments> {
    query
        .bind(column(leases, |(key, _)| key.as_str()))
        .bind(column(leases, |(_, lease)| lease.lease_number))
        .bind(column(leases, |(_, lease)| lease.redis_generation))
        .bind(column(leases, |(_, lease)| lease.granted))
        .bind(column(leases, |(_, lease)| lease.spent))
        .bind(column(leases, |(_, lease)| lease.opened_at.0))
        .bind(column(leases, |(_, lease)| lease.topped_up_at.0))
        .bind(column(leases, |(_, lease)| lease.topped_up_by.as_str()))
        .bind(column(leases, |(_, lease)| lease.withheld_at.map(|at| at.0)))
        .bind(column(leases, |(_, lease)| lease.closed))
        .bind(column(leases, |(_, lease)| lease.region.as_str()))
}
