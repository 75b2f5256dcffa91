//! Defines the names of errors on the wire, and their statuses. A name is part of the contract: codes may be added, but
//! never renamed or reused.

macro_rules! codes {
    ($($name:ident $wire:literal $status:literal $title:literal,)*) => {
        /// The name of an error on the wire. Append-only.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($name,)* }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// Returns the last segment of the error's `type`, and of its page.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $wire,)* }
            }

            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    InvalidInput "invalid_input" 400 "Bad Request",
    KeyMalformed "key_malformed" 400 "Bad Request",
    PermissionsQuerySyntaxError "permissions_query_syntax_error" 400 "Bad Request",
    InvalidAnalyticsQuery "invalid_analytics_query" 400 "Bad Request",
    InvalidAnalyticsTable "invalid_analytics_table" 400 "Bad Request",
    InvalidAnalyticsFunction "invalid_analytics_function" 400 "Bad Request",
    InvalidAnalyticsQueryType "invalid_analytics_query_type" 400 "Bad Request",
    QueryRangeExceedsRetention "query_range_exceeds_retention" 400 "Bad Request",
    AuthenticationMissing "authentication_missing" 401 "Unauthorized",
    AuthenticationMalformed "authentication_malformed" 401 "Unauthorized",
    RootKeyNotFound "root_key_not_found" 401 "Unauthorized",
    RootKeyRevoked "root_key_revoked" 401 "Unauthorized",
    RootKeyExpired "root_key_expired" 401 "Unauthorized",
    InsufficientPermissions "insufficient_permissions" 403 "Forbidden",
    WorkspaceDisabled "workspace_disabled" 403 "Forbidden",
    GatewayRefused "gateway_refused" 403 "Forbidden",
    OperationSwitchedOff "operation_switched_off" 403 "Forbidden",
    NotFound "not_found" 404 "Not Found",
    ApiNotFound "api_not_found" 404 "Not Found",
    KeyNotFound "key_not_found" 404 "Not Found",
    IdentityNotFound "identity_not_found" 404 "Not Found",
    PermissionNotFound "permission_not_found" 404 "Not Found",
    RoleNotFound "role_not_found" 404 "Not Found",
    WorkspaceNotFound "workspace_not_found" 404 "Not Found",
    MigrationNotFound "migration_not_found" 404 "Not Found",
    RatelimitNamespaceNotFound "ratelimit_namespace_not_found" 404 "Not Found",
    RatelimitOverrideNotFound "ratelimit_override_not_found" 404 "Not Found",
    GatewayPolicyNotFound "gateway_policy_not_found" 404 "Not Found",
    MethodNotAllowed "method_not_allowed" 405 "Method Not Allowed",
    RequestTimeout "request_timeout" 408 "Request Timeout",
    IdentityAlreadyExists "identity_already_exists" 409 "Conflicting Resource",
    PermissionAlreadyExists "permission_already_exists" 409 "Conflicting Resource",
    RoleAlreadyExists "role_already_exists" 409 "Conflicting Resource",
    RatelimitAlreadyExists "ratelimit_already_exists" 409 "Conflicting Resource",
    KeyAlreadyExists "key_already_exists" 409 "Conflicting Resource",
    GatewayPolicyAlreadyExists "gateway_policy_already_exists" 409 "Conflicting Resource",
    IdempotencyKeyInUse "idempotency_key_in_use" 409 "Conflicting Resource",
    RatelimitNamespaceGone "ratelimit_namespace_gone" 410 "Resource Gone",
    PreconditionFailed "precondition_failed" 412 "Precondition Failed",
    ProtectedResource "protected_resource" 412 "Resource is protected",
    RequestBodyTooLarge "request_body_too_large" 413 "Request Entity Too Large",
    QueryExecutionTimeout "query_execution_timeout" 422 "Unprocessable Entity",
    QueryMemoryLimitExceeded "query_memory_limit_exceeded" 422 "Unprocessable Entity",
    QueryRowsLimitExceeded "query_rows_limit_exceeded" 422 "Unprocessable Entity",
    TooManyRequests "too_many_requests" 429 "Too Many Requests",
    QueryQuotaExceeded "query_quota_exceeded" 429 "Too Many Requests",
    UnexpectedError "unexpected_error" 500 "Internal Server Error",
    ServiceUnavailable "service_unavailable" 503 "Service Unavailable",
}
