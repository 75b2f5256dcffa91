//! Ids and names in the examples of the documentation. The tests create exactly these resources, which proves that
//! each published example is accepted.

pub const API: &str = "api_3XkTzQ9vLm2RwY7sNbC5dF";
pub const KEY_ID: &str = "key_8HnVpR4tJx6WqK2mZcB9gL";
pub const KEY: &str = "prod_5YzKwTnQ8rXv3mJbPcLgHd";
pub const PERMISSION: &str = "documents.read";
pub const PERMISSION_ID: &str = "perm_2VwTcMs9KxRb6YqLp4HnZd";
pub const ROLE: &str = "editor";
pub const ROLE_ID: &str = "role_7LpWbNz4YcQv9HtRk2XsJm";
pub const IDENTITY_ID: &str = "id_4QmZsVk8YwTn2CxHpRb6Jd";
pub const EXTERNAL_ID: &str = "user_1234";
pub const MIGRATION_ID: &str = "mig_2TqXfMd7WkYz5RvBnLc9Hg";
/// A role that no key has.
pub const SPARE_ROLE: &str = "auditor";
pub const NAMESPACE_ID: &str = "rlns_6RtWqB3xKz8NvYpJ4cLmHd";
pub const NAMESPACE: &str = "email.send";
pub const GATEWAY_POLICY: &str = "gwp_5NdYrQ8mKx3WzTvJ6cLpHb";
pub const OVERRIDE_ID: &str = "rlor_9GcVhT5mQx2SwPnK7bZrLd";
pub const OVERRIDE: &str = "user_*";
