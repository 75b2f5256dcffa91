//! Selects requests by what they were for, and reads their numbers.

use domain::analytics_access::{
    self, RegionCount, RollupGroup, RollupGrouping, RollupOrder, RollupQuery, Traffic,
    TrafficFilter,
};
use domain::keys::VerificationCode;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::{ApiId, KeyId, NamespaceId};
use foundation::model::{EventKind, RollupUnit};

use super::super::form::Form;
use super::super::page_request::WorkspaceRequest;
use super::range::{Period, TimeRange};
use super::region_filter::parse_region;
use super::traffic::sum_traffic;

/// The requests that a page shows. Empty texts select nothing in particular.
pub struct Selection {
    pub kind: EventKind,
    /// The API or namespace.
    pub resource_id: String,
    pub key: String,
    /// The external id.
    pub identity: String,
    pub tag: String,
    pub region: String,
}

impl Selection {
    /// Selects all requests of a kind.
    pub fn all(kind: EventKind) -> Self {
        let empty = String::new;
        Self {
            kind,
            resource_id: empty(),
            key: empty(),
            identity: empty(),
            tag: empty(),
            region: empty(),
        }
    }

    pub fn api(api: &ApiId) -> Self {
        Self { resource_id: api.to_string(), ..Self::all(EventKind::Verifications) }
    }

    pub fn key(key: &KeyId, api: &ApiId) -> Self {
        Self { key: key.to_string(), ..Self::api(api) }
    }

    /// Selects the verifications of keys that had an identity with this external id at that time.
    pub fn identity(external_id: &str) -> Self {
        Self { identity: external_id.to_owned(), ..Self::all(EventKind::Verifications) }
    }

    pub fn namespace(namespace: &NamespaceId) -> Self {
        Self { resource_id: namespace.to_string(), ..Self::all(EventKind::Ratelimits) }
    }

    /// Reads the selection from the filters of a page. The second value is the error of an invalid region; the selection then
    /// has all regions.
    pub fn from_form(query: &Form) -> (Self, Option<String>) {
        let field = |name: &str| query.text(name).trim().to_owned();
        if query.text("of") == "limits" {
            let all = Self::all(EventKind::Ratelimits);
            return (Self { resource_id: field("only"), ..all }, None);
        }
        let (region, fault) = match parse_region(query.text("region")) {
            Ok(region) => (region, None),
            Err(fault) => (String::new(), Some(fault)),
        };
        let selection = Self {
            kind: EventKind::Verifications,
            resource_id: field("only"),
            key: field("key"),
            identity: field("identity"),
            tag: field("tag"),
            region,
        };
        (selection, fault)
    }

    /// Returns the fields that [`Self::from_form`] reads, for links to the analytics page.
    pub fn to_fields(&self) -> [(&'static str, &str); 6] {
        [
            ("of", if self.is_limits() { "limits" } else { "" }),
            ("only", self.resource_id.as_str()),
            ("key", self.key.as_str()),
            ("identity", self.identity.as_str()),
            ("tag", self.tag.as_str()),
            ("region", self.region.as_str()),
        ]
    }

    pub fn is_limits(&self) -> bool {
        self.kind == EventKind::Ratelimits
    }

    /// Returns the API or namespace.
    pub fn resource(&self) -> Option<&str> {
        (!self.resource_id.is_empty()).then_some(self.resource_id.as_str())
    }

    /// Returns whether totals per API cannot answer the selection.
    fn needs_key_rollups(&self) -> bool {
        self.selects_keys() || !self.region.is_empty()
    }

    fn selects_keys(&self) -> bool {
        [&self.key, &self.identity, &self.tag].iter().any(|text| !text.is_empty())
    }

    /// Returns whether the requests are known by API or namespace. Rollups per key do not contain it.
    pub fn is_known_by_resource(&self) -> bool {
        !self.needs_key_rollups()
    }

    /// Returns the traffic of a period by API or namespace, without keys, identities, tags and regions.
    pub async fn load_traffic_by_resource(
        &self,
        request: &WorkspaceRequest,
        period: Period,
        unit: RollupUnit,
    ) -> Result<Vec<(String, Traffic)>> {
        let analytics = &request.page_request.app.analytics;
        let filter = self.to_traffic_filter(period, unit);
        analytics_access::list_traffic_by_id(analytics, &request.caller, &filter).await
    }

    /// Returns the traffic of a period by unit of time. Units without requests may be missing.
    pub async fn load_traffic(
        &self,
        request: &WorkspaceRequest,
        period: Period,
        unit: RollupUnit,
    ) -> Result<Vec<(Timestamp, Traffic)>> {
        if self.needs_key_rollups() {
            let query = RollupQuery { unit: Some(unit), ..self.to_query(period, unit) };
            return self.load_key_traffic(request, query).await;
        }
        let filter = self.to_traffic_filter(period, unit);
        let analytics = &request.page_request.app.analytics;
        analytics_access::list_traffic(analytics, &request.caller, &filter).await
    }

    /// Returns the traffic of a whole period.
    pub async fn load_total(
        &self,
        request: &WorkspaceRequest,
        period: Period,
        unit: RollupUnit,
    ) -> Result<Traffic> {
        // Rollups of keys are many: those of coarser units are read where they can be.
        let slices = match self.needs_key_rollups() {
            true => self.load_key_traffic(request, self.to_query(period, unit)).await?,
            false => self.load_traffic(request, period, unit).await?,
        };
        Ok(sum_traffic(&slices))
    }

    /// Returns the traffic of keys, an identity, a tag or a region by the unit of time of a query. That of a region alone has no
    /// latencies: it would read the histograms of all keys.
    async fn load_key_traffic(
        &self,
        request: &WorkspaceRequest,
        query: RollupQuery,
    ) -> Result<Vec<(Timestamp, Traffic)>> {
        if !self.selects_keys() {
            let groups = self.list_groups(request, query).await?;
            let traffic = |group: RollupGroup| (group.time, traffic_of_group(&group));
            return Ok(groups.into_iter().map(traffic).collect());
        }
        let analytics = &request.page_request.app.analytics;
        let api = self.resource().map(ApiId::from);
        let (caller, api) = (&request.caller, api.as_ref());
        let groups =
            analytics_access::list_latencies_by_workspace(analytics, caller, api, query).await?;
        let traffic = |(group, latencies): (RollupGroup, _)| {
            (group.time, Traffic { latencies, ..traffic_of_group(&group) })
        };
        Ok(groups.into_iter().map(traffic).collect())
    }

    /// Returns the first groups in descending order, only those with an outcome if the order is one that the database sorts by.
    pub async fn list_top(
        &self,
        request: &WorkspaceRequest,
        range: &TimeRange,
        grouping: RollupGrouping,
        (order, with_outcome): (RollupOrder, Option<VerificationCode>),
        max: usize,
    ) -> Result<Vec<RollupGroup>> {
        let query = RollupQuery {
            grouping,
            order: Some(order),
            with_outcome,
            is_descending: true,
            limit: Some(max),
            ..self.to_query(range.period, range.rollup_unit())
        };
        self.list_groups(request, query).await
    }

    /// Returns the number of keys with at least one verification in the period.
    pub async fn count_keys(
        &self,
        request: &WorkspaceRequest,
        period: Period,
        unit: RollupUnit,
    ) -> Result<i64> {
        let query = self.to_query(period, unit);
        let analytics = &request.page_request.app.analytics;
        let api = self.resource().map(ApiId::from);
        analytics_access::count_keys_by_workspace(analytics, &request.caller, api.as_ref(), &query)
            .await
    }

    /// Returns the number of verifications of a period by region.
    pub async fn count_by_region(
        &self,
        request: &WorkspaceRequest,
        period: Period,
        unit: RollupUnit,
    ) -> Result<Vec<RegionCount>> {
        let query = self.to_query(period, unit);
        let analytics = &request.page_request.app.analytics;
        let api = self.resource().map(ApiId::from);
        analytics_access::count_by_region(analytics, &request.caller, api.as_ref(), &query).await
    }

    /// Returns the credits that the verifications of a period spent.
    pub async fn sum_credits(
        &self,
        request: &WorkspaceRequest,
        period: Period,
        unit: RollupUnit,
    ) -> Result<i64> {
        let groups = self.list_groups(request, self.to_query(period, unit)).await?;
        Ok(groups.iter().map(|group| group.spent_credits).fold(0, i64::saturating_add))
    }

    fn to_traffic_filter(&self, period: Period, unit: RollupUnit) -> TrafficFilter<'_> {
        TrafficFilter {
            kind: self.kind,
            resource_id: self.resource(),
            unit,
            from_time: period.from,
            until_time: period.until,
        }
    }

    fn to_query(&self, period: Period, unit: RollupUnit) -> RollupQuery {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        RollupQuery {
            external_id: given(&self.identity),
            key_ids: given(&self.key).map(KeyId::from).into_iter().collect(),
            tags: given(&self.tag).into_iter().collect(),
            region: given(&self.region),
            from_time: period.from,
            to_time: period.until.plus_ms(-1),
            grain: unit,
            ..RollupQuery::default()
        }
    }

    async fn list_groups(
        &self,
        request: &WorkspaceRequest,
        query: RollupQuery,
    ) -> Result<Vec<RollupGroup>> {
        let analytics = &request.page_request.app.analytics;
        let api = self.resource().map(ApiId::from);
        let (caller, api) = (&request.caller, api.as_ref());
        analytics_access::list_rollups_by_workspace(analytics, caller, api, query).await
    }
}

/// Returns the order by the number of verifications with an outcome, or by their number if it is empty.
pub fn order_by(outcome: &str) -> RollupOrder {
    match VerificationCode::parse(outcome) {
        None => RollupOrder::Total,
        Some(VerificationCode::Valid) => RollupOrder::Valid,
        Some(VerificationCode::NotFound) => RollupOrder::NotFound,
        Some(VerificationCode::Forbidden) => RollupOrder::Forbidden,
        Some(VerificationCode::InsufficientPermissions) => RollupOrder::InsufficientPermissions,
        Some(VerificationCode::UsageExceeded) => RollupOrder::UsageExceeded,
        Some(VerificationCode::RateLimited) => RollupOrder::RateLimited,
        Some(VerificationCode::Disabled) => RollupOrder::Disabled,
        Some(VerificationCode::Expired) => RollupOrder::Expired,
    }
}

/// Returns the traffic of a group.
pub fn traffic_of_group(group: &RollupGroup) -> Traffic {
    let counts = &group.counts;
    let outcomes = [
        (VerificationCode::Valid, counts.valid),
        (VerificationCode::RateLimited, counts.rate_limited),
        (VerificationCode::UsageExceeded, counts.usage_exceeded),
        (VerificationCode::InsufficientPermissions, counts.insufficient_permissions),
        (VerificationCode::Forbidden, counts.forbidden),
        (VerificationCode::Disabled, counts.disabled),
        (VerificationCode::Expired, counts.expired),
    ];
    let outcomes = outcomes.into_iter().map(|(code, count)| (code.as_str().to_owned(), count));
    Traffic {
        outcomes: outcomes.collect(),
        spent_credits: group.spent_credits,
        ..Traffic::default()
    }
}
