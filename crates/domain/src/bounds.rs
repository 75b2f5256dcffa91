//! The bounds of fields that several interfaces share: the request types of the API, the forms of the dashboard and the
//! commands of the command line.
//!
//! Lengths are in characters. A text without a minimum here has at least one character. Version 1 of the API has other
//! bounds for some fields; they are in its request types.

use foundation::clock::DAY_MS;

/// The name of an API.
pub const API_NAME_MIN: usize = 3;
pub const API_NAME_MAX: usize = 256;

/// The name of a workspace.
pub const WORKSPACE_NAME_MAX: usize = 256;

/// The name of a key.
pub const KEY_NAME_MAX: usize = 255;
/// A full key that is imported. Version 2 verifies no longer one.
pub const KEY_CHARS_MAX: usize = 512;
/// The prefix of a key, without the underscore after it.
pub const KEY_PREFIX_MAX: usize = 16;
/// The number of random bytes in a key.
pub const KEY_BYTES_MIN: i64 = 16;
pub const KEY_BYTES_MAX: i64 = 255;
/// The number of roles that a key has.
pub const KEY_ROLES_MAX: usize = 100;
/// An expiry time in Unix milliseconds: the start of the year 2100.
pub const EXPIRES_MAX_MS: i64 = 4_102_444_800_000;
/// The day of the month of a refill.
pub const REFILL_DAY_MAX: i64 = 31;
/// The number of keys that one request imports.
pub const IMPORTED_KEYS_MAX: usize = 10_000;

/// The customer's own id of an end user.
pub const EXTERNAL_ID_MAX: usize = 255;

/// The name of a permission.
pub const PERMISSION_NAME_MAX: usize = 512;
/// The slug of a permission.
pub const SLUG_MAX: usize = 128;
/// The number of permissions that a key has directly, or that a role has.
pub const PERMISSIONS_MAX: usize = 1_000;
/// The name of a role.
pub const ROLE_NAME_MAX: usize = 128;
/// The description of a permission or role, which may be empty.
pub const DESCRIPTION_MAX: usize = 512;

/// The name of a rate limit of a key or an identity.
pub const RATELIMIT_NAME_MIN: usize = 3;
pub const RATELIMIT_NAME_MAX: usize = 128;
/// The number of rate limits of a key or an identity.
pub const RATELIMITS_MAX: usize = 50;
/// The window of a rate limit in milliseconds.
pub const DURATION_MIN_MS: i64 = 1_000;
/// The window of a check in a namespace in milliseconds: 30 days.
pub const CHECK_DURATION_MAX_MS: i64 = 30 * DAY_MS;
/// An identifier in a namespace, or the name of a namespace.
pub const IDENTIFIER_MAX: usize = 512;
