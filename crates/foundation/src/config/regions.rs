//! Settings of the regions that share limits and credits.

use std::path::PathBuf;

use clap::Args;

use super::redis::SCHEMES;
use super::sentinel::SentinelUrl;
use super::values::{load_secret, validate_url_scheme};

/// The settings as written on the command line or in the environment.
#[derive(Args, Clone, Default)]
pub struct RegionsConfig {
    /// Region of this replica: its label in analytics, and one of the regions that share limits [default: none]
    #[arg(long, env = REGION, global = true)]
    region: Option<String>,
    /// Regions that share limits and credits, with the Redis URL of each, such as
    /// `eu=rediss://redis.eu:6379,us=rediss://redis.us:6379` [default: one region]
    #[arg(long, env = REGIONS, global = true, hide_env_values = true)]
    regions: Option<String>,
    /// File that contains the regions, one in each line or separated by commas
    #[arg(long, env = "KEYWARD_REGIONS_FILE", global = true)]
    regions_file: Option<PathBuf>,
}

const REGION: &str = "KEYWARD_REGION";
pub const REGIONS: &str = "KEYWARD_REGIONS";
const REDIS_URL: &str = "KEYWARD_REDIS_URL";
/// The maximum number of regions.
const REGIONS_MAX: usize = 16;
/// The maximum number of characters in the name of a region.
pub const REGION_CHARS_MAX: usize = 64;

/// The regions that share limits and credits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSettings {
    /// The names of all regions, in the order in which they were listed.
    pub names: Vec<String>,
    /// The position of this replica's own region.
    pub own: usize,
    /// The Redis URLs of the other regions, with their positions.
    pub others: Vec<(usize, String)>,
}

impl RegionsConfig {
    /// Returns the label of this replica in analytics; empty if it has none.
    pub fn label(&self) -> Result<String, String> {
        let region = self.region.clone().unwrap_or_default();
        if region.len() <= REGION_CHARS_MAX && region.chars().all(|c| c.is_ascii_graphic()) {
            return Ok(region);
        }
        Err(format!(
            "{REGION} must be at most {REGION_CHARS_MAX} printable ASCII characters without spaces"
        ))
    }

    /// Returns the regions; `None` if there is one. `redis_url` is that of this replica, if it is one.
    pub fn validate(&self, redis_url: Option<&str>) -> Result<Option<RegionSettings>, String> {
        let file = self.regions_file.as_deref();
        let Some(text) = load_secret(REGIONS, self.regions.as_ref(), file)? else {
            return Ok(None);
        };
        let Some(redis_url) = redis_url else {
            return Err(format!(
                "{REGIONS} is set and {REDIS_URL} is not: regions share limits through Redis"
            ));
        };
        if redis_url.contains("-cluster://") {
            return Err(format!(
                "{REGIONS} cannot be used with a Redis Cluster: {REDIS_URL} must be the URL of one server"
            ));
        }
        let listed = parse_list(&text)?;
        let label = self.label()?;
        let names: Vec<_> = listed.iter().map(|(name, _)| name.clone()).collect();
        let Some(own) = names.iter().position(|name| *name == label) else {
            return Err(format!(
                "{REGION} is {label:?}: it must be one of the names in {REGIONS}, {}",
                names.join(", ")
            ));
        };
        let others = listed.into_iter().map(|(_, url)| url).enumerate();
        let others = others.filter(|(position, _)| *position != own).collect();
        Ok(Some(RegionSettings { names, own, others }))
    }
}

/// Parses the list of regions. An error does not contain the URLs, which may hold passwords.
fn parse_list(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut listed: Vec<(String, String)> = Vec::new();
    for (number, entry) in (1..).zip(&split_entries(text)) {
        let Some((name, url)) = entry.split_once('=') else {
            return Err(format!(
                "entry {number} of {REGIONS} is not NAME=URL, such as eu=rediss://redis.eu:6379"
            ));
        };
        if !is_name(name) {
            return Err(format!(
                "the name in entry {number} of {REGIONS} must be 1 to {REGION_CHARS_MAX} of the characters a-z, A-Z, \
                0-9, -, _ and ."
            ));
        }
        let place = format!("the URL of {name} in {REGIONS}");
        validate_url_scheme(&place, url, &SCHEMES)?;
        if url.contains("-cluster://") {
            return Err(format!(
                "{place} is that of a Redis Cluster: it must be that of one server"
            ));
        }
        if listed.iter().any(|(known, _)| known == name) {
            return Err(format!("{REGIONS} lists {name} twice"));
        }
        listed.push((name.to_owned(), url.to_owned()));
    }
    if (2..=REGIONS_MAX).contains(&listed.len()) {
        return Ok(listed);
    }
    Err(format!(
        "{REGIONS} lists {} regions: it must be a list of 2 to {REGIONS_MAX} regions such as \
        eu=rediss://redis.eu:6379,us=rediss://redis.us:6379",
        listed.len()
    ))
}

/// Splits the list at commas and line ends, except at the commas between Sentinels.
fn split_entries(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for line in text.split(['\n', '\r']) {
        let mut is_first = true;
        for part in line.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let begins_entry = part.split_once('=').is_some_and(|(name, _)| is_name(name));
            let is_continued = |entry: &&mut String| {
                let url = entry.split_once('=').map_or("", |(_, url)| url);
                !is_first && !begins_entry && SentinelUrl::is_sentinel(url)
            };
            match entries.last_mut().filter(is_continued) {
                Some(entry) => entry.extend([",", part]),
                None => entries.push(part.to_owned()),
            }
            is_first = false;
        }
    }
    entries
}

/// Returns whether a text can be the name of a region.
fn is_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=REGION_CHARS_MAX).contains(&name.len()) && name.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validate(region: &str, regions: &str) -> Result<Option<RegionSettings>, String> {
        let config = RegionsConfig {
            region: Some(region.into()),
            regions: Some(regions.into()),
            regions_file: None,
        };
        config.validate(Some("redis://own"))
    }

    #[test]
    fn own_region_is_left_out_of_the_others() {
        let regions =
            validate("us", "eu=redis://a, us=redis://b,\nap=rediss://c").expect("regions");
        let regions = regions.expect("several regions");

        assert_eq!((regions.names.join(" "), regions.own), ("eu us ap".into(), 1));
        assert_eq!(regions.others, [(0, "redis://a".into()), (2, "rediss://c".into())]);
    }

    #[test]
    fn commas_between_sentinels_belong_to_the_url() {
        let text = "eu=redis-sentinel://:p@a:1, b,c:3/x/1?sentinel-password=p,us=redis://b\n\
            ap=rediss-sentinel://d,e/y";
        let regions = validate("us", text).expect("regions").expect("several regions");

        assert_eq!(regions.names, ["eu", "us", "ap"]);
        let eu = "redis-sentinel://:p@a:1,b,c:3/x/1?sentinel-password=p";
        let ap = "rediss-sentinel://d,e/y";
        assert_eq!(regions.others, [(0, eu.into()), (2, ap.into())]);
        let error = validate("a", "a=redis-sentinel://d,e/y\nb:1").expect_err("no name");
        assert!(error.contains("entry 2 of KEYWARD_REGIONS is not NAME=URL"), "{error}");
    }

    #[test]
    fn invalid_list_is_rejected_with_the_entry_and_without_its_url() {
        let many = |count: usize| {
            let entries: Vec<_> = (0..count).map(|n| format!("r{n}=redis://h")).collect();
            entries.join(",")
        };
        assert_eq!(validate("r0", &many(16)).map(|it| it.expect("regions").names.len()), Ok(16));
        let long = "x".repeat(65);
        for (region, regions, problem) in [
            ("r0", many(17), "lists 17 regions: it must be a list of 2 to 16"),
            ("a", "a=redis://secret".into(), "lists 1 regions"),
            ("a", String::new(), "lists 0 regions"),
            ("a", "a=redis://secret,b".into(), "entry 2 of KEYWARD_REGIONS is not NAME=URL"),
            ("a", "a=redis://secret,a=redis://b".into(), "lists a twice"),
            ("a", "a=redis://secret,b c=redis://b".into(), "the name in entry 2"),
            ("a", format!("a=redis://secret,{long}=redis://b"), "the name in entry 2"),
            ("a", "a=redis://secret,b=http://b".into(), "the URL of b in KEYWARD_REGIONS must"),
            ("a", "a=redis://secret,b=redis-cluster://b".into(), "Redis Cluster"),
            ("c", "a=redis://secret,b=redis://b".into(), "must be one of the names"),
        ] {
            let error = validate(region, &regions).expect_err(&regions);
            assert!(error.contains(problem) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn regions_require_one_redis_server() {
        let regions = RegionsConfig {
            region: Some("a".into()),
            regions: Some("a=redis://a,b=redis://b".into()),
            regions_file: None,
        };

        let embedded = regions.validate(None).expect_err("no Redis");
        assert!(embedded.contains("KEYWARD_REDIS_URL is not"), "{embedded}");
        let cluster = regions.validate(Some("redis-cluster://a")).expect_err("a cluster");
        assert!(cluster.contains("cannot be used with a Redis Cluster"), "{cluster}");
        assert_eq!(RegionsConfig::default().validate(None), Ok(None));
    }
}
