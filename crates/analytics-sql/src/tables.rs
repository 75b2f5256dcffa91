//! Defines the public tables that a query may read.

use foundation::model::Retention;

use super::types::Type;

/// The kind of events in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Verifications,
    Ratelimits,
}

/// What a row of a table represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    /// One event.
    Event,
    Minute,
    Hour,
    Day,
    Month,
}

#[derive(Debug, PartialEq, Eq)]
pub struct PublicTable {
    pub name: &'static str,
    pub family: Family,
    pub grain: Grain,
}

const fn table(name: &'static str, family: Family, grain: Grain) -> PublicTable {
    PublicTable { name, family, grain }
}

pub static TABLES: [PublicTable; 10] = [
    table("key_verifications_v1", Family::Verifications, Grain::Event),
    table("key_verifications_per_minute_v1", Family::Verifications, Grain::Minute),
    table("key_verifications_per_hour_v1", Family::Verifications, Grain::Hour),
    table("key_verifications_per_day_v1", Family::Verifications, Grain::Day),
    table("key_verifications_per_month_v1", Family::Verifications, Grain::Month),
    table("ratelimits_v1", Family::Ratelimits, Grain::Event),
    table("ratelimits_per_minute_v1", Family::Ratelimits, Grain::Minute),
    table("ratelimits_per_hour_v1", Family::Ratelimits, Grain::Hour),
    table("ratelimits_per_day_v1", Family::Ratelimits, Grain::Day),
    table("ratelimits_per_month_v1", Family::Ratelimits, Grain::Month),
];

impl PublicTable {
    /// Finds the table with exactly this name.
    pub fn find_by_name(name: &str) -> Option<&'static Self> {
        TABLES.iter().find(|table| table.name == name)
    }

    /// Returns whether a name equals that of a table in any letter case.
    pub fn is_reserved_name(name: &str) -> bool {
        TABLES.iter().any(|table| table.name.eq_ignore_ascii_case(name))
    }

    /// Returns the names of the tables of a family, for a message.
    pub fn list_names(family: Family) -> String {
        let names = TABLES.iter().filter(|table| table.family == family).map(|table| table.name);
        names.collect::<Vec<_>>().join(", ")
    }

    /// Returns the columns, in the order of `*`.
    pub fn columns(&self) -> Vec<(&'static str, Type)> {
        match (self.family, self.grain) {
            (Family::Verifications, Grain::Event) => vec![
                ("request_id", Type::Text),
                ("time", Type::Int),
                ("workspace_id", Type::Text),
                ("key_space_id", Type::Text),
                ("identity_id", Type::Text),
                ("external_id", Type::Text),
                ("key_id", Type::Text),
                ("region", Type::Text),
                ("source", Type::Text),
                ("app_id", Type::Text),
                ("outcome", Type::Text),
                ("tags", Type::array_of(Type::Text)),
                ("spent_credits", Type::Int),
                ("latency", Type::Float),
            ],
            (Family::Verifications, grain) => vec![
                ("time", grain.time_type()),
                ("workspace_id", Type::Text),
                ("key_space_id", Type::Text),
                ("identity_id", Type::Text),
                ("external_id", Type::Text),
                ("key_id", Type::Text),
                ("outcome", Type::Text),
                ("source", Type::Text),
                ("app_id", Type::Text),
                ("tags", Type::array_of(Type::Text)),
                ("count", Type::Int),
                ("spent_credits", Type::Int),
                ("latency_avg", Type::Float),
                ("latency_p75", Type::Float),
                ("latency_p99", Type::Float),
            ],
            (Family::Ratelimits, Grain::Event) => vec![
                ("request_id", Type::Text),
                ("time", Type::Int),
                ("workspace_id", Type::Text),
                ("namespace_id", Type::Text),
                ("identifier", Type::Text),
                ("passed", Type::Bool),
                ("latency", Type::Float),
                ("override_id", Type::Text),
                ("limit", Type::Int),
                ("remaining", Type::Int),
                ("reset_at", Type::Int),
                ("tokens", Type::Int),
            ],
            (Family::Ratelimits, grain) => vec![
                ("time", grain.time_type()),
                ("workspace_id", Type::Text),
                ("namespace_id", Type::Text),
                ("identifier", Type::Text),
                ("passed", Type::Int),
                ("total", Type::Int),
                ("total_tokens", Type::Int),
                ("passed_tokens", Type::Int),
                ("latency_avg", Type::Float),
                ("latency_p75", Type::Float),
                ("latency_p99", Type::Float),
            ],
        }
    }
}

impl Grain {
    /// Returns the retention of a table in days.
    pub fn retention_days(self, retention: &Retention) -> u32 {
        match self {
            Self::Event => retention.raw_days,
            Self::Minute => retention.minute_days,
            Self::Hour => retention.hour_days,
            Self::Day => retention.day_days,
            Self::Month => retention.month_days,
        }
    }

    /// Returns the type of the column `time`.
    fn time_type(self) -> Type {
        match self {
            Self::Event => Type::Int,
            Self::Minute | Self::Hour => Type::DateTime,
            Self::Day | Self::Month => Type::Date,
        }
    }
}
