//! Tests lists of keys that have all leased credits, as an export needs them.

use domain::credits;
use domain::keys::{self, DecryptMode, KeyFilter};
use domain::page::Paging;
use domain::root_keys::default_workspace;
use domain::workspaces;
use foundation::error::Error;
use foundation::id::{ApiId, KeyId};

use super::*;

/// Returns the remaining credits of the only key of an API, with all leases.
async fn export(kw: &Keyward, api: &str) -> Result<i64, Error> {
    let context = &kw.app.context;
    let caller = workspaces::authorize_operator(context, &default_workspace()).await?;
    let filter = KeyFilter {
        api_id: ApiId::from(api),
        owner: None,
        decrypt_mode: DecryptMode::None,
        requires_leases: true,
        paging: Paging { limit: 10, ..Paging::default() },
    };
    let page = keys::list(context, &caller, filter).await?;
    Ok(page.items[0].credits.expect("a metered key").0)
}

/// Returns what a list shows of the only key of an API.
async fn listed(kw: &Keyward, api: &str) -> i64 {
    let reply = kw.v2("apis.listKeys", json!({ "apiId": api })).await;
    reply.data()[0]["credits"]["remaining"].as_i64().unwrap()
}

/// Creates a key with 1,000 credits, of which 100 are leased and 1 is spent.
async fn create_spent_key(kw: &Keyward, api: &str) -> IssuedKey {
    let key = kw.create_key_in(api, json!({ "credits": { "remaining": 1_000 } })).await;
    verify(kw, &key).await;
    key
}

/// Keeps the withheld leases of a replica that was killed from being returned.
async fn add_killed_replica(kw: &Keyward) {
    let sql = "INSERT INTO replicas (id, started_at, seen_at)
        VALUES ('rep_killed', 1, (SELECT MAX(seen_at) FROM replicas) + 3600000)";
    kw.execute_sql(sql.to_owned()).await;
}

#[tokio::test]
async fn export_has_credits_of_top_ups_that_are_on_their_way_to_redis() {
    let kw = start().await;
    let api = kw.create_api().await;
    let key = create_spent_key(&kw, &api).await;
    assert_eq!(export(&kw, &api).await.unwrap(), 999);

    let id = &key.id;
    kw.execute_sql(format!("UPDATE keys SET credits = credits - 50 WHERE id = '{id}'")).await;
    kw.execute_sql(format!("UPDATE purses SET granted = granted + 50 WHERE key_id = '{id}'")).await;

    assert_eq!(export(&kw, &api).await.unwrap(), 999);
    assert_eq!(listed(&kw, &api).await, 949, "other reads show what can be spent now");
}

#[tokio::test]
async fn export_fails_when_redis_has_lost_a_lease() {
    let kw = start().await;
    let api = kw.create_api().await;
    let key = create_spent_key(&kw, &api).await;
    let [number] = lease_numbers(&kw, &key).await[..] else { panic!("one lease") };
    lose_lease(&kw, &key, number).await;

    let exported = export(&kw, &api).await;

    assert!(matches!(exported, Err(Error::LeaseNotFound(_))), "{exported:?}");
    assert_eq!(listed(&kw, &api).await, 900, "other reads leave it out");
}

#[tokio::test]
async fn export_leaves_out_a_lost_lease_of_which_all_is_spent() {
    let kw = start().await;
    let api = kw.create_api().await;
    let key = create_spent_key(&kw, &api).await;
    let [number] = lease_numbers(&kw, &key).await[..] else { panic!("one lease") };
    kw.execute_sql(format!("UPDATE purses SET spent = granted WHERE key_id = '{}'", key.id)).await;
    lose_lease(&kw, &key, number).await;

    assert_eq!(export(&kw, &api).await.unwrap(), 900);
}

#[tokio::test]
async fn export_fails_when_credits_are_withheld_until_they_are_released() {
    let kw = start().await;
    let api = kw.create_api().await;
    let key = create_spent_key(&kw, &api).await;
    let id = &key.id;
    add_killed_replica(&kw).await;
    let lease = |number: i64, granted: i64| {
        format!(
            "INSERT INTO purses (key_id, epoch, life, granted, spent, opened_at, asked_at, asked_by,
                withheld_at) VALUES ('{id}', {number}, 7, {granted}, 3, 1, 1, 'rep_killed', 1)"
        )
    };
    // A forfeited lease holds nothing.
    kw.execute_sql(lease(-1, 3)).await;
    assert_eq!(export(&kw, &api).await.unwrap(), 999);
    kw.execute_sql(lease(0, 10)).await;

    let error = export(&kw, &api).await.expect_err("withheld credits");

    assert!(matches!(error, Error::CreditsWithheld(_)), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("keyward credits list") && message.contains(id), "{message}");
    assert_eq!(listed(&kw, &api).await, 999, "other reads leave them out");
    kw.execute_sql("DELETE FROM replicas WHERE id = 'rep_killed'".to_owned()).await;
    credits::release_withheld(&kw.app.ledger, Some(&KeyId::from(id.as_str()))).await.unwrap();
    assert_eq!(export(&kw, &api).await.unwrap(), 1_006);
}

/// A replica closes a lease in Redis first, and then in the account.
#[tokio::test]
async fn export_waits_until_a_lease_that_is_closed_in_redis_is_closed_in_the_account() {
    let kw = start().await;
    let api = kw.create_api().await;
    let key = create_spent_key(&kw, &api).await;
    let [number] = lease_numbers(&kw, &key).await[..] else { panic!("one lease") };
    let context = &kw.app.context;
    let lease = context.keyspace.lease(&key.id, number);
    let redis = context.redis.as_ref().unwrap();
    let sql = "SELECT life FROM purses WHERE key_id = $1";
    let generation: i64 =
        sqlx::query_scalar(sql).bind(&key.id).fetch_one(&mut postgres(&kw).await).await.unwrap();
    let now = context.clock.fixed_time();
    redis.close_lease(&lease, generation, Duration::ZERO, now).await.unwrap();

    let close_in_account = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        kw.v2(
            "keys.updateCredits",
            json!({ "keyId": key.id, "operation": "increment", "value": 1 }),
        )
        .await
        .data();
    };
    let (exported, ()) = tokio::join!(export(&kw, &api), close_in_account);

    assert_eq!(exported.unwrap(), 1_000);
}
