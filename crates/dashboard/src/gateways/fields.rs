//! The form fields of a gateway policy, and the policy or the change that they describe.

use std::collections::HashSet;

use domain::gateways::{self, BASE_IDENTITY_HEADERS, GatewayPolicyChange, NewGatewayPolicy};
use foundation::error::Result;
use foundation::id::ApiId;
use foundation::model::{
    FailureFormat, GatewayPolicy, GatewayPolicyConfig, IdentityHeaders, KeySource, Networks,
};
use serde::{Deserialize, Serialize};

use super::super::field_reader::FieldReader;
use super::super::form::Form;
use super::namespace_rows::NamespaceRows;
use super::rule_rows::RuleRows;

/// Each format of refusals: its form value and its label.
pub const FAILURE_FORMATS: [(&str, &str, FailureFormat); 3] = [
    ("problem+json", "Problem details (RFC 9457)", FailureFormat::ProblemJson),
    ("text", "Plain text", FailureFormat::Text),
    ("empty", "No body", FailureFormat::Empty),
];
/// The size of the fields that a form of 128 KiB has room for twice, since it also has the original values.
const FORM_TEXT_BYTES_MAX: usize = 20 * 1024;

/// The fields of the form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyForm {
    pub name: String,
    pub api_ids: Vec<String>,
    pub key_from: String,
    pub rules: RuleRows,
    /// Whether only selected identity headers have a value.
    pub selects_headers: bool,
    pub headers: Vec<String>,
    pub meta: String,
    pub is_signed: bool,
    pub on_failure: String,
    pub allow_from: String,
    pub namespaces: NamespaceRows,
    pub resource: String,
    pub authorization_servers: String,
}

impl PolicyForm {
    /// Creates the form of a new policy.
    pub fn new() -> Self {
        let config = GatewayPolicyConfig { key_from: KeySource::defaults(), ..Default::default() };
        Self::from_config("", &config)
    }

    /// Creates the form from a stored policy.
    pub fn from_policy(policy: &GatewayPolicy) -> Self {
        Self::from_config(&policy.name, &policy.config)
    }

    fn from_config(name: &str, config: &GatewayPolicyConfig) -> Self {
        let headers = &config.identity_headers;
        let selected = headers.headers.as_ref();
        let is_selected = |name: &&&str| {
            selected.is_none_or(|names| names.iter().any(|known| known.eq_ignore_ascii_case(name)))
        };
        let format = FAILURE_FORMATS.iter().find(|(.., format)| *format == config.on_failure);
        Self {
            name: name.to_owned(),
            api_ids: config.api_ids.iter().map(ToString::to_string).collect(),
            key_from: join_lines(&config.key_from),
            rules: RuleRows::from_rules(&config.rules),
            selects_headers: selected.is_some(),
            headers: BASE_IDENTITY_HEADERS
                .iter()
                .filter(is_selected)
                .map(|name| (*name).to_owned())
                .collect(),
            meta: headers.meta.join(", "),
            is_signed: headers.signed,
            on_failure: format.map(|(value, ..)| (*value).to_owned()).unwrap_or_default(),
            allow_from: config
                .allow_from
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
            namespaces: NamespaceRows::from_namespaces(&config.namespaces),
            resource: config.resource.clone(),
            authorization_servers: join_lines(&config.authorization_servers),
        }
    }

    /// Reads a submitted form. The flag is `true` if the pressed button only adds, removes or moves a row.
    pub fn from_form(form: &Form) -> (Self, bool) {
        let written = split_words(form.text("more-apis"));
        let api_ids = form.values("api").map(str::to_owned).chain(written);
        let mut known = HashSet::new();
        let api_ids = api_ids.filter(|id| !id.is_empty() && known.insert(id.clone())).collect();
        let lines = |field: &str| form.text(field).replace("\r\n", "\n");
        let mut fields = Self {
            name: form.text("name").trim().to_owned(),
            api_ids,
            key_from: lines("keyFrom"),
            rules: RuleRows::from_form(form),
            selects_headers: form.text("headers-mode") == "selected",
            headers: form.values("header").map(str::to_owned).collect(),
            meta: form.text("meta").to_owned(),
            is_signed: !form.text("signed").is_empty(),
            on_failure: form.text("onFailure").to_owned(),
            allow_from: form.text("allowFrom").to_owned(),
            namespaces: NamespaceRows::from_form(form),
            resource: form.text("resource").trim().to_owned(),
            authorization_servers: lines("authorizationServers"),
        };
        let step = form.text("step");
        match step.is_empty() {
            true => {
                fields.rules.remove_blank_limits();
                fields.namespaces.remove_blank();
            }
            false => {
                fields.rules.apply_step(step);
                fields.namespaces.apply_step(step);
            }
        }
        (fields, !step.is_empty())
    }

    /// Returns whether a form has room for all fields. If not, browsers could not submit it as a whole.
    pub fn fits_form(&self) -> bool {
        let size = serde_json::to_string(self).map_or(usize::MAX, |text| text.len());
        size <= FORM_TEXT_BYTES_MAX
            && self.rules.count_limits() <= super::rule_rows::FORM_LIMITS_MAX
    }

    /// Reads the policy. The error lists the errors of all fields.
    pub fn read(&self) -> Result<NewGatewayPolicy> {
        let mut fields = FieldReader::default();
        let new = self.parse(&mut fields);
        if self.api_ids.is_empty() {
            fields.add_error("apiIds", "Select at least one API.");
        }
        if split_lines(&self.key_from).is_empty() {
            fields.add_error("keyFrom", "Enter at least one key location.");
        }
        fields.add_domain_errors(gateways::validate(&new.name, &new.config));
        fields.finish(new)
    }

    /// Parses the fields without the rules of the domain.
    fn parse(&self, fields: &mut FieldReader) -> NewGatewayPolicy {
        let format = FAILURE_FORMATS.iter().find(|(value, ..)| *value == self.on_failure);
        if format.is_none() {
            fields.reject("onFailure", "must be problem+json, text or empty");
        }
        let config = GatewayPolicyConfig {
            api_ids: self.api_ids.iter().map(|id| ApiId::from(id.as_str())).collect(),
            key_from: parse_items(fields, "keyFrom", &split_lines(&self.key_from), str::parse),
            rules: self.rules.read(fields),
            identity_headers: IdentityHeaders {
                headers: self.selects_headers.then(|| self.headers.clone()),
                meta: split_words(&self.meta),
                signed: self.is_signed,
            },
            on_failure: format.map(|(.., format)| *format).unwrap_or_default(),
            allow_from: {
                let items = split_words(&self.allow_from);
                let networks = parse_items(fields, "allowFrom", &items, Networks::parse);
                networks.into_iter().flatten().collect()
            },
            namespaces: self.namespaces.read(fields),
            resource: self.resource.clone(),
            authorization_servers: split_lines(&self.authorization_servers),
        };
        NewGatewayPolicy { name: self.name.clone(), config }
    }

    /// Reads the change from the original values. Only changed fields are present, so concurrent changes of others are
    /// kept. `None`: nothing has changed.
    pub fn read_change(&self, original: &Self) -> Result<Option<GatewayPolicyChange>> {
        let new = self.read()?;
        // Original values can be parsed unless the form was changed on its way. A rule may be newer than they are.
        let mut fields = FieldReader::default();
        let old = original.parse(&mut fields);
        let old = fields.finish(old)?;
        if new.name == old.name && new.config == old.config {
            return Ok(None);
        }
        let (now, was) = (new.config, old.config);
        Ok(Some(GatewayPolicyChange {
            name: changed(new.name, &old.name),
            api_ids: changed(now.api_ids, &was.api_ids),
            key_from: changed(now.key_from, &was.key_from),
            rules: changed(now.rules, &was.rules),
            identity_headers: changed(now.identity_headers, &was.identity_headers),
            on_failure: changed(now.on_failure, &was.on_failure),
            allow_from: changed(now.allow_from, &was.allow_from),
            namespaces: changed(now.namespaces, &was.namespaces),
            resource: changed(now.resource, &was.resource),
            authorization_servers: changed(now.authorization_servers, &was.authorization_servers),
        }))
    }

    /// Returns the values as the text of a hidden field.
    pub fn serialize(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn changed<T: PartialEq>(new: T, old: &T) -> Option<T> {
    (new != *old).then_some(new)
}

/// Parses the items of a list and collects their errors.
fn parse_items<T>(
    fields: &mut FieldReader,
    path: &str,
    items: &[String],
    parse: impl Fn(&str) -> std::result::Result<T, String>,
) -> Vec<T> {
    let item = |(at, text): (usize, &String)| match parse(text) {
        Ok(item) => Some(item),
        Err(rule) => {
            fields.reject(&format!("{path}[{at}]"), rule);
            None
        }
    };
    items.iter().enumerate().filter_map(item).collect()
}

/// Splits a text at commas and whitespace.
pub fn split_words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Splits a text into its lines that are not blank.
pub fn split_lines(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

pub fn join_lines(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use foundation::clock::Timestamp;
    use foundation::error::Error;
    use foundation::id::{GatewayPolicyId, WorkspaceId};
    use serde_json::json;

    use super::*;

    fn policy(config: serde_json::Value) -> GatewayPolicy {
        GatewayPolicy {
            id: GatewayPolicyId::from("gwp_1"),
            workspace_id: WorkspaceId::from("ws_1"),
            name: "edge".into(),
            config: serde_json::from_value(config).expect("a config"),
            created_at: Timestamp(0),
            updated_at: None,
        }
    }

    fn full() -> serde_json::Value {
        json!({
            "apiIds": ["api_1", "api_2"],
            "keyFrom": ["cookie:key", "authorization:bearer"],
            "rules": [
                { "methods": ["GET", "PUT"], "path": "/a/**", "permissions": "a OR b", "cost": 0,
                    "ratelimits": [{ "name": "own" }, { "name": "all", "cost": 2, "limit": 0, "duration": 1500 }],
                    "tags": ["x, y", "z"] },
                {}
            ],
            "identityHeaders": { "headers": ["Keyward-Key-Id", "Keyward-Roles"], "meta": ["plan", "a-b"], "signed": true },
            "onFailure": "text",
            "allowFrom": ["10.0.0.0/8", "2001:db8::/32"],
            "namespaces": [{ "namespace": "mail, out", "defaultLimit": { "limit": 5, "duration": 60000 }, "mode": "shadow" }],
            "resource": "https://a.example/mcp",
            "authorizationServers": ["https://b.example"]
        })
    }

    #[test]
    fn form_reads_the_policy_that_it_was_created_from() {
        for config in [full(), json!({ "apiIds": ["api_1"], "keyFrom": ["header:x-api-key"] })] {
            let policy = policy(config);
            let fields = PolicyForm::from_policy(&policy);

            let new = fields.read().expect("a policy");

            assert_eq!((new.name, new.config), (policy.name, policy.config));
            let original: PolicyForm = serde_json::from_str(&fields.serialize()).expect("a form");
            assert!(fields.read_change(&original).expect("no errors").is_none());
        }
    }

    #[test]
    fn change_has_only_the_fields_that_differ() {
        let original = PolicyForm::from_policy(&policy(full()));
        let fields = PolicyForm { resource: String::new(), ..original.clone() };

        let change = fields.read_change(&original).expect("no errors").expect("a change");

        assert_eq!(change.resource.as_deref(), Some(""));
        assert!(change.name.is_none() && change.rules.is_none() && change.api_ids.is_none());
    }

    #[test]
    fn stored_name_that_is_invalid_now_is_replaced() {
        let original =
            PolicyForm { name: "gwp_1".into(), ..PolicyForm::from_policy(&policy(full())) };
        let fields = PolicyForm { name: "edge".into(), ..original.clone() };

        let change = fields.read_change(&original).expect("no errors").expect("a change");

        assert_eq!(change.name.as_deref(), Some("edge"));
        assert!(original.read_change(&original).is_err());
    }

    #[test]
    fn read_reports_errors_of_the_form_and_of_the_domain_together() {
        let fields = PolicyForm {
            name: "a b".into(),
            api_ids: Vec::new(),
            key_from: "authorization:basic".into(),
            allow_from: "10.0.0.0/8 nowhere".into(),
            on_failure: "html".into(),
            resource: "http://a.example".into(),
            ..PolicyForm::new()
        };

        let Err(Error::Invalid(errors)) = fields.read() else { panic!("no errors") };

        let paths: Vec<_> =
            errors.iter().map(|e| e.message.split(' ').next().unwrap_or_default()).collect();
        let expected = ["onFailure", "keyFrom[0]", "allowFrom[1]", "Select", "name", "resource"];
        assert_eq!(paths, expected);
    }

    #[test]
    fn form_has_no_room_for_policies_that_browsers_could_not_submit() {
        let with_path = |length: usize| {
            let rule = json!({ "path": format!("/{}", "a".repeat(1000)) });
            let config = json!({ "apiIds": ["api_1"], "rules": vec![rule; length] });
            PolicyForm::from_policy(&policy(config)).fits_form()
        };

        assert_eq!([with_path(18), with_path(21)], [true, false]);
    }
}
