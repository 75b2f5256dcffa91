//! Creates the resources that the examples of the documentation name.

use api::example;
use domain::root_keys;
use foundation::error::Result;
use foundation::id::{
    ApiId, GatewayPolicyId, IdentityId, KeyId, MigrationId, NamespaceId, OverrideId, PermissionId,
    RoleId,
};
use foundation::model::{
    Algorithm, Api, ApiSettings, GatewayPolicy, GatewayPolicyConfig, Identity, Key, KeySource,
    Migration, Namespace, OutagePolicy, Override, Permission, Role,
};
use foundation::secret::KeyHash;
use store::Tx;

use super::{Keyward, NOON};

impl Keyward {
    /// Creates everything that the examples of the documentation refer to.
    pub async fn create_examples(&self) {
        self.app.analytics.event_store().migrate().await.expect("the schema of events is migrated");
        let workspace_id = root_keys::default_workspace();
        let api = Api {
            id: ApiId::from(example::API),
            workspace_id: workspace_id.clone(),
            name: "payments".into(),
            settings: ApiSettings::default(),
            home: None,
            created_at: NOON,
            deleted_at: None,
        };
        let key = example_key(&api);
        let namespace = Namespace {
            id: NamespaceId::from(example::NAMESPACE_ID),
            workspace_id: workspace_id.clone(),
            name: example::NAMESPACE.into(),
            outage_policy: OutagePolicy::Local,
            home: None,
            created_at: NOON,
            deleted_at: None,
        };
        let known = Override {
            is_approximate: false,
            id: OverrideId::from(example::OVERRIDE_ID),
            identifier: example::OVERRIDE.into(),
            limit: 100,
            duration_ms: 60_000,
            expires_at: None,
            created_at: NOON,
            updated_at: None,
        };
        let mut tx = self.store().begin().await.expect("a transaction");
        let namespaces = std::slice::from_ref(&namespace);
        tx.insert_namespaces(&workspace_id, namespaces).await.expect("the namespace");
        tx.upsert_override(&namespace.id, &known).await.expect("the override");
        tx.insert_api(&api).await.expect("the API");
        tx.insert_key(&key).await.expect("the key");
        create_roles(&mut tx, &key).await.expect("roles");
        let migration = Migration {
            id: MigrationId::from(example::MIGRATION_ID),
            workspace_id: workspace_id.clone(),
            name: None,
            algorithm: Algorithm::Sha256,
            created_at: NOON,
        };
        tx.insert_migration(&migration).await.expect("the migration");
        let identity = Identity {
            id: IdentityId::from(example::IDENTITY_ID),
            external_id: example::EXTERNAL_ID.into(),
            meta: None,
            ratelimits: Vec::new(),
            home: None,
        };
        tx.insert_identity(&workspace_id, &identity, NOON).await.expect("the identity");
        let policy = GatewayPolicy {
            id: GatewayPolicyId::from(example::GATEWAY_POLICY),
            workspace_id: workspace_id.clone(),
            name: "edge".into(),
            config: GatewayPolicyConfig {
                api_ids: vec![api.id.clone()],
                key_from: KeySource::defaults(),
                ..GatewayPolicyConfig::default()
            },
            created_at: NOON,
            updated_at: None,
        };
        tx.insert_gateway_policy(&policy, "hash").await.expect("the gateway policy");
        self.app.context.commit(tx).await.expect("a commit");
    }
}

/// Returns the key of the examples.
fn example_key(api: &Api) -> Key {
    Key {
        owner_id: None,
        environment: None,
        id: KeyId::from(example::KEY_ID),
        workspace_id: api.workspace_id.clone(),
        api_id: api.id.clone(),
        hash: KeyHash::compute(example::KEY).to_base64(),
        start: "prod_5YzK".into(),
        prefix: Some("prod".into()),
        byte_length: 16,
        name: None,
        meta: None,
        identity_id: None,
        is_enabled: true,
        expires_at: None,
        credits: None,
        created_at: NOON,
        updated_at: None,
    }
}

/// Creates the permission and the roles of the examples, and assigns them to the key.
async fn create_roles(tx: &mut Tx, key: &Key) -> Result<()> {
    let workspace_id = &key.workspace_id;
    let permission = Permission {
        id: PermissionId::from(example::PERMISSION_ID),
        slug: example::PERMISSION.into(),
        name: "Read documents".into(),
        description: None,
    };
    let role = Role {
        id: RoleId::from(example::ROLE_ID),
        name: example::ROLE.into(),
        description: None,
        permissions: vec![permission.clone()],
    };
    let spare = Role {
        id: RoleId::random(),
        name: example::SPARE_ROLE.into(),
        description: None,
        permissions: Vec::new(),
    };
    tx.insert_permissions(workspace_id, std::slice::from_ref(&permission), NOON).await?;
    tx.insert_role(workspace_id, &role, NOON).await?;
    tx.insert_role(workspace_id, &spare, NOON).await?;
    tx.set_key_roles(&key.id, &[role.id]).await?;
    tx.set_key_permissions(&key.id, &[permission.id]).await
}
