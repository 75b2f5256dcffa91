//! The identities, permissions and roles that imported keys refer to, resolved together.

use std::collections::{BTreeSet, HashMap};

use foundation::clock::Timestamp;
use foundation::error::{Error, Refusal, Result};
use foundation::id::{IdentityId, PermissionId, RoleId};
use foundation::model::{Key, Meta, Permission, Refill, Role};
use store::{KeyToInsert, Tx};

use super::assignments::require_assignable;
use super::metering::Metering;
use super::snapshot::{AssignmentsSnapshot, KeySnapshot};
use super::{NewCredits, NewRatelimit, audit_target, to_ratelimits};
use crate::audit::{AuditBatch, AuditEvent, FieldChanges};
use crate::caller::Caller;
use crate::context::Context;
use crate::rbac::{self, MissingPolicy, Selector};

/// The settings of a key that Keyward issued elsewhere, for the key that replaces it.
#[derive(Debug, Default)]
pub struct IssuerSettings {
    pub prefix: Option<String>,
    /// Absent: 16.
    pub byte_length: Option<u8>,
    /// The refill that applies once the key has credits. Only a key without credits has it.
    pub idle_refill: Option<Refill>,
}

/// The fields of an imported key.
#[derive(Debug)]
pub struct ImportedKeyFields {
    /// The hash, in the form in which the original issuer computed it.
    pub hash: String,
    /// The leading characters that may be shown.
    pub start: Option<String>,
    pub name: Option<String>,
    pub external_id: Option<String>,
    pub meta: Option<Meta>,
    /// The customer's own label. Only version 1 has it.
    pub environment: Option<String>,
    /// Names.
    pub roles: Vec<String>,
    /// Slugs.
    pub permissions: Vec<String>,
    pub expires_at: Option<Timestamp>,
    pub enabled: bool,
    pub credits: Option<NewCredits>,
    pub ratelimits: Vec<NewRatelimit>,
    pub issuer_settings: IssuerSettings,
}

/// Fails, with strict grants, unless the caller may add the permissions and roles that the keys name.
pub fn require_grants<'a>(
    context: &Context,
    caller: &Caller,
    mut keys: impl Iterator<Item = &'a ImportedKeyFields> + Clone,
) -> Result<()> {
    if !context.settings.security.strict_grants {
        return Ok(());
    }
    let permissions = keys.clone().any(|key| !key.permissions.is_empty());
    require_assignable(caller, permissions, keys.any(|key| !key.roles.is_empty()))
}

/// The entities that keys refer to, by name.
pub struct ResolvedReferences {
    identities: HashMap<String, IdentityId>,
    permissions: HashMap<String, PermissionId>,
    slugs: HashMap<PermissionId, String>,
    roles: HashMap<String, Role>,
}

impl ResolvedReferences {
    /// Resolves references and creates missing entities; with strict grants, only if the root key may create them.
    pub async fn find_or_create(
        context: &Context,
        tx: &mut Tx,
        caller: &Caller,
        keys: &[ImportedKeyFields],
        entries: &mut AuditBatch<'_>,
    ) -> Result<Self> {
        let now = entries.recorded_at();
        let identities = ensure_identities(context, tx, caller, keys, now).await?;
        let (names, slugs) =
            (collect_names(keys, |key| &key.roles), collect_names(keys, |key| &key.permissions));
        if context.settings.security.strict_grants {
            let selectors = Selector::from_names(slugs, MissingPolicy::Create);
            let permissions =
                rbac::resolve_permissions(tx, caller, selectors, entries, now).await?;
            let selectors = Selector::from_names(names, MissingPolicy::Create);
            let roles = rbac::resolve_roles(tx, caller, selectors, entries, now).await?;
            return Ok(Self::new(identities, permissions, roles));
        }
        let permissions = rbac::create_missing_permissions(tx, caller, slugs, entries, now).await?;
        let roles = rbac::create_missing_roles(tx, caller, names, entries, now).await?;
        Ok(Self::new(identities, permissions, roles))
    }

    /// Resolves references. Missing identities are created; permissions and roles must exist.
    pub async fn require_existing(
        context: &Context,
        tx: &mut Tx,
        caller: &Caller,
        keys: &[ImportedKeyFields],
        entries: &mut AuditBatch<'_>,
    ) -> Result<Self> {
        let now = entries.recorded_at();
        let identities = ensure_identities(context, tx, caller, keys, now).await?;
        let (names, slugs) =
            (collect_names(keys, |key| &key.roles), collect_names(keys, |key| &key.permissions));
        let selectors = Selector::from_names(slugs, MissingPolicy::Reject);
        let references = rbac::resolve_existing_roles_and_permissions(
            tx, caller, names, selectors, entries, now,
        )
        .await;
        let (roles, permissions) = references.map_err(|e| match e {
            Error::NotFound(missing) => {
                Error::PreconditionFailed(Refusal::MissingReferences(missing))
            }
            other => other,
        })?;
        Ok(Self::new(identities, permissions, roles))
    }

    fn new(
        identities: Vec<(String, IdentityId)>,
        permissions: Vec<Permission>,
        roles: Vec<Role>,
    ) -> Self {
        Self {
            identities: identities.into_iter().collect(),
            permissions: permissions.iter().map(|p| (p.slug.clone(), p.id.clone())).collect(),
            slugs: permissions.into_iter().map(|p| (p.id, p.slug)).collect(),
            roles: roles.into_iter().map(|role| (role.name.clone(), role)).collect(),
        }
    }

    /// Returns the key with its references.
    pub fn attach_to(&self, key: Key, from: ImportedKeyFields) -> KeyToInsert {
        let mut permission_ids: Vec<PermissionId> = from
            .permissions
            .iter()
            .filter_map(|slug| self.permissions.get(slug).cloned())
            .collect();
        permission_ids.sort();
        permission_ids.dedup();
        let mut role_ids: Vec<RoleId> =
            from.roles.iter().filter_map(|name| Some(self.roles.get(name)?.id.clone())).collect();
        role_ids.sort();
        role_ids.dedup();
        let identity_id = from.external_id.as_ref().and_then(|id| self.identities.get(id).cloned());
        let owner_id = from.external_id.or(key.owner_id);
        let settings = from.issuer_settings;
        let key = Key {
            prefix: settings.prefix,
            byte_length: settings.byte_length.unwrap_or(key.byte_length),
            name: from.name,
            meta: from.meta,
            environment: from.environment,
            identity_id,
            owner_id,
            ..key
        };
        KeyToInsert {
            key,
            idle_refill: settings.idle_refill,
            ratelimits: to_ratelimits(from.ratelimits),
            permission_ids,
            role_ids,
        }
    }

    /// Records the creation of the key, in one entry: the keys of a request can have 100,000 assignments. `now` is the
    /// database's time.
    pub fn record(
        &self,
        entries: &mut AuditBatch<'_>,
        incoming: &KeyToInsert,
        now: Timestamp,
    ) -> Result<()> {
        let key = &incoming.key;
        let permissions = incoming.permission_ids.iter().filter_map(|id| self.slugs.get(id));
        let roles = self.roles.values().filter(|role| incoming.role_ids.contains(&role.id));
        let mut assignments = AssignmentsSnapshot {
            roles: roles.map(|role| role.name.clone()).collect(),
            permissions: permissions.cloned().collect(),
        };
        assignments.roles.sort_unstable();
        assignments.permissions.sort_unstable();
        let state = KeySnapshot::from_key(key, &incoming.ratelimits)
            .with_credits(Metering::from_account(key.credits, None, now))
            .with_assignments(assignments);
        let change = FieldChanges::created(&state)?;
        entries.add_change(AuditEvent::KeyCreated, &[audit_target(key)], change);
        Ok(())
    }
}

fn collect_names(
    keys: &[ImportedKeyFields],
    names: impl Fn(&ImportedKeyFields) -> &Vec<String>,
) -> Vec<String> {
    keys.iter().flat_map(|key| names(key).clone()).collect()
}

/// Returns the identity with this external ID, which is created if it does not exist.
pub async fn ensure_identity(
    context: &Context,
    tx: &mut Tx,
    caller: &Caller,
    external_id: &str,
    now: Timestamp,
) -> Result<IdentityId> {
    let home = context.home_of_new();
    tx.ensure_identity(caller.workspace_id(), external_id, home.as_ref(), now).await
}

async fn ensure_identities(
    context: &Context,
    tx: &mut Tx,
    caller: &Caller,
    keys: &[ImportedKeyFields],
    now: Timestamp,
) -> Result<Vec<(String, IdentityId)>> {
    let users: BTreeSet<_> = keys.iter().filter_map(|key| key.external_id.clone()).collect();
    match users.is_empty() {
        true => Ok(Vec::new()),
        false => {
            let users: Vec<_> = users.into_iter().collect();
            let home = context.home_of_new();
            tx.ensure_identities(caller.workspace_id(), &users, home.as_ref(), now).await
        }
    }
}
