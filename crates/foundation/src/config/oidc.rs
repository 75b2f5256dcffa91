//! Settings of single sign-on: the OIDC provider, and which of its users may sign in.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use url::{Host, Url};

use super::setting::{ChoiceSetting, help_with_default};
use super::values::load_secret;
use crate::model::MemberRole;
use crate::secret::Plaintext;

/// The settings as written on the command line or in the environment.
// The argument IDs are explicit, because a command may have an argument `name` too. Settings that are an error without
// an issuer have no default value of clap, which would set them.
#[derive(Args, Clone, Default)]
pub struct OidcConfig {
    /// OpenID Connect issuer whose users may sign in to the dashboard [default: none]
    #[arg(id = "oidc-issuer", long, env = ISSUER, global = true)]
    issuer: Option<String>,
    /// Client ID of this server at the OIDC provider
    #[arg(id = "oidc-client-id", long, env = CLIENT_ID, global = true)]
    client_id: Option<String>,
    /// Client secret of this server at the OIDC provider
    #[arg(id = "oidc-client-secret", long, env = CLIENT_SECRET, global = true, hide_env_values = true)]
    client_secret: Option<String>,
    /// File that contains the client secret
    #[arg(
        id = "oidc-client-secret-file",
        long,
        env = "KEYWARD_OIDC_CLIENT_SECRET_FILE",
        global = true
    )]
    client_secret_file: Option<PathBuf>,
    #[arg(
        id = "oidc-scopes",
        long,
        env = SCOPES,
        global = true,
        help = help_with_default("Scopes to request from the OIDC provider", SCOPES_DEFAULT)
    )]
    scopes: Option<String>,
    #[arg(
        id = "oidc-name",
        long,
        env = NAME,
        global = true,
        help = help_with_default("Label of the button after \"Sign in with\"", NAME_DEFAULT)
    )]
    name: Option<String>,
    /// E-mail domains whose users may sign in, separated by commas [default: all]
    #[arg(id = "oidc-allowed-domains", long, env = ALLOWED_DOMAINS, global = true)]
    allowed_domains: Option<String>,
    #[arg(
        id = "oidc-default-role",
        long,
        env = DEFAULT_ROLE.name,
        global = true,
        value_parser = DEFAULT_ROLE,
        help = help_with_default(
            "Role in the default workspace for users who sign in for the first time without an invitation",
            DEFAULT_ROLE.default
        )
    )]
    default_role: Option<String>,
    /// Disable sign-in with passwords
    #[arg(
        id = "oidc-only",
        long,
        env = OIDC_ONLY,
        global = true,
        default_value = ONLY.default,
        value_parser = ONLY
    )]
    only: Option<String>,
}

/// The validated settings of single sign-on.
#[derive(Clone)]
pub struct OidcSettings {
    /// The issuer identifier, exactly as the provider publishes it.
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Plaintext,
    /// The scopes except `openid`, which is always requested.
    pub scopes: Vec<String>,
    pub name: String,
    /// The allowed domains, in lower case. Empty: all.
    pub allowed_domains: Vec<String>,
    /// Absent: only invited users become members.
    pub default_role: Option<MemberRole>,
    /// Whether sign-in with passwords is disabled.
    pub is_password_sign_in_disabled: bool,
}

const ISSUER: &str = "KEYWARD_OIDC_ISSUER";
const CLIENT_ID: &str = "KEYWARD_OIDC_CLIENT_ID";
const CLIENT_SECRET: &str = "KEYWARD_OIDC_CLIENT_SECRET";
const SCOPES: &str = "KEYWARD_OIDC_SCOPES";
const SCOPES_DEFAULT: &str = "openid email profile";
const NAME: &str = "KEYWARD_OIDC_NAME";
const NAME_DEFAULT: &str = "single sign-on";
const ALLOWED_DOMAINS: &str = "KEYWARD_OIDC_ALLOWED_DOMAINS";
const DEFAULT_ROLE: ChoiceSetting<Option<MemberRole>> = ChoiceSetting {
    name: "KEYWARD_OIDC_DEFAULT_ROLE",
    default: "none",
    choices: &[
        ("none", None),
        ("viewer", Some(MemberRole::Viewer)),
        ("admin", Some(MemberRole::Admin)),
    ],
};
/// The variable that disables passwords.
pub const OIDC_ONLY: &str = "KEYWARD_OIDC_ONLY";
const ONLY: ChoiceSetting<bool> = ChoiceSetting {
    name: OIDC_ONLY,
    default: "false",
    choices: &[("true", true), ("false", false)],
};

/// The maximum length of an issuer, and of a client ID.
const TEXT_LENGTH_MAX: usize = 255;
/// The maximum length of the button label, in characters.
const NAME_LENGTH_MAX: usize = 40;
const SCOPES_MAX: usize = 20;
const DOMAINS_MAX: usize = 100;

impl OidcConfig {
    /// Validates the settings. Returns `None` if single sign-on is not configured.
    pub fn validate(&self) -> Result<Option<OidcSettings>, String> {
        let secret = load_secret(
            CLIENT_SECRET,
            self.client_secret.as_ref(),
            self.client_secret_file.as_deref(),
        )?;
        let Some(issuer) = &self.issuer else { return self.require_issuer(secret.is_some()) };
        validate_issuer(issuer)?;
        if self.default_role()?.is_some() && self.allowed_domains.is_none() {
            return Err(format!(
                "{} is set and {ALLOWED_DOMAINS} is not: every user of the provider would become a member; \
                set both, or neither",
                DEFAULT_ROLE.name
            ));
        }
        Ok(Some(OidcSettings {
            issuer: issuer.clone(),
            client_id: require_printable(CLIENT_ID, self.client_id.clone())?,
            client_secret: Plaintext::from(require_printable(CLIENT_SECRET, secret)?),
            scopes: self.scopes()?,
            name: self.name()?,
            allowed_domains: self.allowed_domains()?,
            default_role: self.default_role()?,
            is_password_sign_in_disabled: ONLY.parse(self.only.as_deref())?,
        }))
    }

    /// Rejects settings that require an issuer without one.
    fn require_issuer(&self, has_secret: bool) -> Result<Option<OidcSettings>, String> {
        let others = [
            (CLIENT_ID, self.client_id.is_some()),
            (CLIENT_SECRET, has_secret),
            (SCOPES, self.scopes.is_some()),
            (NAME, self.name.is_some()),
            (ALLOWED_DOMAINS, self.allowed_domains.is_some()),
            (DEFAULT_ROLE.name, self.default_role.is_some()),
            (OIDC_ONLY, ONLY.parse(self.only.as_deref())?),
        ];
        match others.into_iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) => {
                Err(format!("{name} is set and {ISSUER} is not: set both, or neither"))
            }
            None => Ok(None),
        }
    }

    fn scopes(&self) -> Result<Vec<String>, String> {
        let text = self.scopes.as_deref().unwrap_or(SCOPES_DEFAULT);
        let scopes: Vec<_> = text.split_ascii_whitespace().map(str::to_owned).collect();
        let is_valid =
            text.chars().all(|c| c == ' ' || c.is_ascii_graphic() && !"\"\\".contains(c));
        if !is_valid || !scopes.iter().any(|scope| scope == "openid") || scopes.len() > SCOPES_MAX {
            return Err(format!(
                "{SCOPES} is {text:?}: it must be openid and up to {} others, separated by spaces",
                SCOPES_MAX - 1
            ));
        }
        Ok(scopes.into_iter().filter(|scope| scope != "openid").collect())
    }

    fn name(&self) -> Result<String, String> {
        let name = self.name.as_deref().unwrap_or(NAME_DEFAULT).trim();
        let is_valid = (1..=NAME_LENGTH_MAX).contains(&name.chars().count());
        if is_valid && !name.chars().any(char::is_control) {
            return Ok(name.to_owned());
        }
        Err(format!("{NAME} must have 1 to {NAME_LENGTH_MAX} characters"))
    }

    fn allowed_domains(&self) -> Result<Vec<String>, String> {
        let Some(text) = &self.allowed_domains else { return Ok(Vec::new()) };
        let domains: Vec<_> = text.split(',').map(|part| part.trim().to_lowercase()).collect();
        let is_wrong = |domain: &String| {
            domain.is_empty()
                || domain.len() > TEXT_LENGTH_MAX
                || domain.chars().any(|c| c.is_whitespace() || c.is_control() || "@*".contains(c))
        };
        match domains.iter().find(|domain| is_wrong(domain)) {
            Some(wrong) => Err(format!(
                "{ALLOWED_DOMAINS} has {wrong:?}: it must be a list of domains such as \
                example.com,example.org, without wildcards"
            )),
            None if domains.len() > DOMAINS_MAX => Err(format!(
                "{ALLOWED_DOMAINS} has {} domains; the maximum is {DOMAINS_MAX}",
                domains.len()
            )),
            None => Ok(domains),
        }
    }

    fn default_role(&self) -> Result<Option<MemberRole>, String> {
        DEFAULT_ROLE.parse(self.default_role.as_deref())
    }
}

/// Checks a value that is sent to the provider: it must be set and printable.
fn require_printable(name: &str, value: Option<String>) -> Result<String, String> {
    let text =
        value.ok_or_else(|| format!("{ISSUER} is set and {name} is not: set both, or neither"))?;
    match (1..=TEXT_LENGTH_MAX).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic())
    {
        true => Ok(text),
        false => Err(format!(
            "{name} must have 1 to {TEXT_LENGTH_MAX} printable ASCII characters without spaces"
        )),
    }
}

/// Checks the issuer. An attacker who can alter the provider's responses can sign in as any user, so it must use https
/// or be on the same machine.
fn validate_issuer(text: &str) -> Result<(), String> {
    let error = |what: &str| Err(format!("{ISSUER} is {text:?}: it {what}"));
    let Ok(url) = Url::parse(text) else {
        return error("must be a URL such as https://login.example.com");
    };
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => IpAddr::from(ip).is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::from(ip).is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => {}
        "http" if is_local => {}
        "http" => {
            return error(
                "must begin with https://; http:// is allowed for 127.0.0.1, [::1] and localhost",
            );
        }
        _ => return error("must begin with https://"),
    }
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return error("must not have a user, query or fragment");
    }
    if text.len() > TEXT_LENGTH_MAX {
        return Err(format!(
            "{ISSUER} has {} characters; the maximum is {TEXT_LENGTH_MAX}",
            text.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid_config() -> OidcConfig {
        OidcConfig {
            issuer: Some("https://login.example.com".into()),
            client_id: Some("keyward".into()),
            client_secret: Some("a_secret".into()),
            ..OidcConfig::default()
        }
    }

    fn error(config: &OidcConfig) -> String {
        config.validate().err().expect("an error")
    }

    #[test]
    fn check_uses_defaults_when_only_issuer_and_client_are_set() {
        let oidc = valid_config().validate().expect("valid settings").expect("single sign-on");

        assert_eq!(oidc.scopes, ["email", "profile"]);
        assert_eq!(
            (oidc.name.as_str(), oidc.is_password_sign_in_disabled),
            ("single sign-on", false)
        );
        assert!(oidc.default_role.is_none() && oidc.allowed_domains.is_empty());
        assert!(OidcConfig::default().validate().expect("valid settings").is_none());
    }

    #[test]
    fn check_requires_https_unless_issuer_is_local() {
        let with = |issuer: &str| OidcConfig { issuer: Some(issuer.into()), ..valid_config() };

        for valid in [
            "https://login.example.com/realms/a",
            "https://10.0.0.1:8443",
            "http://127.0.0.1:8080",
            "http://127.9.9.9",
            "http://[::1]:9/x",
            "http://localhost:3",
        ] {
            assert!(with(valid).validate().is_ok(), "{valid}");
        }
        for insecure in [
            "http://login.example.com",
            "http://10.0.0.1",
            "http://localhost.example.com",
            "http://128.0.0.1",
        ] {
            assert!(
                error(&with(insecure)).contains("http:// is allowed for 127.0.0.1"),
                "{insecure}"
            );
        }
        for invalid in
            ["login.example.com", "ftp://a", "https://a?b=c", "https://a#b", "https://u@a"]
        {
            assert!(error(&with(invalid)).contains("KEYWARD_OIDC_ISSUER"), "{invalid}");
        }
        let long = |length: usize| format!("https://{}", "a".repeat(length - 8 - 4) + ".com");
        assert!(error(&with(&long(256))).contains("the maximum is 255"));
    }

    #[test]
    fn check_rejects_settings_that_lack_their_counterpart() {
        for (lacking, name) in [
            (OidcConfig { client_id: None, ..valid_config() }, CLIENT_ID),
            (OidcConfig { client_secret: None, ..valid_config() }, CLIENT_SECRET),
            (OidcConfig { issuer: None, ..valid_config() }, CLIENT_ID),
            (OidcConfig { only: Some("true".into()), ..OidcConfig::default() }, OIDC_ONLY),
        ] {
            let error = error(&lacking);
            assert!(error.contains(name) && error.contains(ISSUER), "{error}");
        }
        let off = OidcConfig { only: Some("false".into()), ..OidcConfig::default() };
        assert!(off.validate().expect("valid settings").is_none());
    }

    #[test]
    fn check_names_allowed_values_when_setting_is_invalid() {
        let some = |text: &str| Some(text.to_owned());
        for (config, words) in [
            (OidcConfig { client_id: some(""), ..valid_config() }, "1 to 255"),
            (OidcConfig { client_id: Some("x".repeat(256)), ..valid_config() }, "1 to 255"),
            (OidcConfig { scopes: some("email"), ..valid_config() }, "openid"),
            (
                OidcConfig { scopes: Some("openid ".repeat(21)), ..valid_config() },
                "up to 19 others",
            ),
            (OidcConfig { name: some(" "), ..valid_config() }, "1 to 40"),
            (OidcConfig { name: Some("x".repeat(41)), ..valid_config() }, "1 to 40"),
            (OidcConfig { allowed_domains: some("a.com,"), ..valid_config() }, "\"\""),
            (OidcConfig { allowed_domains: some("@a.com"), ..valid_config() }, "\"@a.com\""),
            (
                OidcConfig { allowed_domains: Some("a.com,".repeat(100) + "b"), ..valid_config() },
                "the maximum is 100",
            ),
            (OidcConfig { default_role: some("owner"), ..valid_config() }, "none, viewer or admin"),
            (OidcConfig { only: some("on"), ..valid_config() }, "true or false"),
            (OidcConfig { default_role: some("viewer"), ..valid_config() }, ALLOWED_DOMAINS),
            (OidcConfig { default_role: some("admin"), ..valid_config() }, ALLOWED_DOMAINS),
        ] {
            assert!(error(&config).contains(words), "{}", error(&config));
        }
        for config in [
            OidcConfig { client_id: Some("x".repeat(255)), ..valid_config() },
            OidcConfig { scopes: Some("openid ".repeat(20)), ..valid_config() },
            OidcConfig { name: Some("ü".repeat(40)), ..valid_config() },
            OidcConfig { allowed_domains: Some("a.com,".repeat(99) + "B.com"), ..valid_config() },
            OidcConfig {
                default_role: some("admin"),
                allowed_domains: some("a.com"),
                ..valid_config()
            },
            OidcConfig { default_role: some("none"), ..valid_config() },
            OidcConfig { only: some("true"), ..valid_config() },
        ] {
            assert!(config.validate().is_ok());
        }
    }
}
