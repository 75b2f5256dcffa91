//! Which rows in ClickHouse count.

/// What has been delivered to ClickHouse at one moment. A row whose delivery is none of these is not there for anybody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliverySnapshot {
    /// The last delivery that had begun; of later ones nothing is seen.
    pub last: i64,
    /// Those up to it that do not count: under way, broken off, or replaced.
    pub void: Vec<i64>,
    /// Up to here, in unix milliseconds, the hours are summed up. It is the beginning of a day (UTC).
    pub summed_until: i64,
}
