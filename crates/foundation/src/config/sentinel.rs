//! The URL of a Redis whose current primary Redis Sentinel names.

use percent_encoding::percent_decode_str;

/// The schemes without and with TLS.
pub const SCHEMES: [&str; 2] = ["redis-sentinel://", "rediss-sentinel://"];
/// The port of Sentinel if the URL names none.
const PORT: u16 = 26_379;
/// The maximum number of Sentinels in a URL.
const SENTINELS_MAX: usize = 16;
/// The maximum length of the name of a service.
const SERVICE_CHARS_MAX: usize = 255;
/// What the URL looks like.
const FORM: &str =
    "redis-sentinel://[user:password@]host1:26379,host2:26379/service-name[/database]";
const SENTINEL_USER: &str = "sentinel-user";
const SENTINEL_PASSWORD: &str = "sentinel-password";

/// A user and a password. Absent: none is sent.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    pub user: Option<String>,
    pub password: Option<String>,
}

/// The parts of a URL such as `redis-sentinel://user:password@host1:26379,host2:26379/service-name/0`.
#[derive(Clone, PartialEq, Eq)]
pub struct SentinelUrl {
    pub has_tls: bool,
    /// The host and the port of each Sentinel.
    pub sentinels: Vec<(String, u16)>,
    /// The name by which the Sentinels know the primary and its replicas.
    pub service: String,
    pub database: i64,
    /// For the primary.
    pub redis: Credentials,
    /// For the Sentinels.
    pub sentinel: Credentials,
}

impl SentinelUrl {
    /// Returns whether the URL has a scheme of Sentinel.
    pub fn is_sentinel(url: &str) -> bool {
        SCHEMES.iter().any(|scheme| url.starts_with(scheme))
    }

    /// Parses a URL. The error says what it must be, and contains no password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or_else(form_error)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (parse_credentials(user)?, rest),
            None => (Credentials::default(), rest),
        };
        let mut path = rest.split('/');
        let sentinels = parse_sentinels(path.next().unwrap_or_default())?;
        let service = decode(path.next().unwrap_or_default(), "the name of the service")?;
        if !(1..=SERVICE_CHARS_MAX).contains(&service.chars().count()) {
            return Err(format!(
                "its path must begin with the name of the service, of 1 to {SERVICE_CHARS_MAX} characters: {FORM}"
            ));
        }
        let database = parse_database(path.next().unwrap_or_default())?;
        if path.next().is_some() {
            return Err(form_error());
        }
        Ok(Self {
            has_tls: scheme.starts_with("rediss"),
            sentinels,
            service,
            database,
            redis: user,
            sentinel: parse_query(query)?,
        })
    }
}

fn form_error() -> String {
    format!("it must be a URL such as {FORM}")
}

fn parse_credentials(text: &str) -> Result<Credentials, String> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let part = |part: &str, name| {
        let text = decode(part, name)?;
        Ok::<_, String>(Some(text).filter(|text| !text.is_empty()))
    };
    Ok(Credentials { user: part(user, "the user")?, password: part(password, "the password")? })
}

fn parse_sentinels(text: &str) -> Result<Vec<(String, u16)>, String> {
    let sentinels: Vec<_> = text.split(',').map(parse_sentinel).collect::<Result<_, _>>()?;
    if sentinels.len() > SENTINELS_MAX {
        return Err(format!("it must name at most {SENTINELS_MAX} Sentinels"));
    }
    Ok(sentinels)
}

/// Parses a host with or without a port. The address of IPv6 is in brackets.
fn parse_sentinel(text: &str) -> Result<(String, u16), String> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(form_error)?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    if host.is_empty() {
        return Err(form_error());
    }
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => Some(PORT),
        None => None,
        Some(port) => port.parse().ok().filter(|port| *port > 0),
    };
    let port = port.ok_or_else(|| {
        format!("the port of the Sentinel at {host:?} must be a whole number from 1 to 65535")
    })?;
    Ok((host.to_owned(), port))
}

fn parse_database(text: &str) -> Result<i64, String> {
    match text {
        "" => Ok(0),
        text => text.parse::<u32>().map(i64::from).map_err(|_| {
            format!(
                "the database after the name of the service must be a whole number, not {text:?}"
            )
        }),
    }
}

fn parse_query(query: &str) -> Result<Credentials, String> {
    let mut sentinel = Credentials::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = Some(decode(value, name)?).filter(|value| !value.is_empty());
        match name {
            SENTINEL_USER => sentinel.user = value,
            SENTINEL_PASSWORD => sentinel.password = value,
            _ => {
                return Err(format!(
                    "its parameters must be {SENTINEL_USER} and {SENTINEL_PASSWORD}, and {name:?} is neither"
                ));
            }
        }
    }
    if sentinel.user.is_some() && sentinel.password.is_none() {
        return Err(format!("{SENTINEL_USER} must be used with {SENTINEL_PASSWORD}"));
    }
    Ok(sentinel)
}

fn decode(text: &str, name: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| format!("{name} must be UTF-8, percent-encoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(user: Option<&str>, password: Option<&str>) -> Credentials {
        Credentials { user: user.map(Into::into), password: password.map(Into::into) }
    }

    #[test]
    fn url_names_sentinels_and_a_service() {
        let parsed = SentinelUrl::parse("redis-sentinel://a:1,b,[::1]:3/counters");
        let url = parsed.unwrap_or_else(|error| panic!("{error}"));

        let sentinels = [("a", 1), ("b", 26_379), ("::1", 3)];
        assert_eq!(url.sentinels, sentinels.map(|(host, port)| (host.to_owned(), port)));
        assert_eq!((url.service.as_str(), url.database, url.has_tls), ("counters", 0, false));
        assert!(url.redis == Credentials::default() && url.sentinel == Credentials::default());
    }

    #[test]
    fn redis_and_sentinel_have_their_own_credentials() {
        let text = "rediss-sentinel://u:p%40ss@a/x%20y/7?sentinel-user=s&sentinel-password=%26";
        let url = SentinelUrl::parse(text).unwrap_or_else(|error| panic!("{error}"));

        assert!(url.redis == credentials(Some("u"), Some("p@ss")));
        assert!(url.sentinel == credentials(Some("s"), Some("&")));
        assert_eq!((url.service.as_str(), url.database, url.has_tls), ("x y", 7, true));
        let url =
            SentinelUrl::parse("redis-sentinel://:p@ss@a/x").unwrap_or_else(|e| panic!("{e}"));
        assert!(url.redis == credentials(None, Some("p@ss")));
    }

    #[test]
    fn error_names_the_fault_and_no_password() {
        let many = |count| format!("redis-sentinel://{}/x", vec!["a"; count].join(","));
        let long = |count| format!("redis-sentinel://a/{}", "s".repeat(count));
        for valid in [many(16), long(255), "redis-sentinel://a:65535/x/4294967295".to_owned()] {
            assert!(SentinelUrl::parse(&valid).is_ok(), "{valid}");
        }
        for (url, fault) in [
            (many(17), "at most 16 Sentinels"),
            (long(256), "1 to 255 characters"),
            ("redis-sentinel://:secret@a".to_owned(), "1 to 255 characters"),
            ("redis-sentinel://:secret@a/".to_owned(), "1 to 255 characters"),
            ("redis-sentinel://:secret@/x".to_owned(), "it must be a URL such as"),
            ("redis-sentinel://:secret@a,,b/x".to_owned(), "it must be a URL such as"),
            ("redis-sentinel://:secret@[::1/x".to_owned(), "it must be a URL such as"),
            ("redis-sentinel://:secret@a/x/0/1".to_owned(), "it must be a URL such as"),
            ("redis-sentinel://:secret@a:0/x".to_owned(), "from 1 to 65535"),
            ("redis-sentinel://:secret@a:65536/x".to_owned(), "from 1 to 65535"),
            ("redis-sentinel://:secret@[::1]1/x".to_owned(), "from 1 to 65535"),
            ("redis-sentinel://:secret@a/x/one".to_owned(), "a whole number, not \"one\""),
            ("redis-sentinel://:secret@a/x/-1".to_owned(), "a whole number, not \"-1\""),
            ("redis-sentinel://:secret@a/x?db=1".to_owned(), "\"db\" is neither"),
            ("redis-sentinel://:secret@a/x?sentinel-user=s".to_owned(), "with sentinel-password"),
            ("redis-sentinel://:secret%ff@a/x".to_owned(), "the password must be UTF-8"),
        ] {
            let error = SentinelUrl::parse(&url).err().unwrap_or_default();
            assert!(error.contains(fault) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
