use domain::analytics_access::{
    self, RollupGroup, RollupGrouping, RollupOrder, RollupQuery, RollupUnit, TagGrouping,
};
use foundation::clock::Timestamp;
use foundation::error::Error;
use foundation::id::{ApiId, KeyId};

use crate::prelude::*;
use crate::schemas::{PositiveInt, UnsignedInt, into_strings};
use crate::v1::schemas::{IdOrName, OwnerId};

/// Get verification counts.
///
/// Counts the verifications of an API by outcome, grouped by hour, day or month, by key, by identity or by tag. Periods
/// without verifications are included with zeros.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GetVerifications {
    pub api_id: IdOrName,
    /// Counts only verifications of this user's keys.
    #[serde(default)]
    pub external_id: Optional<OwnerId>,
    /// Counts only verifications of these keys.
    #[serde(default)]
    pub key_id: Optional<List<IdOrName, 0, 100>>,
    /// Counts only verifications with all of these tags.
    #[serde(default)]
    pub tag: Optional<List<Text<1, 128>, 0, 10>>,
    /// The start of the period in Unix milliseconds.
    pub start: UnsignedInt,
    /// The end of the period in Unix milliseconds. Default: now.
    #[serde(default)]
    pub end: Optional<UnsignedInt>,
    /// The dimensions to group by. If there are several time units, the largest applies.
    #[serde(default)]
    pub group_by: Optional<List<GroupBy, 0, 7>>,
    /// The maximum number of rows.
    #[serde(default)]
    pub limit: Optional<PositiveInt>,
    /// The field to sort by. Default: `time`.
    #[serde(default)]
    pub order_by: Optional<OrderBy>,
    /// The sort direction. Default: `asc`.
    #[serde(default)]
    pub order: Optional<SortDirection>,
}

/// A dimension to group by. `tags` groups by the complete set of tags of a verification, `tag` by each single tag; a
/// verification with several tags counts for each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum GroupBy {
    Key,
    Identity,
    Tags,
    Tag,
    Month,
    Day,
    Hour,
}

/// The field to sort rows by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum OrderBy {
    Time,
    Valid,
    NotFound,
    Forbidden,
    UsageExceeded,
    RateLimited,
    Unauthorized,
    Disabled,
    InsufficientPermissions,
    Expired,
    Total,
}

/// The sort direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SortDirection {
    Asc,
    Desc,
}

/// Verification counts by outcome.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerificationCounts {
    /// The start of the hour, day or month (UTC) in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
    valid: i64,
    /// Always 0: such verifications do not belong to a key.
    not_found: i64,
    forbidden: i64,
    usage_exceeded: i64,
    rate_limited: i64,
    /// Always 0: no verification has this outcome.
    unauthorized: i64,
    disabled: i64,
    insufficient_permissions: i64,
    expired: i64,
    total: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<IdentityBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tags: Option<Vec<String>>,
}

/// The identity that owns the keys.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct IdentityBody {
    id: String,
    external_id: String,
}

impl Operation for GetVerifications {
    const NAME: &'static str = "analytics.getVerifications";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::Permission(&[Action::ReadApi]);
    type Reply = Vec<VerificationCounts>;

    fn example() -> Value {
        json!({ "apiId": example::API, "start": 0, "groupBy": ["key", "month"], "limit": 10 })
    }

    async fn run(self, app: &App, caller: &Caller) -> Result<Vec<VerificationCounts>> {
        let api = ApiId::from(self.api_id.as_str());
        let group_by = self.group_by.0.as_ref().map_or(Vec::new(), |list| list.0.clone());
        let groups = analytics_access::list_rollups_by_api(
            &app.context,
            &app.analytics,
            caller,
            &api,
            self.into_rollup_query(&group_by, app.context.clock.now())?,
        );
        let is_by = |group| group_by.contains(&group);
        let is_by_time = is_by(GroupBy::Hour) || is_by(GroupBy::Day) || is_by(GroupBy::Month);
        let to_reply = |group: RollupGroup| {
            let RollupGroup { time, key_id, identity_id, external_id, tags, counts, .. } = group;
            let has_identity = is_by(GroupBy::Identity) && !identity_id.is_empty();
            VerificationCounts {
                time: is_by_time.then_some(time),
                valid: counts.valid,
                not_found: 0,
                forbidden: counts.forbidden,
                usage_exceeded: counts.usage_exceeded,
                rate_limited: counts.rate_limited,
                unauthorized: 0,
                disabled: counts.disabled,
                insufficient_permissions: counts.insufficient_permissions,
                expired: counts.expired,
                total: counts.total,
                key_id: is_by(GroupBy::Key).then_some(key_id),
                identity: has_identity.then_some(IdentityBody { id: identity_id, external_id }),
                tag: is_by(GroupBy::Tag).then(|| tags.first().cloned().unwrap_or_default()),
                tags: is_by(GroupBy::Tags).then_some(tags),
            }
        };
        Ok(groups.await?.into_iter().map(to_reply).collect())
    }
}

impl GetVerifications {
    fn into_rollup_query(self, group_by: &[GroupBy], now: Timestamp) -> Result<RollupQuery> {
        let is_by = |group| group_by.contains(&group);
        let (from, to) = (self.start.0, self.end.0.map_or(now.0, |end| end.0));
        if from >= to {
            return Err(Error::invalid("start", "start must be before end"));
        }
        if is_by(GroupBy::Tag) && is_by(GroupBy::Tags) {
            return Err(Error::invalid("groupBy", "groupBy must not contain both tag and tags"));
        }
        let units = [
            (GroupBy::Month, RollupUnit::Month),
            (GroupBy::Day, RollupUnit::Day),
            (GroupBy::Hour, RollupUnit::Hour),
        ];
        let keys = self.key_id.0.map_or_else(Vec::new, into_strings);
        Ok(RollupQuery {
            external_id: self.external_id.0.map(Text::into_string),
            key_ids: keys.into_iter().map(KeyId::from).collect(),
            tags: self.tag.0.map_or_else(Vec::new, into_strings),
            region: None,
            from_time: Timestamp(from),
            to_time: Timestamp(to),
            grain: RollupUnit::default(),
            unit: units.into_iter().find(|(group, _)| is_by(*group)).map(|(_, unit)| unit),
            grouping: RollupGrouping {
                is_by_key: is_by(GroupBy::Key),
                is_by_identity: is_by(GroupBy::Identity),
                by_tags: match (is_by(GroupBy::Tag), is_by(GroupBy::Tags)) {
                    (true, _) => TagGrouping::Each,
                    (false, true) => TagGrouping::Set,
                    (false, false) => TagGrouping::None,
                },
            },
            order: self.order_by.0.map(RollupOrder::from),
            with_outcome: None,
            is_descending: self.order.0 == Some(SortDirection::Desc),
            limit: self.limit.0.map(|limit| usize::try_from(limit.0).unwrap_or(usize::MAX)),
        })
    }
}

impl From<OrderBy> for RollupOrder {
    fn from(order: OrderBy) -> Self {
        match order {
            OrderBy::Time => Self::Time,
            OrderBy::Valid => Self::Valid,
            OrderBy::NotFound => Self::NotFound,
            OrderBy::Forbidden => Self::Forbidden,
            OrderBy::UsageExceeded => Self::UsageExceeded,
            OrderBy::RateLimited => Self::RateLimited,
            OrderBy::Unauthorized => Self::Unauthorized,
            OrderBy::Disabled => Self::Disabled,
            OrderBy::InsufficientPermissions => Self::InsufficientPermissions,
            OrderBy::Expired => Self::Expired,
            OrderBy::Total => Self::Total,
        }
    }
}
