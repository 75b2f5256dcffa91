//! Settings of security: what callers may do, and how much.

use std::net::SocketAddr;

use clap::Args;

use super::setting::{ChoiceSetting, NumberSetting};

/// The settings as written on the command line or in the environment.
#[derive(Args, Clone, Default)]
pub struct SecurityConfig {
    /// Allow v1 verification without a root key; minimal: responses contain only validity, code and limit
    #[arg(
        long,
        env = OPEN_VERIFICATION,
        global = true,
        default_value = OPENNESS.default,
        value_parser = OPENNESS
    )]
    open_verification: Option<String>,
    /// Maximum number of unknown keys that one address may verify with v1 per minute; 0: unlimited
    #[arg(
        long,
        env = UNKNOWN_KEYS_PER_MINUTE.name,
        global = true,
        default_value = UNKNOWN_KEYS_PER_MINUTE
    )]
    unknown_keys_per_minute: Option<String>,
    /// Require the `rbac.*` permissions to assign permissions and roles when keys are created, updated or imported
    #[arg(
        long,
        env = STRICT_GRANTS.name,
        global = true,
        default_value = STRICT_GRANTS.default,
        value_parser = STRICT_GRANTS
    )]
    strict_grants: Option<String>,
    /// Maximum number of open client connections; more get 503 and are closed
    #[arg(long, env = CONNECTIONS_MAX.name, global = true, default_value = CONNECTIONS_MAX)]
    connections_max: Option<String>,
    /// Separate address and port for `/metrics`, where `/livez` and `/readyz` are served too [default: the same as everything else]
    #[arg(long, env = METRICS_LISTEN, global = true)]
    metrics_listen: Option<String>,
    /// Address and port for gateways that call over gRPC, such as `127.0.0.1:3001` [default: none]
    #[arg(long, env = GRPC_LISTEN, global = true)]
    grpc_listen: Option<String>,
    /// Contacts for reporting a vulnerability in `/.well-known/security.txt`: URIs such as
    /// `mailto:security@example.com`, separated by commas [default: none]
    #[arg(long, env = SECURITY_CONTACT, global = true)]
    security_contact: Option<String>,
    /// Time at which the security contact expires, such as `2027-06-30T00:00:00Z`
    #[arg(long, env = SECURITY_EXPIRES, global = true)]
    security_expires: Option<String>,
    /// Maximum number of live counters per workspace for ad-hoc limits, which are given with a verification
    #[arg(long, env = AD_HOC_COUNTERS.name, global = true, default_value = AD_HOC_COUNTERS)]
    ad_hoc_counters: Option<String>,
}

/// The variable that disables verification without a root key.
pub const OPEN_VERIFICATION: &str = "KEYWARD_OPEN_VERIFICATION";
const OPENNESS: ChoiceSetting<OpenVerification> = ChoiceSetting {
    name: OPEN_VERIFICATION,
    default: "on",
    choices: &[
        ("on", OpenVerification::On),
        ("minimal", OpenVerification::Minimal),
        ("off", OpenVerification::Off),
    ],
};
const UNKNOWN_KEYS_PER_MINUTE: NumberSetting = NumberSetting {
    name: "KEYWARD_UNKNOWN_KEYS_PER_MINUTE",
    default: 10_000,
    min: 0,
    max: 1_000_000_000,
};
const STRICT_GRANTS: ChoiceSetting<bool> = ChoiceSetting {
    name: "KEYWARD_STRICT_GRANTS",
    default: "off",
    choices: &[("on", true), ("off", false)],
};
const CONNECTIONS_MAX: NumberSetting =
    NumberSetting { name: "KEYWARD_CONNECTIONS_MAX", default: 10_000, min: 1, max: 1_000_000 };
const METRICS_LISTEN: &str = "KEYWARD_METRICS_LISTEN";
const GRPC_LISTEN: &str = "KEYWARD_GRPC_LISTEN";
const SECURITY_CONTACT: &str = "KEYWARD_SECURITY_CONTACT";
const SECURITY_EXPIRES: &str = "KEYWARD_SECURITY_EXPIRES";
/// The maximum number of security contacts, and the maximum length of each.
const CONTACTS_MAX: usize = 10;
const CONTACT_LENGTH_MAX: usize = 255;
const AD_HOC_COUNTERS: NumberSetting = NumberSetting {
    name: "KEYWARD_AD_HOC_COUNTERS",
    default: 1_000_000,
    min: 1,
    max: 1_000_000_000,
};

/// Whether v1 verifies keys for callers without a root key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenVerification {
    /// Enabled; the reply describes the key.
    On,
    /// Enabled; the reply contains only the result and the limit.
    Minimal,
    Off,
}

/// The content of `security.txt`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityContact {
    pub uris: Vec<String>,
    /// The time of expiry in the format of RFC 3339.
    pub expires: String,
}

/// The validated settings of security.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    pub open_verification: OpenVerification,
    /// 0: unlimited.
    pub unknown_keys_per_minute: u64,
    /// Whether assigning permissions or roles to a key requires the permission to do so, in every operation.
    pub strict_grants: bool,
    pub connections_max: usize,
    /// Absent: metrics are served on the main address.
    pub metrics_listen: Option<SocketAddr>,
    /// The listener of gateways that call over gRPC. Absent: there is none.
    pub grpc_listen: Option<SocketAddr>,
    pub contact: Option<SecurityContact>,
    /// The maximum number of live counters of ad-hoc limits in a workspace.
    pub ad_hoc_counters_max: u64,
}

impl SecurityConfig {
    pub fn validate(&self) -> Result<Security, String> {
        let unknown_keys = self.unknown_keys_per_minute.as_deref();
        Ok(Security {
            open_verification: OPENNESS.parse(self.open_verification.as_deref())?,
            unknown_keys_per_minute: UNKNOWN_KEYS_PER_MINUTE.parse(unknown_keys)?,
            strict_grants: STRICT_GRANTS.parse(self.strict_grants.as_deref())?,
            connections_max: CONNECTIONS_MAX.parse_usize(self.connections_max.as_deref())?,
            metrics_listen: self.metrics_listen()?,
            grpc_listen: parse_address(GRPC_LISTEN, self.grpc_listen.as_deref())?,
            contact: self.contact()?,
            ad_hoc_counters_max: AD_HOC_COUNTERS.parse(self.ad_hoc_counters.as_deref())?,
        })
    }

    /// Returns only the listening address for metrics.
    pub fn metrics_listen(&self) -> Result<Option<SocketAddr>, String> {
        parse_address(METRICS_LISTEN, self.metrics_listen.as_deref())
    }

    fn contact(&self) -> Result<Option<SecurityContact>, String> {
        let (contact, expires) = match (&self.security_contact, &self.security_expires) {
            (None, None) => return Ok(None),
            (Some(contact), Some(expires)) => (contact, expires),
            (Some(_), None) => {
                return Err(format!(
                    "{SECURITY_CONTACT} is set and {SECURITY_EXPIRES} is not: set both, or neither"
                ));
            }
            (None, Some(_)) => {
                return Err(format!(
                    "{SECURITY_EXPIRES} is set and {SECURITY_CONTACT} is not: set both, or neither"
                ));
            }
        };
        let uris: Vec<_> = contact.split(',').map(|uri| uri.trim().to_owned()).collect();
        if uris.len() > CONTACTS_MAX {
            return Err(format!(
                "{SECURITY_CONTACT} has {} URIs; the maximum is {CONTACTS_MAX}",
                uris.len()
            ));
        }
        if let Some(wrong) = uris.iter().find(|uri| !is_contact(uri)) {
            return Err(format!(
                "{SECURITY_CONTACT} has {wrong:?}: it must be a list of URIs that begin with mailto:, https:// or \
                tel:, of at most {CONTACT_LENGTH_MAX} characters each"
            ));
        }
        let at: jiff::Timestamp = expires.parse().map_err(|_| {
            format!(
                "{SECURITY_EXPIRES} is {expires:?}: it must be a time such as 2027-06-30T00:00:00Z"
            )
        })?;
        Ok(Some(SecurityContact { uris, expires: at.to_string() }))
    }
}

/// Returns whether RFC 9116 allows the URI as a contact.
fn is_contact(uri: &str) -> bool {
    let is_known = ["mailto:", "https://", "tel:"]
        .iter()
        .any(|scheme| uri.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
    is_known && uri.len() <= CONTACT_LENGTH_MAX && uri.chars().all(|c| c.is_ascii_graphic())
}

fn parse_address(variable: &str, text: Option<&str>) -> Result<Option<SocketAddr>, String> {
    let Some(text) = text else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        format!("{variable} is {text:?}: it must be an address and a port such as 127.0.0.1:9100")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contact(contact: &str, expires: &str) -> SecurityConfig {
        let (security_contact, security_expires) = (Some(contact.into()), Some(expires.into()));
        SecurityConfig { security_contact, security_expires, ..SecurityConfig::default() }
    }

    #[test]
    fn defaults_are_open_and_bounded() {
        let security = SecurityConfig::default().validate().expect("valid settings");

        assert_eq!((security.connections_max, security.ad_hoc_counters_max), (10_000, 1_000_000));
        assert_eq!(
            (security.strict_grants, security.open_verification),
            (false, OpenVerification::On)
        );
        assert_eq!((security.metrics_listen, security.contact), (None, None));
    }

    #[test]
    fn check_names_allowed_values_when_setting_is_invalid() {
        let none = SecurityConfig::default;
        let moment = "2027-06-30T00:00:00Z";
        for (config, words) in [
            (
                SecurityConfig { open_verification: Some("yes".into()), ..none() },
                "on, minimal or off",
            ),
            (SecurityConfig { strict_grants: Some("true".into()), ..none() }, "on or off"),
            (SecurityConfig { connections_max: Some("0".into()), ..none() }, "1 to 1000000"),
            (SecurityConfig { connections_max: Some("1000001".into()), ..none() }, "1 to 1000000"),
            (SecurityConfig { ad_hoc_counters: Some("0".into()), ..none() }, "1 to 1000000000"),
            (SecurityConfig { metrics_listen: Some("9100".into()), ..none() }, "127.0.0.1:9100"),
            (SecurityConfig { security_contact: Some("tel:1".into()), ..none() }, SECURITY_EXPIRES),
            (SecurityConfig { security_expires: Some(moment.into()), ..none() }, SECURITY_CONTACT),
            (contact("security@example.com", moment), "mailto:"),
            (contact("mailto:", moment), "mailto:"),
            (contact("mailto:a@b,", moment), "mailto:"),
            (contact("https://a b", moment), "mailto:"),
            (contact("https://a\nContact: b", moment), "mailto:"),
            (contact(&format!("tel:{}", "1".repeat(252)), moment), "255"),
            (contact(&["tel:1"; 11].join(","), moment), "the maximum is 10"),
            (contact("tel:1", "2027-06-30"), "2027-06-30T00:00:00Z"),
        ] {
            let error = config.validate().expect_err("an error");
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn check_accepts_values_up_to_their_maximum() {
        let uris = ["https://example.com/report", "mailto:security@example.com"].join(", ");
        let checked =
            contact(&uris, "2027-06-30T02:00:00+02:00").validate().expect("valid settings");
        let longest = format!("tel:{}", "1".repeat(251));
        let most = contact(&[longest.as_str(); 10].join(","), "2027-06-30T00:00:00Z");

        let contact = checked.contact.expect("a contact");
        assert_eq!(contact.uris.len(), 2);
        assert_eq!(contact.expires, "2027-06-30T00:00:00Z");
        assert!(most.validate().is_ok());
        let largest = SecurityConfig { connections_max: Some("1000000".into()), ..most };
        assert_eq!(largest.validate().expect("valid settings").connections_max, 1_000_000);
    }
}
