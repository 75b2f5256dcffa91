//! The integration tests, except those that depend on real time, which are in `processes`.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod support;

mod admission;
mod background;
mod cli;
mod context;
mod dashboard;
mod debits;
mod dependencies;
mod documentation;
mod events {
    mod buffer;
    mod clickhouse_delivery;
    mod key_latencies;
    mod not_found;
    mod ratelimits;
    mod reads;
    mod retention;
    mod rollups;
    mod storage;
    mod verifications;
}
mod gateways;
mod invalidation;
mod key_reads;
mod layers;
mod leases;
mod limiter;
mod lost_connections;
mod metrics;
mod monitoring;
mod names;
mod no_store;
mod oauth2 {
    mod introspect;
    mod wire;
}
mod programs;
mod refill;
mod rules;
#[path = "processes/servers.rs"]
#[expect(dead_code, reason = "another test binary uses the rest")]
mod servers;
mod sql_queries;
mod stack;
mod store;
mod table;
mod top_ups;
mod v1 {
    mod approximate;
    mod liveness;
    mod parity;
    mod security;
    mod table;
    mod wire;

    mod analytics {
        mod get_verifications;
    }
    mod apis {
        mod create_api;
        mod delete_api;
        mod delete_keys;
        mod list_keys;
    }
    mod identities {
        mod create_identity;
        mod delete_identity;
        mod get_identity;
        mod list_identities;
        mod update_identity;
    }
    mod keys {
        mod create_key;
        mod delete_key;
        mod get_key;
        mod get_verifications;
        mod roles_and_permissions;
        mod update_key;
        mod update_remaining;
        mod verify_key;
        mod whoami;
    }
    mod migrations {
        mod create_keys;
        mod enqueue_keys;
    }
    mod permissions {
        mod create_permission;
        mod create_role;
        mod list_permissions;
    }
    mod ratelimits {
        mod delete_override;
        mod get_override;
        mod limit;
        mod list_overrides;
        mod set_override;
    }
}
mod v2 {
    mod allowed_networks;
    mod authentication;
    mod idempotency;
    mod paths;
    mod ratelimit_headers;
    mod recoverable_keys;
    mod strict_grants;

    mod analytics {
        mod get_ratelimits;
        mod get_verifications;
    }
    mod apis {
        mod create_api;
        mod list_keys;
    }
    mod gateways;
    mod identities {
        mod create_identity;
        mod delete_identity;
        mod list_identities;
        mod update_identity;
    }
    mod keys {
        mod create_key;
        mod delete_key;
        mod get_key;
        mod migrate_keys;
        mod reroll_key;
        mod roles_and_permissions;
        mod update_credits;
        mod update_key;
        mod verify_key;
        mod whoami;
    }
    mod permissions {
        mod create_permission;
        mod create_role;
        mod list_permissions;
        mod list_roles;
        mod set_role_permissions;
    }
    mod ratelimit {
        mod delete_override;
        mod get_override;
        mod limit;
        mod list_overrides;
        mod multi_limit;
        mod set_override;
    }
}
