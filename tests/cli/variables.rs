//! Tests that each setting changes what it names, and nothing else.

use std::collections::BTreeMap;
use std::path::PathBuf;

use foundation::config::{Deployment, OidcSettings, RedisTls, RegionSettings, Security, Settings};
use foundation::model::Retention;
use foundation::tls::server::CertificateFiles;
use foundation::vault::MasterKey;

use rcgen::KeyPair;

use super::settings::{OTHERS, list_flags, validate};
use crate::support::certificates::Authority;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const PREVIOUS_KEY: &str = "Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";

const AUTHORITY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/settings_ca.pem");
const OTHER_AUTHORITY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/settings_other_ca.pem");
const CERTIFICATE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/settings_cert.pem");
const OTHER_CERTIFICATE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/settings_other_cert.pem");
const PRIVATE_KEY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/settings_key.pem");
const OTHER_PRIVATE_KEY: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/settings_other_key.pem");

/// Writes two authorities, two certificates of one key, and two files that contain this key.
fn write_certificates() {
    let authority = Authority::create(AUTHORITY.into());
    Authority::create(OTHER_AUTHORITY.into());
    let key = KeyPair::generate().unwrap();
    std::fs::write(CERTIFICATE, authority.sign("a.example.com", &key)).unwrap();
    std::fs::write(OTHER_CERTIFICATE, authority.sign("b.example.com", &key)).unwrap();
    std::fs::write(PRIVATE_KEY, key.serialize_pem()).unwrap();
    std::fs::write(OTHER_PRIVATE_KEY, format!("Another file\n{}", key.serialize_pem())).unwrap();
}

/// Returns the path of the file with this content. Empty: there is no content.
fn path_of(content: Option<&Vec<u8>>) -> String {
    let files = [
        AUTHORITY,
        OTHER_AUTHORITY,
        CERTIFICATE,
        OTHER_CERTIFICATE,
        PRIVATE_KEY,
        OTHER_PRIVATE_KEY,
    ];
    let Some(content) = content else { return String::new() };
    let path = files.into_iter().find(|path| std::fs::read(path).unwrap() == *content);
    path.expect("one of the files").to_owned()
}

/// A flag, a value that is not its default, and how [`texts_of`] renders what the value sets.
const VALUES: [(&str, &str, &str); 55] = [
    ("ad-hoc-counters", "1001", "1001"),
    ("cache-bytes", "2000002", "2000002"),
    ("cached-keys", "1002", "true"),
    ("clickhouse-url", "http://localhost:8123/a", "http://localhost:8123/a"),
    ("connections-max", "1003", "1003"),
    ("data-dir", "/a", "/a"),
    ("database-analytics-url", "postgres://localhost/b", "postgres://localhost/b"),
    ("database-connections", "104", "104"),
    ("database-grace-seconds", "1005", "1005"),
    ("database-read-url", "postgres://localhost/d", "postgres://localhost/d"),
    ("database-url", "postgres://localhost/c", "postgres://localhost/c"),
    ("docs-url", "https://docs.example.com", "https://docs.example.com"),
    ("drain-seconds", "1006", "1006"),
    ("events-bytes", "1048577", "Some(1048577)"),
    ("events-reserve-bytes", "1007", "1007"),
    ("events-waiting", "1008", "1008"),
    ("events-waiting-bytes", "1048578", "1048578"),
    ("grpc-listen", "127.0.0.1:2", "Some(127.0.0.1:2)"),
    ("keys-on-outage", "closed", "Closed"),
    ("lease-idle-seconds", "1009", "1009"),
    ("listen", "127.0.0.1:1", "127.0.0.1:1"),
    ("log", "trace", "trace"),
    ("log-format", "json", "Json"),
    ("master-key", KEY, KEY),
    ("master-key-previous", PREVIOUS_KEY, PREVIOUS_KEY),
    ("metrics-listen", "127.0.0.1:2", "Some(127.0.0.1:2)"),
    ("oidc-allowed-domains", "a.example.com", "a.example.com"),
    ("oidc-client-id", "a_client", "a_client"),
    ("oidc-client-secret", "another_secret", "another_secret"),
    ("oidc-default-role", "viewer", "Some(Viewer)"),
    ("oidc-issuer", "https://a.example.com", "https://a.example.com"),
    ("oidc-name", "the house login", "the house login"),
    ("oidc-only", "true", "true"),
    ("oidc-scopes", "openid groups", "groups"),
    ("open-verification", "minimal", "Minimal"),
    ("public-url", "https://keys.example.com", "https://keys.example.com"),
    ("ratelimit-headers", "draft", "Draft"),
    ("ratelimits-kept", "raw=1,minute=2,hour=3,day=4,month=5", "1 2 3 4 5"),
    ("redis-prefix", "a:", "a:"),
    ("redis-timeout-ms", "1010", "1010"),
    ("redis-tls-ca", OTHER_AUTHORITY, OTHER_AUTHORITY),
    ("redis-tls-cert", OTHER_CERTIFICATE, OTHER_CERTIFICATE),
    ("redis-tls-key", OTHER_PRIVATE_KEY, OTHER_PRIVATE_KEY),
    ("redis-url", "redis://localhost/1", "redis://localhost/1"),
    ("region", "eu", "eu"),
    ("regions", "eu=redis://a,us=redis://b", "eu us; 1=redis://b"),
    ("root-key", "a_root_key_of_an_operator", "a_root_key_of_an_operator"),
    ("security-contact", "tel:2", "tel:2"),
    ("security-expires", "2028-06-30T00:00:00Z", "2028-06-30T00:00:00Z"),
    ("strict-grants", "on", "true"),
    ("tls-cert", OTHER_CERTIFICATE, OTHER_CERTIFICATE),
    ("tls-key", OTHER_PRIVATE_KEY, OTHER_PRIVATE_KEY),
    ("trusted-proxies", "10.0.0.0/8", "true"),
    ("unknown-keys-per-minute", "1011", "1011"),
    ("verifications-kept", "raw=6,minute=7,hour=8,day=9,month=10", "6 7 8 9 10"),
];

fn regions_text(regions: &RegionSettings) -> String {
    let others = regions.others.iter().map(|(position, url)| format!("{position}={url}"));
    format!("{}; {}", regions.names.join(" "), others.collect::<Vec<_>>().join(" "))
}

/// Renders what each flag has set.
fn texts_of(settings: &Settings) -> BTreeMap<&'static str, String> {
    let (mut data_dir, mut database, mut redis) = Default::default();
    match &settings.deployment {
        Deployment::Embedded { data_dir: given } => data_dir = given.display().to_string(),
        Deployment::Replica { database_url, redis_url } => {
            (database, redis) = (database_url.clone(), redis_url.clone());
        }
    }
    let days = |days: &Retention| {
        let Retention { raw_days, minute_days, hour_days, day_days, month_days } = days;
        format!("{raw_days} {minute_days} {hour_days} {day_days} {month_days}")
    };
    let exposed = |key: Option<&MasterKey>| key.map(MasterKey::expose).unwrap_or_default();
    let keys = settings.master_keys.as_ref();
    let proxy = "10.1.2.3".parse().unwrap();
    let mut texts = BTreeMap::from([
        ("cache-bytes", settings.cache_bytes_max.to_string()),
        ("cached-keys", settings.has_cached_keys.to_string()),
        (
            "clickhouse-url",
            settings.clickhouse_url.as_ref().map(<_>::to_string).unwrap_or_default(),
        ),
        ("data-dir", data_dir),
        ("database-analytics-url", settings.analytics_url.clone().unwrap_or_default()),
        ("database-connections", settings.database_connections_max.to_string()),
        ("database-grace-seconds", settings.database_grace_seconds.to_string()),
        ("database-read-url", settings.database_read_url.clone().unwrap_or_default()),
        ("database-url", database),
        ("docs-url", settings.docs_url.clone()),
        ("drain-seconds", settings.drain_seconds.to_string()),
        ("events-bytes", format!("{:?}", settings.events_max_bytes)),
        ("events-reserve-bytes", settings.events_reserve_bytes.to_string()),
        ("events-waiting", settings.events_waiting_max.to_string()),
        ("events-waiting-bytes", settings.events_waiting_bytes_max.to_string()),
        ("keys-on-outage", format!("{:?}", settings.keys_outage_policy)),
        ("lease-idle-seconds", settings.lease_idle_seconds.to_string()),
        ("listen", settings.listen.to_string()),
        ("log", settings.log.clone()),
        ("log-format", format!("{:?}", settings.log_format)),
        ("master-key", exposed(keys.map(|keys| &keys.current_key))),
        ("master-key-previous", exposed(keys.and_then(|keys| keys.previous_key.as_ref()))),
        ("public-url", settings.public_url.clone()),
        ("ratelimit-headers", format!("{:?}", settings.ratelimit_headers)),
        ("ratelimits-kept", days(&settings.retention.ratelimits)),
        ("redis-prefix", settings.redis_prefix.clone()),
        ("redis-timeout-ms", settings.redis_timeout_ms.to_string()),
        ("redis-url", redis),
        ("region", settings.region.clone()),
        ("regions", settings.regions.as_ref().map(regions_text).unwrap_or_default()),
        (
            "root-key",
            settings.root_key.as_ref().map(|key| key.expose().to_owned()).unwrap_or_default(),
        ),
        (
            "trusted-proxies",
            settings.trusted_proxies.as_ref().is_some_and(|of| of.contains(proxy)).to_string(),
        ),
        ("verifications-kept", days(&settings.retention.verifications)),
    ]);
    texts.extend(texts_of_security(&settings.security));
    texts.extend(texts_of_tls(&settings.redis_tls));
    texts.extend(texts_of_server_tls(settings.server_tls.as_ref()));
    texts.extend(texts_of_oidc(settings.oidc.as_ref().unwrap()));
    texts
}

fn texts_of_security(security: &Security) -> [(&'static str, String); 9] {
    let contact = security.contact.as_ref().unwrap();
    [
        ("ad-hoc-counters", security.ad_hoc_counters_max.to_string()),
        ("connections-max", security.connections_max.to_string()),
        ("grpc-listen", format!("{:?}", security.grpc_listen)),
        ("metrics-listen", format!("{:?}", security.metrics_listen)),
        ("open-verification", format!("{:?}", security.open_verification)),
        ("security-contact", contact.uris.join(",")),
        ("security-expires", contact.expires.clone()),
        ("strict-grants", security.strict_grants.to_string()),
        ("unknown-keys-per-minute", security.unknown_keys_per_minute.to_string()),
    ]
}

fn texts_of_tls(tls: &RedisTls) -> [(&'static str, String); 3] {
    let client = tls.client.as_ref();
    [
        ("redis-tls-ca", path_of(tls.authority.as_ref())),
        ("redis-tls-cert", path_of(client.map(|client| &client.certificate))),
        ("redis-tls-key", path_of(client.map(|client| &client.key))),
    ]
}

fn texts_of_server_tls(files: Option<&CertificateFiles>) -> [(&'static str, String); 2] {
    let text = |path: &PathBuf| path.display().to_string();
    [
        ("tls-cert", files.map(|files| text(&files.certificate)).unwrap_or_default()),
        ("tls-key", files.map(|files| text(&files.key)).unwrap_or_default()),
    ]
}

fn texts_of_oidc(oidc: &OidcSettings) -> [(&'static str, String); 8] {
    [
        ("oidc-allowed-domains", oidc.allowed_domains.join(",")),
        ("oidc-client-id", oidc.client_id.clone()),
        ("oidc-client-secret", oidc.client_secret.expose().to_owned()),
        ("oidc-default-role", format!("{:?}", oidc.default_role)),
        ("oidc-issuer", oidc.issuer.clone()),
        ("oidc-name", oidc.name.clone()),
        ("oidc-only", oidc.is_password_sign_in_disabled.to_string()),
        ("oidc-scopes", oidc.scopes.join(" ")),
    ]
}

/// Returns valid settings, which others require; without a database for the settings of an embedded server, and with a
/// master key for the previous one.
fn required_by(flag: &str) -> Vec<(&'static str, &'static str)> {
    let mut required: Vec<_> = OTHERS.to_vec();
    match flag {
        "data-dir" => required.retain(|(other, _)| !other.ends_with("-url")),
        "master-key-previous" => required.push(("master-key", KEY)),
        "oidc-default-role" => required.push(("oidc-allowed-domains", "b.example.com")),
        "redis-tls-ca" | "redis-tls-cert" | "redis-tls-key" => {
            required.retain(|(other, _)| *other != "redis-url");
            required.extend([
                ("redis-url", "rediss://localhost"),
                ("redis-tls-ca", AUTHORITY),
                ("redis-tls-cert", CERTIFICATE),
                ("redis-tls-key", PRIVATE_KEY),
            ]);
        }
        "tls-cert" | "tls-key" => {
            required.extend([("tls-cert", CERTIFICATE), ("tls-key", PRIVATE_KEY)]);
        }
        "regions" => required.push(("region", "eu")),
        // The defaults of the public URLs are this address.
        "listen" => required.extend([
            ("docs-url", "https://b.example.com"),
            ("public-url", "https://b.example.com"),
        ]),
        _ => {}
    }
    required
}

#[test]
fn each_setting_sets_what_it_names_and_nothing_else() {
    let flags: Vec<_> = VALUES.iter().map(|(flag, ..)| (*flag).to_owned()).collect();
    assert_eq!(flags, list_flags(), "the table has every setting");
    write_certificates();

    for (flag, value, text) in VALUES {
        let required = required_by(flag);
        let before = texts_of(&validate(&required).unwrap());
        let others = required.into_iter().filter(|(other, _)| *other != flag);
        let after =
            texts_of(&validate(&others.chain([(flag, value)]).collect::<Vec<_>>()).unwrap());

        let mut expected = before.clone();
        expected.insert(flag, text.to_owned());
        assert_ne!(before[flag], text, "{flag}: the value is the default");
        assert_eq!(after, expected, "--{flag}={value}");
    }
}

#[test]
fn certificates_of_redis_are_validated_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let authority = Authority::create(path("ca.pem").into());
    let [first, second] =
        ["first", "second"].map(|name| authority.issue("a.example.com", directory.path(), name));
    let [certificate, key] = [&first.certificate, &first.key].map(|p| p.display().to_string());
    let other_key = second.key.display().to_string();
    let (no_pem, absent) = (path("no.pem"), path("absent.pem"));
    std::fs::write(&no_pem, "a certificate").unwrap();
    let error = |url, files: &[(&'static str, &str)]| {
        let others = OTHERS.into_iter().filter(|(other, _)| *other != "redis-url");
        let settings = others.chain([("redis-url", url)]).chain(files.iter().copied());
        validate(&settings.collect::<Vec<_>>()).err().unwrap_or_default()
    };
    let tls = |files: &[(&'static str, &str)]| error("rediss://localhost", files);

    assert_eq!(tls(&[("redis-tls-cert", &certificate), ("redis-tls-key", &key)]), "");
    let ca = authority.file.display().to_string();
    assert_eq!(error("rediss-cluster://localhost", &[("redis-tls-ca", &ca)]), "");
    let only_one = tls(&[("redis-tls-cert", &certificate)]);
    assert_eq!(only_one, "KEYWARD_REDIS_TLS_CERT and KEYWARD_REDIS_TLS_KEY: set both, or neither");
    assert_eq!(tls(&[("redis-tls-key", &key)]), only_one);
    let without_tls = error("redis://localhost", &[("redis-tls-ca", &certificate)]);
    assert_eq!(
        without_tls,
        "KEYWARD_REDIS_TLS_CA must be used with a KEYWARD_REDIS_URL that begins with rediss://, rediss-cluster:// or rediss-sentinel://"
    );
    let insecure = error("rediss://localhost/#insecure", &[]);
    assert!(insecure.starts_with("a URL in KEYWARD_REDIS_URL ends with #insecure"), "{insecure}");
    let mismatch = tls(&[("redis-tls-cert", &certificate), ("redis-tls-key", &other_key)]);
    assert!(mismatch.contains("does not belong to the certificate"), "{mismatch}");
    let no_key = tls(&[("redis-tls-cert", &certificate), ("redis-tls-key", &certificate)]);
    assert!(no_key.ends_with("must be a private key in PEM, without a passphrase"), "{no_key}");
    for flag in ["redis-tls-ca", "redis-tls-cert"] {
        let invalid = tls(&[(flag, &no_pem), ("redis-tls-key", &key)]);
        assert!(invalid.ends_with("it must contain a certificate in PEM"), "{flag}: {invalid}");
        let missing = tls(&[(flag, &absent), ("redis-tls-key", &key)]);
        assert!(missing.starts_with("failed to read the file"), "{flag}: {missing}");
    }
}
