//! The regions that share limits and credits: which of them this replica is in, and the counters of the others.

use std::cell::LazyCell;
use std::sync::Arc;
use std::time::Duration;

use foundation::config::{RegionSettings, Settings};
use foundation::distance::CALL_TIMEOUT_MAX;
use foundation::error::{Error, Result};
use foundation::home::{Home, HomeWindows};
use foundation::metrics::Metrics;
use futures_util::future::join_all;
use limiter::redis::{RedisAddress, RedisCounters};
use limiter::{Away, Keyspace, Moves, Placement, RegionIndex, WindowHome};
use store::Store;

use super::Context;

/// The regions, by their positions in the settings.
pub struct Regions {
    names: Vec<String>,
    own: usize,
    /// The counters of each region; `None` for this one.
    counters: Vec<Option<Arc<RedisCounters>>>,
}

impl Regions {
    /// Creates the counters of the other regions without connecting.
    pub fn new(
        regions: &RegionSettings,
        settings: &Settings,
        keyspace: &Keyspace,
        metrics: &Metrics,
    ) -> Result<Self> {
        let timeout = Duration::from_millis(settings.redis_timeout_ms);
        let mut counters = vec![None; regions.names.len()];
        for (position, url) in &regions.others {
            let address = RedisAddress::new(url, &settings.redis_tls);
            let other = RedisCounters::new(address, timeout, keyspace.clone(), metrics)?;
            counters[*position] = Some(Arc::new(other));
        }
        Ok(Self { names: regions.names.clone(), own: regions.own, counters })
    }

    /// Returns the counters by region; `None` for this one.
    pub fn counters(&self) -> &[Option<Arc<RedisCounters>>] {
        &self.counters
    }

    /// Returns the other regions, with their counters.
    pub fn others(&self) -> impl Iterator<Item = (&str, &Arc<RedisCounters>)> {
        let named = self.names.iter().zip(&self.counters);
        named.filter_map(|(name, counters)| Some((name.as_str(), counters.as_ref()?)))
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the name of this replica's region.
    pub fn own_name(&self) -> &str {
        &self.names[self.own]
    }

    /// Returns the position of a region. What has no region belongs to the first.
    fn position_of(&self, name: &str) -> Option<usize> {
        if name.is_empty() { Some(0) } else { self.names.iter().position(|known| known == name) }
    }

    /// Returns whether a region is this one. What has no region belongs to the first.
    fn is_own(&self, name: &str) -> bool {
        self.position_of(name) == Some(self.own)
    }
}

/// The region of a replica, as it is recorded with what the replica creates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnRegion {
    /// Empty: there is one region.
    pub name: String,
    /// Whether it is the first region, to which belongs what was created when there was one.
    pub is_first: bool,
}

impl OwnRegion {
    /// Returns the regions that belong to this one, by their names in the database. `None`: all.
    pub fn names(&self) -> Option<Vec<String>> {
        let first = self.is_first.then(String::new);
        (!self.name.is_empty()).then(|| first.into_iter().chain([self.name.clone()]).collect())
    }

    /// Returns whether what was created in a region belongs to this one.
    pub fn contains(&self, region: &str) -> bool {
        self.name.is_empty() || region == self.name || (self.is_first && region.is_empty())
    }
}

/// The replica that tops up, and the region whose Redis holds its leases.
#[derive(Debug, Clone)]
pub struct LeaseHolder<'a> {
    pub id: &'a str,
    pub region: OwnRegion,
}

/// Adds the regions of the settings to those of the deployment. Returns what is wrong with the settings: the order of
/// the regions decides where the counters are whose owners have no home.
pub async fn register_regions(context: &Context, store: &Store) -> Result<Option<String>> {
    let Some(regions) = &context.regions else { return Ok(None) };
    let mut tx = store.begin().await?;
    tx.add_regions(&regions.names).await?;
    tx.commit().await?;
    let known = store.read().await?.list_regions().await?;
    Ok(find_region_conflict(&regions.names, &known))
}

/// Returns what is wrong with a list of regions of a deployment that has these regions.
pub fn find_region_conflict(listed: &[String], known: &[String]) -> Option<String> {
    let (first, listed_first) = (known.first()?, listed.first()?);
    (first != listed_first).then(|| {
        format!(
            "KEYWARD_REGIONS lists {listed_first} first, and the first region of this deployment is {first}: list {first} first"
        )
    })
}

/// Returns that the Redis of a region is marked with another one.
pub fn misplaced_redis_message(region: &str, marked: &str) -> String {
    format!(
        "the Redis of {region} in the settings is that of {marked}: each region needs a Redis of its own, with the same \
        address for all replicas"
    )
}

/// Marks the Redis of this region, and returns what is wrong with the addresses of all: two replicas that have different
/// ones for a region would count its limits apart. Servers that do not reply are left out.
pub async fn find_misplaced_redis(context: &Context) -> Option<String> {
    let (regions, redis) = (context.regions.as_ref()?, context.redis.as_ref()?);
    // The first call connects, which takes longer than a call may.
    let own = async {
        redis.connect(CALL_TIMEOUT_MAX).await.ok()?;
        Some((regions.own_name(), redis.mark_region(regions.own_name()).await.ok()?))
    };
    let others = regions.others().map(|(name, other)| async move {
        other.connect(CALL_TIMEOUT_MAX).await.ok()?;
        Some((name, other.load_region().await.ok()??))
    });
    let (own, others) = tokio::join!(own, join_all(others));
    let marked = std::iter::once(own).chain(others).flatten();
    let misplaced = marked.filter(|(region, marked)| region != marked);
    misplaced.map(|(region, marked)| misplaced_redis_message(region, &marked)).next()
}

impl Context {
    /// Connects to the Redis of each region, which takes longer than a call may, and measures how far it is. Those that do not
    /// reply are left to the calls that need them.
    pub async fn connect_redis(&self) {
        let others = self.regions.iter().flat_map(Regions::others);
        let all = self.redis.iter().chain(others.map(|(_, other)| &**other));
        join_all(all.map(|redis| redis.connect(CALL_TIMEOUT_MAX))).await;
    }

    /// Returns the region of this replica.
    pub fn own_region(&self) -> OwnRegion {
        let Some(regions) = &self.regions else { return OwnRegion::default() };
        OwnRegion { name: regions.own_name().to_owned(), is_first: regions.own == 0 }
    }

    /// Returns the home of what is created here: this region. `None`: there is one region.
    pub fn home_of_new(&self) -> Option<Home> {
        self.regions.as_ref().map(|regions| Home::new(regions.own_name()))
    }

    /// Returns where the windows of a counter are counted if its owner has this home. A home that the settings do not
    /// list cannot be reached.
    pub fn placement(&self, home: Option<&Home>, counter: &str, duration_ms: i64) -> Placement {
        let Some(regions) = &self.regions else { return Placement::default() };
        let lease: LazyCell<Arc<str>, _> =
            LazyCell::new(|| self.keyspace.window_lease(counter).into());
        let away = |region: &str| {
            let position = regions.position_of(region).and_then(|at| u8::try_from(at).ok());
            let home = position.map_or(RegionIndex::UNKNOWN, RegionIndex);
            (!regions.is_own(region)).then(|| Arc::new(Away { home, lease: (*lease).clone() }))
        };
        let homes = home.map_or_else(Vec::new, |home| home.list_windows(duration_ms));
        let moves = (!homes.is_empty()).then(|| {
            let homes = homes.into_iter().map(|HomeWindows { first_window, region }| WindowHome {
                first_window,
                away: away(region),
            });
            let begun = self.keyspace.begun_window(counter).into();
            Arc::new(Moves { homes: homes.collect(), begun })
        });
        Placement { away: away(home.map_or("", |home| &home.region)), moves }
    }

    /// Returns the counters of the region that holds a lease.
    pub fn redis_of(&self, region: &str) -> Result<&RedisCounters> {
        let own = || self.redis.as_ref().ok_or(Error::RedisBreakerOpen);
        let Some(regions) = &self.regions else { return own() };
        match regions.position_of(region).and_then(|position| regions.counters.get(position)) {
            Some(Some(other)) => Ok(other),
            Some(None) => own(),
            None => Err(Error::UnknownRegion(region.to_owned())),
        }
    }

    /// Announces a change in the feed of every region at once. Returns the eras of the feeds that contain it, and
    /// whether those are all.
    pub async fn publish_everywhere(
        &self,
        redis: &RedisCounters,
        text: &str,
        older_text: Option<&str>,
    ) -> (Vec<String>, bool) {
        let others = self.regions.iter().flat_map(Regions::others).map(|(_, other)| &**other);
        let all = std::iter::once(redis).chain(others);
        let outcomes = join_all(all.map(|redis| redis.publish(text, older_text))).await;
        let is_everywhere = outcomes.iter().all(Result::is_ok);
        for e in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            tracing::debug!(error = %e, "failed to publish a change: {e}");
        }
        (outcomes.into_iter().flatten().collect(), is_everywhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_conflicts_with_the_deployment_if_another_region_is_first() {
        let list = |names: &str| names.split(' ').map(str::to_owned).collect::<Vec<_>>();

        assert_eq!(find_region_conflict(&list("eu us"), &list("eu us")), None);
        assert_eq!(find_region_conflict(&list("eu us ap"), &list("eu us")), None);
        assert_eq!(find_region_conflict(&list("eu us"), &[]), None);
        let conflict = find_region_conflict(&list("us eu"), &list("eu us")).expect("a conflict");
        assert!(conflict.ends_with("is eu: list eu first"), "{conflict}");
    }

    #[test]
    fn own_region_contains_what_has_no_region_if_it_is_the_first() {
        let region = |name: &str, is_first| OwnRegion { name: name.into(), is_first };

        assert!(OwnRegion::default().contains("") && OwnRegion::default().contains("eu"));
        assert!(region("eu", true).contains("eu") && region("eu", true).contains(""));
        assert!(region("us", false).contains("us") && !region("us", false).contains(""));
        assert!(!region("eu", true).contains("us"));
    }

    #[test]
    fn own_region_names_those_that_belong_to_it() {
        let names = |name: &str, is_first| OwnRegion { name: name.into(), is_first }.names();

        assert_eq!(OwnRegion::default().names(), None, "all");
        assert_eq!(names("eu", true), Some(vec![String::new(), "eu".into()]));
        assert_eq!(names("us", false), Some(vec!["us".into()]));
    }

    #[test]
    fn region_without_a_name_is_the_first() {
        let regions = |own| {
            let names = vec!["eu".to_owned(), "us".to_owned()];
            Regions { names, own, counters: vec![None, None] }
        };
        let (first, second) = (regions(0), regions(1));
        let names = ["", "eu", "us", "ap"];

        let positions = [Some(0), Some(0), Some(1), None];
        assert_eq!(names.map(|name| first.position_of(name)), positions);
        assert_eq!(names.map(|name| second.position_of(name)), positions);
        assert_eq!(names.map(|name| first.is_own(name)), [true, true, false, false]);
        assert_eq!(names.map(|name| second.is_own(name)), [false, false, true, false]);
        assert_eq!((first.own_name(), second.own_name()), ("eu", "us"));
    }
}
