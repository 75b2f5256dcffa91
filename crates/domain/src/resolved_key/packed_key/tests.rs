//! Tests that a packed key contains what its row has, in few bytes.

use foundation::clock::Monotonic;
use foundation::id::KeyId;
use foundation::model::Key;
use store::freshness::Freshness;

use super::*;

/// Returns a row with a start and with an optional name, owner id, environment and identity id.
pub fn stored_key(start: &str, texts: [Option<&str>; 4]) -> StoredKey {
    let [name, owner_id, environment, identity_id] = texts;
    StoredKey {
        key: Key {
            id: KeyId::from("key_1"),
            workspace_id: WorkspaceId::from("ws_1"),
            api_id: ApiId::from("api_1"),
            hash: "hash".to_owned(),
            start: start.to_owned(),
            prefix: None,
            byte_length: 16,
            name: name.map(str::to_owned),
            meta: None,
            identity_id: identity_id.map(IdentityId::from),
            owner_id: owner_id.map(str::to_owned),
            environment: environment.map(str::to_owned),
            is_enabled: true,
            expires_at: None,
            credits: None,
            created_at: Timestamp(1),
            updated_at: None,
        },
        ratelimits: Vec::new(),
        permissions: Vec::new(),
        role_ids: Vec::new(),
        refill: None,
        last_used_at: None,
        workspace_enabled: true,
        allowed_networks: None,
        home: None,
    }
}

fn pack(stored: StoredKey) -> PackedKey {
    let api = Arc::new(ApiPart::from(&stored));
    let now = Monotonic::default();
    let version = Freshness::new(0, now).read_version(now);
    PackedKey::new(&Cached::new(stored, version, []), api)
}

#[test]
fn packed_key_has_every_text_of_its_row() {
    let long = "é".repeat(40_000);
    let choices = [None, Some(""), Some("a"), Some(long.as_str())];
    for start in ["", "live_3x"] {
        for number in 0..choices.len().pow(4) {
            let texts =
                [0, 1, 2, 3].map(|at| choices[number / choices.len().pow(at) % choices.len()]);

            let packed = pack(stored_key(start, texts));

            assert_eq!([packed.id(), packed.start()], ["key_1", start]);
            let found =
                [packed.name(), packed.owner_id(), packed.environment(), packed.identity_id()];
            assert!(found == texts, "combination {number}");
        }
    }
}

#[test]
fn packed_key_has_every_other_field_of_its_row() {
    let networks = Networks::parse("10.0.0.0/8").expect("a network");
    for (is_set, expires_at) in
        [(false, None), (true, Some(0)), (true, Some(i64::MIN)), (false, Some(i64::MAX))]
    {
        let mut stored = stored_key("live_3x", [Some("name"), None, Some(""), None]);
        stored.key.is_enabled = is_set;
        stored.key.expires_at = expires_at.map(Timestamp);
        stored.key.meta = Meta::from_stored(r#"{"a":1}"#.to_owned()).filter(|_| is_set);
        stored.workspace_enabled = is_set;
        stored.allowed_networks = Networks::new(networks.clone()).filter(|_| is_set);
        stored.home = Some(Home::new("eu")).filter(|_| is_set);

        let packed = pack(stored.clone());

        assert_eq!(packed.is_enabled(), is_set);
        assert_eq!(packed.expires_at(), stored.key.expires_at);
        assert_eq!(packed.created_at(), Timestamp(1));
        assert_eq!(packed.meta().map(Meta::as_str), is_set.then_some(r#"{"a":1}"#));
        assert_eq!(packed.is_workspace_enabled(), is_set);
        assert_eq!(packed.allowed_networks(), stored.allowed_networks.as_ref());
        assert_eq!(packed.home(), stored.home.as_ref());
        assert_eq!(*packed.workspace_id(), stored.key.workspace_id);
        assert_eq!(*packed.api_id(), stored.key.api_id);
        assert_eq!([packed.name(), packed.environment()], [Some("name"), Some("")]);
    }
}

#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn cached_key_and_limit_take_256_and_128_bytes_with_their_reference_counts() {
    use super::super::{ResolvedKey, ResolvedLimit};

    assert_eq!(size_of::<PackedKey>(), 96);
    assert_eq!(size_of::<ResolvedKey>(), 208);
    assert_eq!(size_of::<Cached<ResolvedKey>>(), 256 - 16);
    assert_eq!(size_of::<ResolvedLimit>(), 128 - 16);
}

#[test]
fn equal_part_is_shared_until_another_one_replaces_it() {
    let parts = ApiParts::default();
    let stored = stored_key("", [None; 4]);
    let share = |stored: &StoredKey| parts.share(ApiPart::from(stored));
    let disabled = StoredKey { workspace_enabled: false, ..stored.clone() };

    let first = share(&stored);
    assert!(Arc::ptr_eq(&first, &share(&stored)));

    let other = share(&disabled);
    assert!(!other.is_workspace_enabled && first.is_workspace_enabled);
    assert!(Arc::ptr_eq(&other, &share(&disabled)));

    let again = share(&stored);
    assert!(*again == *first && !Arc::ptr_eq(&again, &first));
}

#[test]
fn part_of_api_is_counted_with_its_first_key() {
    let parts = ApiParts::default();
    let now = Monotonic::default();
    let version = Freshness::new(0, now).read_version(now);
    let row = Cached::new(stored_key("live_3x", [Some("name"), None, None, None]), version, []);
    let pack = || PackedKey::new(&row, parts.share(ApiPart::from(&row.value)));
    let own = "key_1".len() + "live_3x".len() + "name".len();

    let first = pack();
    assert_eq!(first.heap_size(), own + size_of::<ApiPart>() + "ws_1".len() + "api_1".len());
    let second = pack();
    assert_eq!(second.heap_size(), own);
}
