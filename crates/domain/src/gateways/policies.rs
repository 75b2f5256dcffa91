//! Creates, changes and deletes gateway policies.

use std::collections::BTreeSet;

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, ResourceRef, Result};
use foundation::id::GatewayPolicyId;
use foundation::model::{
    FailureFormat, GatewayNamespace, GatewayPolicy, GatewayPolicyConfig, GatewayRule,
    IdentityHeaders, KeySource,
};
use foundation::secret::Plaintext;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use store::freshness::CacheTag;
use store::{GatewaySecrets, StoredGatewayPolicy, Tx};

use super::lookup::generate_secret;
use super::name_tag;
use super::validate::{SECRET_GRACE_MAX_MS, validate};
use crate::audit::{AuditBatch, AuditEvent, FieldChanges, Target};
use crate::caller::Caller;
use crate::context::Context;
use crate::form_results::{self, CreatedSecret};
use crate::page::{Page, Paging};
use crate::permission::Action;
use crate::ratelimits::namespaces;
use crate::signing_keys;

/// The maximum number of gateway policies of a workspace.
const POLICIES_MAX: i64 = 1_000;

/// A policy to create.
#[derive(Debug)]
pub struct NewGatewayPolicy {
    pub name: String,
    pub config: GatewayPolicyConfig,
}

/// A change of a policy. Absent fields keep their values.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayPolicyChange {
    pub name: Option<String>,
    pub api_ids: Option<Vec<foundation::id::ApiId>>,
    pub key_from: Option<Vec<KeySource>>,
    pub rules: Option<Vec<GatewayRule>>,
    pub identity_headers: Option<IdentityHeaders>,
    pub on_failure: Option<FailureFormat>,
    pub allow_from: Option<Vec<IpNet>>,
    pub namespaces: Option<Vec<GatewayNamespace>>,
    pub resource: Option<String>,
    pub authorization_servers: Option<Vec<String>>,
}

/// The fields of a policy, as the audit log stores them.
#[derive(Serialize)]
struct GatewayPolicySnapshot<'a> {
    name: &'a str,
    #[serde(flatten)]
    config: &'a GatewayPolicyConfig,
}

/// A policy and its secret, which is shown only now.
#[derive(Debug)]
pub struct NewSecret {
    pub policy: GatewayPolicy,
    pub secret: Plaintext,
}

/// Creates a policy. The caller must be allowed to do what a gateway can do by it: to verify keys of its APIs and to check
/// limits in its namespaces. Missing namespaces are created.
pub async fn create(
    context: &Context,
    caller: &Caller,
    new: NewGatewayPolicy,
) -> Result<NewSecret> {
    caller.require(Action::CreateGatewayPolicy)?;
    let NewGatewayPolicy { name, config } = new;
    validate(&name, &config)?;
    let now = context.clock.now();
    let policy = GatewayPolicy {
        id: GatewayPolicyId::random(),
        workspace_id: caller.workspace_id().clone(),
        name,
        config,
        created_at: now,
        updated_at: None,
    };
    let secret = generate_secret();
    let hash = secret.hash();

    let mut tx = context.store.begin().await?;
    if tx.lock_gateway_policies(caller.workspace_id()).await? >= POLICIES_MAX {
        return Err(Error::PreconditionFailed(Refusal::TooManyGatewayPolicies(POLICIES_MAX)));
    }
    require_grants(context, &mut tx, caller, &policy.config).await?;
    tx.insert_gateway_policy(&policy, &hash.to_base64())
        .await
        .map_err(|e| name_error(e, &policy.name))?;
    let change = FieldChanges::created(&snapshot(&policy))?;
    record(&mut tx, caller, now, AuditEvent::GatewayPolicyCreated, &policy, change).await?;
    tx.record_change(CacheTag::NewKey(hash.fingerprint()));
    record_names(&mut tx, &policy);
    let shown = CreatedSecret::new(&secret);
    form_results::record(&mut tx, caller, &policy.id, Some(shown), now).await?;
    context.commit(tx).await?;
    Ok(NewSecret { policy, secret })
}

/// Returns the policy with this id or name.
pub async fn get(context: &Context, caller: &Caller, named: &str) -> Result<GatewayPolicy> {
    let mut reader = context.store.read().await?;
    let found = reader.find_gateway_policy(caller.workspace_id(), named).await?;
    Ok(require_visible(caller, Action::ReadGatewayPolicy, found, named)?.policy)
}

/// Lists a page of the policies of the caller's workspace, by id or by name.
pub async fn list(
    context: &Context,
    caller: &Caller,
    paging: &Paging,
) -> Result<Page<GatewayPolicy>> {
    caller.require(Action::ReadGatewayPolicy)?;
    let mut reader = context.store.read().await?;
    let rows = reader.list_gateway_policies(caller.workspace_id(), &paging.to_page_query()).await?;
    Ok(Page::in_order(rows, paging, |row| &row.id, |row| &row.name))
}

/// Changes a policy and returns all of it. What the caller is not allowed to do itself cannot be added.
pub async fn update(
    context: &Context,
    caller: &Caller,
    named: &str,
    change: GatewayPolicyChange,
) -> Result<GatewayPolicy> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let before = lock(&mut tx, caller, Action::UpdateGatewayPolicy, named).await?.policy;
    let mut policy = GatewayPolicy { updated_at: Some(now), ..before.clone() };
    change.apply(&mut policy);
    validate(&policy.name, &policy.config)?;
    require_grants(context, &mut tx, caller, &policy.config).await?;
    tx.update_gateway_policy(&policy).await.map_err(|e| name_error(e, &policy.name))?;
    let change = FieldChanges::updated(&snapshot(&before), &snapshot(&policy))?;
    record(&mut tx, caller, now, AuditEvent::GatewayPolicyUpdated, &policy, change).await?;
    record_names(&mut tx, &policy);
    context.commit(tx).await?;
    Ok(policy)
}

impl GatewayPolicyChange {
    fn apply(self, policy: &mut GatewayPolicy) {
        fn set<T>(field: &mut T, change: Option<T>) {
            if let Some(value) = change {
                *field = value;
            }
        }

        let config = &mut policy.config;
        set(&mut policy.name, self.name);
        set(&mut config.api_ids, self.api_ids);
        set(&mut config.key_from, self.key_from);
        set(&mut config.rules, self.rules);
        set(&mut config.identity_headers, self.identity_headers);
        set(&mut config.on_failure, self.on_failure);
        set(&mut config.allow_from, self.allow_from);
        set(&mut config.namespaces, self.namespaces);
        set(&mut config.resource, self.resource);
        set(&mut config.authorization_servers, self.authorization_servers);
    }
}

/// Replaces the secret of a policy. The previous one stays valid for `grace_ms`; one before it becomes invalid at once.
pub async fn rotate_secret(
    context: &Context,
    caller: &Caller,
    named: &str,
    grace_ms: i64,
) -> Result<NewSecret> {
    if !(0..=SECRET_GRACE_MAX_MS).contains(&grace_ms) {
        let message = format!("expiration must be from 0 to {SECRET_GRACE_MAX_MS}");
        return Err(Error::invalid("/properties/expiration", message));
    }
    let now = context.clock.now();
    let secret = generate_secret();
    let mut tx = context.store.begin().await?;
    let stored = lock(&mut tx, caller, Action::UpdateGatewayPolicy, named).await?;
    let policy = stored.policy;
    require_use(&mut tx, caller, &policy.config).await?;
    // A secret is still valid in the millisecond in which it expires.
    let expires_at = now.plus_ms(grace_ms - 1);
    let secrets = GatewaySecrets {
        hash: secret.hash().to_base64(),
        previous: (grace_ms > 0).then_some((stored.secrets.hash, expires_at)),
    };
    tx.set_gateway_secrets(&policy.id, &secrets).await?;
    let change = FieldChanges::default();
    record(&mut tx, caller, now, AuditEvent::GatewaySecretRotated, &policy, change).await?;
    tx.record_change(CacheTag::NewKey(secret.hash().fingerprint()));
    tx.record_change(CacheTag::GatewayPolicy(policy.id.clone()));
    let shown =
        CreatedSecret { plaintext: &secret, replaced_expires_at: Some(now.plus_ms(grace_ms)) };
    form_results::record(&mut tx, caller, &policy.id, Some(shown), now).await?;
    context.commit(tx).await?;
    Ok(NewSecret { policy, secret })
}

/// Deletes a policy: its gateways are refused from now on.
pub async fn delete(context: &Context, caller: &Caller, named: &str) -> Result<()> {
    let now = context.clock.now();
    let mut tx = context.store.begin().await?;
    let policy = lock(&mut tx, caller, Action::DeleteGatewayPolicy, named).await?.policy;
    tx.delete_gateway_policy(&policy.id, now).await?;
    let change = FieldChanges::deleted(&snapshot(&policy))?;
    record(&mut tx, caller, now, AuditEvent::GatewayPolicyDeleted, &policy, change).await?;
    record_names(&mut tx, &policy);
    context.commit(tx).await
}

/// Restores a deleted policy with its secret. Fails if another policy has its name now.
pub async fn restore(context: &Context, caller: &Caller, id: &GatewayPolicyId) -> Result<()> {
    caller.require(Action::CreateGatewayPolicy)?;
    let now = context.clock.now();
    let not_found = || Error::not_found(ResourceRef::GatewayPolicy(id.clone()));
    let mut tx = context.store.begin().await?;
    if tx.lock_gateway_policies(caller.workspace_id()).await? >= POLICIES_MAX {
        return Err(Error::PreconditionFailed(Refusal::TooManyGatewayPolicies(POLICIES_MAX)));
    }
    let name = tx.find_deleted_gateway_policy(caller.workspace_id(), id).await?;
    let name = name.ok_or_else(not_found)?;
    tx.restore_gateway_policy(id).await.map_err(|e| name_error(e, &name))?;
    let found = tx.find_gateway_policy(caller.workspace_id(), id.as_str()).await?;
    let stored = found.ok_or_else(not_found)?;
    require_grants(context, &mut tx, caller, &stored.policy.config).await?;
    let (event, change) = (AuditEvent::GatewayPolicyRestored, FieldChanges::default());
    record(&mut tx, caller, now, event, &stored.policy, change).await?;
    // Replicas may have cached that no policy has the secret.
    tx.record_change(CacheTag::All);
    context.commit(tx).await
}

fn name_error(error: Error, name: &str) -> Error {
    match error.is_unique_violation_of("gateway_policies_name_unique") {
        true => Error::AlreadyExists(ResourceRef::GatewayPolicyName(name.to_owned())),
        false => error,
    }
}

async fn lock(
    tx: &mut Tx,
    caller: &Caller,
    action: Action,
    named: &str,
) -> Result<StoredGatewayPolicy> {
    let found = tx.lock_gateway_policy(caller.workspace_id(), named).await?;
    require_visible(caller, action, found, named)
}

/// Returns the policy if the caller may do this with it. The permission is checked before the existence.
fn require_visible(
    caller: &Caller,
    action: Action,
    found: Option<StoredGatewayPolicy>,
    named: &str,
) -> Result<StoredGatewayPolicy> {
    match found {
        Some(stored) => {
            caller.require_on(action, &stored.policy.id)?;
            Ok(stored)
        }
        None => {
            caller.require_on(action, &named)?;
            Err(Error::not_found(ResourceRef::GatewayPolicy(named.into())))
        }
    }
}

/// Returns an error unless the caller may do what a gateway can do by the policy, and its APIs exist. Creates what it
/// needs: namespaces, and keys to sign with.
async fn require_grants(
    context: &Context,
    tx: &mut Tx,
    caller: &Caller,
    config: &GatewayPolicyConfig,
) -> Result<()> {
    let mut missing = Vec::new();
    for id in config.api_ids.iter().collect::<BTreeSet<_>>() {
        caller.require_on(Action::VerifyKey, id)?;
        let api = tx.find_api(caller.workspace_id(), id).await?;
        if api.is_none_or(|api| api.deleted_at.is_some()) {
            missing.push(ResourceRef::Api(id.clone()));
        }
    }
    if !missing.is_empty() {
        return Err(Error::NotFound(missing));
    }
    if config.identity_headers.signed {
        signing_keys::ensure_exist(context, tx, context.clock.now()).await?;
    }
    let names: Vec<_> = config.namespaces.iter().map(|named| named.namespace.as_str()).collect();
    namespaces::require_usable_or_create(context, tx, caller, &names).await
}

/// Returns an error unless the caller may do what a policy may, and with it whoever has its secret.
async fn require_use(tx: &mut Tx, caller: &Caller, config: &GatewayPolicyConfig) -> Result<()> {
    for id in &config.api_ids {
        caller.require_on(Action::VerifyKey, id)?;
    }
    for listed in &config.namespaces {
        let found = tx.find_namespace(caller.workspace_id(), &listed.namespace).await?;
        if let Some(namespace) = found {
            caller.require_on(Action::Limit, &namespace.id)?;
        }
    }
    Ok(())
}

fn snapshot(policy: &GatewayPolicy) -> GatewayPolicySnapshot<'_> {
    GatewayPolicySnapshot { name: &policy.name, config: &policy.config }
}

/// Records the change of a policy and of what its name and its id stand for.
fn record_names(tx: &mut Tx, policy: &GatewayPolicy) {
    tx.record_change(CacheTag::GatewayPolicy(policy.id.clone()));
    tx.record_change(name_tag(&policy.name));
    tx.record_change(name_tag(policy.id.as_str()));
}

async fn record(
    tx: &mut Tx,
    caller: &Caller,
    now: Timestamp,
    event: AuditEvent,
    policy: &GatewayPolicy,
    change: FieldChanges,
) -> Result<()> {
    let target = Target::new("gatewayPolicy", policy.id.as_str()).with_name(Some(&policy.name));
    let mut entries = AuditBatch::for_caller(caller, now);
    entries.add_change(event, &[target], change);
    entries.write(tx).await
}
