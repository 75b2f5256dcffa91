//! Tests what a context derives from its settings. No server is called.

use foundation::config::{Config, RegionSettings};
use foundation::home::Home;

use super::feed::Announcement;
use super::*;

/// Returns the settings of a replica whose servers do not exist.
fn replica_settings() -> Settings {
    let mut settings = Config::default().validate().expect("valid settings");
    // A test has few keys.
    settings.cache_bytes_max = 1 << 20;
    settings.deployment = Deployment::Replica {
        database_url: "postgres://127.0.0.1:1/none".into(),
        redis_url: "redis://127.0.0.1:1".into(),
    };
    settings
}

/// Creates a context of a replica whose database and Redis are never called.
fn create_context(change: impl FnOnce(&mut Settings)) -> Context {
    let mut settings = replica_settings();
    change(&mut settings);
    Context::new(settings, Clock::System).expect("a context").0
}

#[test]
fn grace_period_is_as_long_as_configured() {
    let context = create_context(|settings| settings.database_grace_seconds = 20);
    assert_eq!(context.grace_ms(), 20_000);
    let started = Monotonic::now();
    let version = context.freshness.read_version(started);
    let after = |seconds| started + Duration::from_secs(seconds);

    context.freshness.record_announcements_read(after(22));

    assert!(context.freshness.is_fresh(version, &[], after(19)));
    assert!(!context.freshness.is_fresh(version, &[], after(21)));
}

#[test]
fn database_is_far_from_a_round_trip_of_ten_milliseconds_on() {
    for (round_trip_us, is_far) in [(None, false), (Some(9_999), false), (Some(10_000), true)] {
        let context = create_context(|_| {});
        if let Some(us) = round_trip_us {
            context.database_distance.record(Duration::from_micros(us), Monotonic::now());
        }
        assert_eq!(context.is_database_far(), is_far, "{round_trip_us:?}");
    }
}

#[test]
fn timeout_of_redis_is_the_configured_one_while_its_distance_is_unknown() {
    for redis_timeout_ms in [40, 500] {
        let context = create_context(|settings| settings.redis_timeout_ms = redis_timeout_ms);
        assert_eq!(context.redis_timeout(), Duration::from_millis(redis_timeout_ms));
    }
}

#[test]
fn region_of_a_replica_is_the_home_of_what_it_creates() {
    let regions = |own, other| RegionSettings {
        names: vec!["eu".into(), "us".into()],
        own,
        others: vec![(other, "redis://127.0.0.1:1".into())],
    };
    for (settings, name, is_first, home) in [
        (None, "", false, None),
        (Some(regions(0, 1)), "eu", true, Some(Home::new("eu"))),
        (Some(regions(1, 0)), "us", false, Some(Home::new("us"))),
    ] {
        let context = create_context(|all| all.regions = settings);
        assert_eq!(context.own_region(), OwnRegion { name: name.into(), is_first });
        assert_eq!(context.home_of_new(), home);
        let others = context.regions.iter().flat_map(Regions::others).map(|(name, _)| name);
        let expected = ["eu", "us"].into_iter().filter(|other| home.is_some() && *other != name);
        assert_eq!(others.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}

#[test]
fn older_replicas_understand_committed_changes_only() {
    let cache_tags = "key:key_a\nnew_keys\n";
    let text = |announcement| Context::text_for_older_replicas(&announcement).map(str::to_owned);

    assert_eq!(
        text(Announcement::Committed { position: 7, cache_tags }).as_deref(),
        Some(cache_tags)
    );
    assert_eq!(text(Announcement::Intent { position: 7, cache_tags }), None);
    assert_eq!(text(Announcement::RolledBack { position: 7 }), None);
}

#[test]
fn creation_of_a_key_invalidates_the_absence_of_its_hash() {
    let hash = KeyHash::compute("a");

    assert_eq!(new_key_tag(&hash), Some(CacheTag::NewKey(hash.fingerprint())));
}
