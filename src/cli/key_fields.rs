//! The options of keys, as requests of `keys.createKey` and `keys.updateKey`.

use clap::{Args, ValueEnum};
use foundation::clock::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::CommandError;
use super::input::{RequestFields, parse_count, parse_duration_ms, parse_moment};

/// The options of `keyward key create`.
#[derive(Args)]
pub struct KeyCreation {
    /// Create the key in this API
    #[arg(long = "api", value_name = "ID", required_unless_present = "file")]
    api_id: Option<String>,
    /// Read the fields of `keys.createKey` from a JSON file, or from standard input for -; options take precedence
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    /// Set the prefix of the key [default: that of the API]
    #[arg(long)]
    prefix: Option<String>,
    /// Set the number of random bytes, 16 to 255 [default: that of the API, or 16]
    #[arg(long)]
    bytes: Option<u64>,
    #[command(flatten)]
    fields: KeyFields,
    /// Create the key disabled
    #[arg(long)]
    disabled: bool,
    /// Store an encrypted copy of the key, so that it can be shown again
    #[arg(long)]
    recoverable: bool,
    #[arg(long, default_value = "ws_default")]
    pub workspace: String,
}

/// The options of `keyward key update`.
#[derive(Args)]
pub struct KeyUpdate {
    /// ID of the key
    pub id: String,
    /// Read the fields of `keys.updateKey` from a JSON file, or from standard input for -; options take precedence
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    #[command(flatten)]
    fields: KeyFields,
    #[arg(long, default_value = "ws_default")]
    pub workspace: String,
}

/// The fields that a new key has and that can be updated. An empty text clears a field.
#[derive(Args)]
struct KeyFields {
    /// Set the name of the key
    #[arg(long)]
    name: Option<String>,
    /// Set your ID of the user who owns the key
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Set the meta, a JSON object, which verification returns
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    meta: Option<Box<RawValue>>,
    /// Set when the key expires: a time such as 2030-01-31T12:00:00Z, or a duration from now such as 90d
    #[arg(long, value_name = "TIME", value_parser = parse_expiry)]
    expires: Option<Expiry>,
    /// Set the remaining credits, or unlimited
    #[arg(long, value_name = "NUMBER", value_parser = parse_credits)]
    credits: Option<Credits>,
    /// Set how often credits are refilled
    #[arg(long, value_name = "INTERVAL", requires = "refill_amount")]
    refill: Option<RefillInterval>,
    /// Set the credits after each refill
    #[arg(long, value_name = "NUMBER", requires = "refill", value_parser = parse_count)]
    refill_amount: Option<i64>,
    /// Set the day of the month of a monthly refill, 1 to 31 [default: 1]
    #[arg(long, value_name = "DAY", requires = "refill")]
    refill_day: Option<u64>,
    /// Add a rate limit that every verification checks, as NAME=LIMIT/DURATION, such as requests=60/1m; repeatable
    #[arg(long = "ratelimit", value_name = "LIMIT", value_parser = parse_ratelimit)]
    ratelimits: Option<Vec<Value>>,
    /// Assign a role by its name; repeatable
    #[arg(long = "role", value_name = "NAME")]
    roles: Option<Vec<String>>,
    /// Grant a permission by its slug; repeatable
    #[arg(long = "permission", value_name = "SLUG")]
    permissions: Option<Vec<String>>,
}

/// When a key expires.
#[derive(Clone, Copy)]
enum Expiry {
    At(Timestamp),
    Never,
}

/// The remaining credits of a key.
#[derive(Clone, Copy)]
enum Credits {
    Number(i64),
    Unlimited,
}

#[derive(Clone, Copy, ValueEnum)]
enum RefillInterval {
    Daily,
    Monthly,
}

fn parse_json(text: &str) -> Result<Box<RawValue>, String> {
    let text = if text.is_empty() { "null" } else { text };
    RawValue::from_string(text.to_owned()).map_err(|e| format!("is not JSON: {e}"))
}

fn parse_expiry(text: &str) -> Result<Expiry, String> {
    if text.is_empty() || text == "never" {
        return Ok(Expiry::Never);
    }
    parse_moment(text).map(Expiry::At)
}

fn parse_credits(text: &str) -> Result<Credits, String> {
    if text.is_empty() || text == "unlimited" {
        return Ok(Credits::Unlimited);
    }
    parse_count(text).map(Credits::Number).map_err(|rule| format!("{rule}, or unlimited"))
}

/// Parses a limit such as `requests=60/1m`. Its bounds are those of the API.
fn parse_ratelimit(text: &str) -> Result<Value, String> {
    let rule = "must have the form NAME=LIMIT/DURATION, such as requests=60/1m";
    let (name, rest) = text.rsplit_once('=').ok_or(rule)?;
    let (limit, duration) = rest.split_once('/').ok_or(rule)?;
    let limit = parse_count(limit).map_err(|bound| format!("{rule}; LIMIT {bound}"))?;
    let duration = parse_duration_ms(duration).map_err(|_| rule)?;
    Ok(json!({ "name": name, "limit": limit, "duration": duration, "autoApply": true }))
}

impl KeyCreation {
    /// Returns the request of `keys.createKey`.
    pub fn into_request(self) -> Result<RequestFields, CommandError> {
        let mut request = RequestFields::read("--file", self.file.as_deref())?;
        request.set("apiId", self.api_id);
        request.set("prefix", self.prefix);
        request.set("byteLength", self.bytes);
        request.set("enabled", self.disabled.then_some(false));
        request.set("recoverable", self.recoverable.then_some(true));
        self.fields.set(&mut request);
        // A new key has nothing to clear.
        request.remove_nulls();
        Ok(request)
    }
}

impl KeyUpdate {
    /// Returns the request of `keys.updateKey`.
    pub fn into_request(self) -> Result<RequestFields, CommandError> {
        let mut request = RequestFields::read("--file", self.file.as_deref())?;
        request.set("keyId", Some(self.id));
        self.fields.set(&mut request);
        Ok(request)
    }
}

impl KeyFields {
    /// Sets the fields of the options that were given; null clears a field.
    fn set(self, request: &mut RequestFields) {
        request.set_or_clear("name", self.name);
        request.set_or_clear("externalId", self.external_id);
        request.set_raw("meta", self.meta);
        let expires = self.expires.map(|expires| match expires {
            Expiry::At(at) => json!(at),
            Expiry::Never => Value::Null,
        });
        request.set("expires", expires);
        request.set("ratelimits", self.ratelimits);
        request.set_list("roles", self.roles);
        request.set_list("permissions", self.permissions);
        let mut credits = Map::new();
        match self.credits {
            None => {}
            Some(Credits::Number(remaining)) => {
                credits.insert("remaining".to_owned(), json!(remaining));
            }
            Some(Credits::Unlimited) => return request.set("credits", Some(Value::Null)),
        }
        if let (Some(interval), Some(amount)) = (self.refill, self.refill_amount) {
            let refill = match interval {
                RefillInterval::Daily => match self.refill_day {
                    None => json!({ "interval": "daily", "amount": amount }),
                    day => json!({ "interval": "daily", "amount": amount, "refillDay": day }),
                },
                RefillInterval::Monthly => {
                    let day = self.refill_day.unwrap_or(1);
                    json!({ "interval": "monthly", "amount": amount, "refillDay": day })
                }
            };
            credits.insert("refill".to_owned(), refill);
        }
        if !credits.is_empty() {
            request.set("credits", Some(credits));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limits_have_a_name_a_limit_and_a_duration() {
        let limit = parse_ratelimit("a=b=60/1m");
        let expected = json!({ "name": "a=b", "limit": 60, "duration": 60_000, "autoApply": true });
        assert_eq!(limit, Ok(expected));
        for text in ["", "requests", "requests=60", "requests=x/1m", "requests=60/1", "r=-1/1m"] {
            assert!(
                parse_ratelimit(text).is_err_and(|e| e.contains("NAME=LIMIT/DURATION")),
                "{text}"
            );
        }
        let error = parse_ratelimit("r=9223372036854775808/1m");
        assert!(error.is_err_and(|e| {
            e.ends_with("LIMIT must be a whole number from 0 to 9223372036854775807")
        }));
    }
}
