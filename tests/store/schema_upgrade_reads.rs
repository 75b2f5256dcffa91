//! Reads an upgraded database through the store. Values that a schema could not hold are absent.

use foundation::id::{MigrationId, NamespaceId, UserId};
use foundation::model::{Algorithm, Migration, OutagePolicy};
use store::{
    AuditFilter, IdentitySelection, KeyListFilter, PageOrder, PageQuery, Reader, StoredKey,
};

use super::*;

/// An API, an identity, a permission, a role, … in `tests/store/schemas`.
const API: &str = "api_LLUxauRsDdY2pdBwddn4GD";
const NAMESPACE: &str = "rlns_VYzpG7WXQBDCK2rCafvacm";
const MIGRATION: &str = "mig_ynza7aETL4QphzipUv5eat";
const OTHER_WORKSPACE: &str = "ws_Z1AnNfJXJ1zhrwXzttLFKD";
const OTHER_ROOT_KEY: &str = "keyward_LxT15GfCNYenRwGyWCA9TJXhotYnHHrUF";

/// Checks what the store reads from a database that had an older schema.
pub async fn assert_store_reads(store: &Store, version: i64) {
    // Debits of an embedded server are subtracted when a transaction begins.
    store.begin().await.unwrap().commit().await.unwrap();
    let mut reader = store.read().await.unwrap();
    let is_embedded = matches!(store, Store::Sqlite { .. });
    assert_full_key(&mut reader, version).await;
    assert_other_keys(&mut reader, version, is_embedded).await;
    assert_lists(&mut reader, version).await;
    assert_audit_log(&mut reader, version).await;
    if version >= 10 {
        assert_users(&mut reader, version).await;
    }
}

/// A page of everything that contains a text, which is entered in lower case.
fn search(text: &str) -> PageQuery<'static> {
    PageQuery { start: "", order: PageOrder::ById, search: text.to_lowercase(), rows_max: 10 }
}

async fn find(reader: &mut Reader, key: &str) -> Option<StoredKey> {
    let hash = KeyHash::compute(key).to_base64();
    reader.find_key_by_hash(&hash).await.unwrap()
}

async fn assert_full_key(reader: &mut Reader, version: i64) {
    let workspace = WorkspaceId::from("ws_default");
    let found = find(reader, "prod_Akkzhfs4KtawG96uVbNVB5tPoPjY2Dz7M").await.unwrap();
    let key = found.key;
    let texts = (key.name.as_deref(), key.prefix.as_deref(), key.start.as_str());
    assert_eq!(texts, (Some("SCHLÜSSEL"), Some("prod"), "prod_Akkz"));
    assert_eq!(key.meta.unwrap().as_str(), r#"{"tier":1,"text":"Ünïcødé 支付 🦀"}"#);
    assert_eq!((key.expires_at, key.byte_length), (Some(Timestamp(4_102_444_800_000)), 24));
    assert_eq!(key.owner_id.as_deref(), Some("USER_1234"));
    let refill = Refill { interval: RefillInterval::Daily, amount: 1_000 };
    let credits = key.credits.unwrap();
    assert_eq!((credits.balance, credits.refill), (17, Some(refill)));
    assert_eq!((credits.refilled_period, credits.last_lease_number), (20_000, 1));
    assert_eq!(found.last_used_at.is_some(), version >= 9);
    let limits: Vec<_> = found
        .ratelimits
        .iter()
        .map(|l| (l.name.as_str(), l.limit, l.duration_ms, l.auto_apply))
        .collect();
    assert_eq!(limits, [("requests", 10, 1_000, true), ("tokens", 5_000, 86_400_000, false)]);
    assert_eq!(
        found.permissions.iter().map(|p| p.slug.as_str()).collect::<Vec<_>>(),
        ["docs.read"]
    );
    let roles = reader.list_roles_by_ids(&workspace, &found.role_ids).await.unwrap();
    let names: Vec<_> =
        roles.iter().map(|role| (role.name.as_str(), role.permissions[0].slug.as_str())).collect();
    assert_eq!(names, [("ΣΊΣΥΦΟΣ", "docs.write")]);
    let identity = [key.identity_id.unwrap()];
    let identity = &reader.list_identities_by_ids(&workspace, &identity).await.unwrap()[0];
    assert_eq!((identity.external_id.as_str(), identity.ratelimits[0].limit), ("USER_1234", 100));
    let meta = r#"{"plan":"gold","nested":{"a":[1,null,"Ü \"q\" \\"]}}"#;
    assert_eq!(identity.meta.as_ref().unwrap().as_str(), meta);
}

async fn assert_other_keys(reader: &mut Reader, version: i64, is_embedded: bool) {
    let monthly = find(reader, "test_GvNUFcQorg6o6zdWeLghPyPdVmGo5sEzU").await.unwrap();
    let refill = Refill { interval: RefillInterval::Monthly { day: 31 }, amount: 7 };
    let is_debited = is_embedded && version >= 19;
    let credits = monthly.key.credits.unwrap();
    assert_eq!((credits.balance, credits.refill), (if is_debited { 2 } else { 5 }, Some(refill)));
    let disabled = find(reader, "prod_Fk5YT6YoD1QnYzS8N6YVETsTePgkZsmoP").await.unwrap().key;
    let balance = 9_007_199_254_740_991 - i64::from(is_debited);
    assert_eq!((disabled.is_enabled, disabled.credits.unwrap().balance), (false, balance));
    let account = reader.find_account(&disabled.id).await.unwrap();
    assert_eq!(account.unwrap().credits.balance, balance);
    if version >= 3 {
        let spent = KeyId::from("key_gb1fo5f49HXGpK5pvsAiLX");
        let leases = reader.list_leases(&spent).await.unwrap();
        let units: Vec<_> = leases.iter().map(|l| (l.granted, l.spent, l.is_ended())).collect();
        assert_eq!(units, [(10, 4, true), (10, 0, false)]);
    }
    let deleted = find(reader, "prod_MQUKCR4gaAwDhpz6iLLc9FjDg2RF7jsLf").await;
    let of_deleted_api = find(reader, "7MPyFRiZcSGf1xuCrei4Ru").await;
    assert!(deleted.is_none() && of_deleted_api.is_none());
    let guarded = find(reader, "5J6NWG22e3rWw1FKRazeHR").await.unwrap();
    let networks = guarded.allowed_networks.map(|networks| networks.to_strings());
    let expected = ["127.0.0.0/8".to_owned(), "2001:db8::1/128".to_owned()];
    assert_eq!(networks, (version >= 5).then_some(expected.to_vec()));
    let fast = find(reader, "prod_F2hCNaeKf8sdp97p1L6KUaPF2X443DY6M").await.unwrap();
    assert_eq!(fast.key.environment.as_deref(), (version >= 8).then_some("live"));
    assert_eq!(fast.ratelimits[0].is_approximate, version >= 8);
    let orphan = find(reader, "prod_F9obFa7uSA1WC8Bxp5VRMXBn3mZE1yRk5").await.unwrap().key;
    assert_eq!(orphan.owner_id.as_deref(), (version >= 8).then_some("user_gone"));
    let imported = find(reader, "imported_key").await.unwrap().key;
    assert_eq!(imported.name.as_deref(), Some("imported"));
    let id = MigrationId::from(MIGRATION);
    let migration = reader.find_stored_migration(&imported.workspace_id, &id).await.unwrap();
    assert_eq!(migration.map(|found| found.imported_count), (version >= 6).then_some(1));
    let other = find(reader, "C1imRjLTcH84b8JAYEUXRX").await.unwrap();
    assert_eq!(other.key.workspace_id.as_str(), OTHER_WORKSPACE);
}

/// Checks that every list finds texts in capitals of any alphabet.
async fn assert_lists(reader: &mut Reader, version: i64) {
    let workspace = &WorkspaceId::from("ws_default");
    let other = &WorkspaceId::from(OTHER_WORKSPACE);
    let apis = reader.list_apis(workspace, &search("ÄPFEL")).await.unwrap();
    assert_eq!(apis.iter().map(|api| api.name.as_str()).collect::<Vec<_>>(), ["ÄPFEL und Birnen"]);
    assert_eq!(apis[0].settings.allows_recoverable_keys, version >= 5);
    let permissions = reader.list_permissions(workspace, &search("ЧТЕНИЕ")).await.unwrap();
    assert_eq!(permissions[0].description.as_deref(), Some("Read every document"));
    assert_eq!(reader.list_roles(workspace, &search("ΣΊΣΥΦΟΣ")).await.unwrap().len(), 1);
    let identities = reader
        .list_identities(workspace, IdentitySelection::All, &search("İSTANBUL"))
        .await
        .unwrap();
    assert_eq!(identities.len(), 1);
    let root_keys = reader.list_root_keys(other, None, true, &search("ÉCOLE")).await.unwrap();
    assert_eq!(root_keys[0].key.expires_at, Some(Timestamp(4_102_444_800_000)));
    let hash = KeyHash::compute(OTHER_ROOT_KEY).to_base64();
    assert_eq!(reader.find_root_key_by_hash(&hash).await.unwrap().unwrap().permissions.len(), 4);
    let namespaces = reader.list_namespaces(workspace, &search("ÖFFENTLICH")).await.unwrap();
    let policies: Vec<_> = namespaces.iter().map(|namespace| namespace.outage_policy).collect();
    assert_eq!(policies, if version >= 2 { vec![OutagePolicy::Closed] } else { Vec::new() });
    let namespace = NamespaceId::from(NAMESPACE);
    let overrides = reader.list_overrides(workspace, &namespace, &search("ΣΊΣΥΦΟΣ")).await.unwrap();
    let limits: Vec<_> = overrides.iter().map(|o| (o.limit, o.duration_ms)).collect();
    assert_eq!(limits, if version >= 2 { vec![(0, 60_000)] } else { Vec::new() });
    let migrations = reader.list_migrations(workspace, true, &search("ÜBERNAHME")).await.unwrap();
    assert_eq!(migrations.len(), usize::from(version >= 6), "{version}");
    let filter =
        KeyListFilter { search: "SCHLÜSSEL".into(), rows_max: 20, ..KeyListFilter::default() };
    assert_eq!(reader.list_workspace_keys(workspace, &filter).await.unwrap().len(), 1);
    let all =
        KeyListFilter { api_id: Some(ApiId::from(API)), rows_max: 20, ..KeyListFilter::default() };
    assert_eq!(reader.list_workspace_keys(workspace, &all).await.unwrap().len(), 10);
}

async fn assert_audit_log(reader: &mut Reader, version: i64) {
    let filter = AuditFilter { rows_max: 100, ..AuditFilter::default() };
    let workspace = WorkspaceId::from("ws_default");
    let entries = reader.list_audit_entries(&workspace, &filter).await.unwrap();
    assert_eq!(entries.len(), 12);
    let updates: Vec<_> = entries.iter().filter(|entry| entry.event == "api.update").collect();
    let [second, first] = updates[..] else { panic!("{updates:?}") };
    assert!(first.targets.contains("ÄPFEL und Birnen"));
    assert_eq!(first.actor_name.as_deref(), (version >= 4).then_some("cli"));
    assert_eq!(
        first.after.is_some() && first.undone_by.as_ref() == Some(&second.id),
        version >= 13
    );
    // Entries of older schemas are found by the ids and names of their targets.
    for target in ["api_LLUxauRsDdY2pdBwddn4GD", "ÄPFEL und Birnen"] {
        let filter =
            AuditFilter { target: Some(target.into()), rows_max: 100, ..AuditFilter::default() };
        let found = reader.list_audit_entries(&workspace, &filter).await.unwrap();
        let expected: Vec<_> =
            entries.iter().filter(|entry| entry.targets.contains(target)).map(|e| &e.id).collect();
        assert!(found.len() >= 2, "{version}: {target}");
        assert_eq!(found.iter().map(|entry| &entry.id).collect::<Vec<_>>(), expected, "{version}");
    }
}

async fn assert_users(reader: &mut Reader, version: i64) {
    let (user, password) = reader.find_user_by_email("björn@example.com").await.unwrap().unwrap();
    assert_eq!((user.id.as_str(), password), ("user_bjorn", None));
    let login = reader.find_user_by_login("https://login.example.com", "00u1ABC").await.unwrap();
    assert_eq!(login.is_some(), version >= 14);
    let members =
        reader.list_members(&WorkspaceId::from("ws_default"), &search("ADA")).await.unwrap();
    assert_eq!(members[0].user.email, "ada@example.com");
    let ada = UserId::from("user_ada");
    assert!(reader.find_user(&ada).await.unwrap().unwrap().1.unwrap().starts_with("$argon2id$"));
    assert_eq!(reader.list_memberships(&ada).await.unwrap().len(), 2);
    assert!(reader.find_session("hash_of_a_session").await.unwrap().is_some());
    assert!(reader.find_invitation("hash_of_an_invitation").await.unwrap().is_some());
}

on_both_stores! {
    async fn migration_of_a_previous_version_is_found_without_a_search_text(store) {
        let workspace = workspace(&store).await;
        let migration = Migration {
            id: MigrationId::from("mig_1"),
            workspace_id: workspace.clone(),
            name: Some("Elsewhere".into()),
            algorithm: Algorithm::Sha256,
            created_at: NOON,
        };
        commit_with(&store, async |tx| tx.insert_migration(&migration).await).await.unwrap();
        execute(&store, "UPDATE migrations SET search = ''").await;

        let mut reader = store.read().await.unwrap();
        for text in ["ELSE", "MIG_1"] {
            let found = reader.list_migrations(&workspace, true, &search(text)).await.unwrap();
            assert_eq!(found.len(), 1, "{text}");
        }
    }
}
