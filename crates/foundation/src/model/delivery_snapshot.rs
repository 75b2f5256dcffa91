//! Defines which rows in ClickHouse count.

/// The deliveries to ClickHouse at one moment. A row whose delivery is not among them does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliverySnapshot {
    /// The last delivery that had begun. Later ones are ignored.
    pub last_delivery: i64,
    /// The void deliveries up to the last: in progress, aborted, or replaced.
    pub void_deliveries: Vec<i64>,
    /// The end of the hourly rollups, in Unix milliseconds. It is the start of a day (UTC).
    pub rolled_up_until_ms: i64,
}
