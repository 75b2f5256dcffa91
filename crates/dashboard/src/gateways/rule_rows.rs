//! Form rows for the rules of a gateway policy, each with rows for its rate limits.

use domain::bounds::DURATION_MIN_MS;
use domain::gateways::{
    LIMIT_NAME_MAX, LIMIT_NAME_MIN, RULE_COST_MAX, RULE_LIMITS_MAX, RULE_PERMISSIONS_MAX,
    RULE_TAGS_MAX, RULES_MAX, TAG_MAX,
};
use domain::keys::AD_HOC_DURATION_MAX_MS;
use foundation::model::{AllowedChars, GatewayLimit, GatewayRule};
use serde::{Deserialize, Serialize};

use super::super::duration_field::{DurationField, nth_value};
use super::super::field_reader::FieldReader;
use super::super::form::Form;
use super::fields::{join_lines, split_lines, split_words};

/// The maximum number of limits of all rules, which bounds the number of fields of a form.
pub const FORM_LIMITS_MAX: usize = 120;

/// The fields of one rule, as submitted. A rule without any value matches every request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRow {
    pub methods: String,
    pub path: String,
    pub permissions: String,
    pub cost: String,
    pub tags: String,
    pub limits: Vec<RuleLimitRow>,
}

/// The fields of a rate limit of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleLimitRow {
    pub name: String,
    pub cost: String,
    pub limit: String,
    pub window: DurationField,
}

impl Default for RuleLimitRow {
    fn default() -> Self {
        let [name, cost, limit] = [const { String::new() }; 3];
        Self { name, cost, limit, window: DurationField::empty() }
    }
}

impl RuleLimitRow {
    fn from_limit(limit: &GatewayLimit) -> Self {
        let text = |number: Option<i64>| number.map(|n| n.to_string()).unwrap_or_default();
        Self {
            name: limit.name.clone(),
            cost: text(limit.cost),
            limit: text(limit.limit),
            window: limit.duration.map_or_else(DurationField::empty, DurationField::from_ms),
        }
    }

    fn is_blank(&self) -> bool {
        let texts = [&self.name, &self.cost, &self.limit, &self.window.number];
        texts.into_iter().all(String::is_empty)
    }

    fn read(&self, fields: &mut FieldReader, path: &str) -> GatewayLimit {
        let lengths = LIMIT_NAME_MIN..=LIMIT_NAME_MAX;
        let durations = DURATION_MIN_MS..=AD_HOC_DURATION_MAX_MS;
        let mut number = |field: &str, text: &str| {
            fields.optional_integer(&format!("{path}.{field}"), text, 0..=i64::MAX)
        };
        let (cost, limit) = (number("cost", &self.cost), number("limit", &self.limit));
        let has_window = !self.window.number.is_empty();
        let duration = has_window
            .then(|| fields.duration_ms(&format!("{path}.duration"), &self.window, durations));
        let name = fields.text(&format!("{path}.name"), &self.name, lengths, AllowedChars::NonNul);
        GatewayLimit { name, cost, limit, duration }
    }
}

impl RuleRow {
    fn from_rule(rule: &GatewayRule) -> Self {
        Self {
            methods: rule.methods.join(" "),
            path: rule.path.clone().unwrap_or_default(),
            permissions: rule.permissions.clone().unwrap_or_default(),
            cost: rule.cost.map(|cost| cost.to_string()).unwrap_or_default(),
            tags: join_lines(&rule.tags),
            limits: rule.ratelimits.iter().map(RuleLimitRow::from_limit).collect(),
        }
    }

    pub fn has_limit_capacity(&self) -> bool {
        self.limits.len() < RULE_LIMITS_MAX
    }

    fn read(&self, fields: &mut FieldReader, at: usize) -> GatewayRule {
        let path = |field: &str| format!("rules[{at}].{field}");
        let limits = self.limits.iter().enumerate();
        let limits =
            limits.map(|(nth, limit)| limit.read(fields, &path(&format!("ratelimits[{nth}]"))));
        let ratelimits: Vec<_> = limits.collect();
        fields.check_count(&path("ratelimits"), ratelimits.len(), RULE_LIMITS_MAX);
        let (permissions, chars) = (self.permissions.as_str(), AllowedChars::NonNul);
        GatewayRule {
            methods: split_words(&self.methods),
            path: (!self.path.is_empty()).then(|| self.path.clone()),
            permissions: fields.optional_text(
                &path("permissions"),
                permissions,
                RULE_PERMISSIONS_MAX,
                chars,
            ),
            cost: fields.optional_integer(&path("cost"), &self.cost, 0..=RULE_COST_MAX),
            ratelimits,
            tags: fields.texts(
                &path("tags"),
                &split_lines(&self.tags),
                RULE_TAGS_MAX,
                TAG_MAX,
                chars,
            ),
        }
    }
}

/// The rules of a form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleRows(Vec<RuleRow>);

impl RuleRows {
    /// Creates rows from stored rules.
    pub fn from_rules(rules: &[GatewayRule]) -> Self {
        Self(rules.iter().map(RuleRow::from_rule).collect())
    }

    /// Reads the rows of a form.
    pub fn from_form(form: &Form) -> Self {
        let text = |field: &str, at: usize| nth_value(form, field, at).trim().to_owned();
        let row = |at: usize| RuleRow {
            methods: text("rule-methods", at),
            path: text("rule-path", at),
            permissions: text("rule-permissions", at),
            cost: text("rule-cost", at),
            tags: nth_value(form, "rule-tags", at).replace("\r\n", "\n"),
            limits: Vec::new(),
        };
        let mut rows: Vec<_> = (0..form.values("rule-path").count()).map(row).collect();
        for (nth, rule) in form.values("limit-rule").enumerate() {
            let rule = rule.parse().ok().and_then(|at: usize| rows.get_mut(at));
            let Some(rule) = rule else { continue };
            rule.limits.push(RuleLimitRow {
                name: text("limit-name", nth),
                cost: text("limit-cost", nth),
                limit: text("limit-limit", nth),
                window: DurationField::from_form(form, "limit-window", nth),
            });
        }
        Self(rows)
    }

    /// Adds, removes or moves a row, as the pressed button says.
    pub fn apply_step(&mut self, step: &str) {
        let mut words = step.split(' ');
        let name = words.next().unwrap_or_default();
        let mut index = || words.next().and_then(|word| word.parse::<usize>().ok());
        let (at, nth) = (index(), index());
        let (count, has_capacity) = (self.0.len(), self.has_limit_capacity());
        match (name, at.filter(|at| *at < count)) {
            ("add-rule", _) if self.has_capacity() => self.0.push(RuleRow::default()),
            ("remove-rule", Some(at)) => drop(self.0.remove(at)),
            ("raise-rule", Some(at)) if at > 0 => self.0.swap(at, at - 1),
            ("add-limit", Some(at)) if has_capacity && self.0[at].has_limit_capacity() => {
                self.0[at].limits.push(RuleLimitRow::default());
            }
            ("remove-limit", Some(at)) => {
                let limits = &mut self.0[at].limits;
                if let Some(nth) = nth.filter(|nth| *nth < limits.len()) {
                    limits.remove(nth);
                }
            }
            _ => {}
        }
    }

    /// Removes the limits without any value. Rules without any value stay, because they match every request.
    pub fn remove_blank_limits(&mut self) {
        self.0.iter_mut().for_each(|rule| rule.limits.retain(|limit| !limit.is_blank()));
    }

    pub fn iter(&self) -> std::slice::Iter<'_, RuleRow> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has_capacity(&self) -> bool {
        self.0.len() < RULES_MAX
    }

    /// Returns whether the form has room for another limit.
    pub fn has_limit_capacity(&self) -> bool {
        self.count_limits() < FORM_LIMITS_MAX
    }

    /// Returns the number of limits of all rules.
    pub fn count_limits(&self) -> usize {
        self.0.iter().map(|rule| rule.limits.len()).sum()
    }

    /// Reads the rules.
    pub fn read(&self, fields: &mut FieldReader) -> Vec<GatewayRule> {
        self.0.iter().enumerate().map(|(at, row)| row.read(fields, at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "rule-methods=GET&rule-path=/a&rule-permissions=&rule-cost=&rule-tags=&\
        rule-methods=&rule-path=/b&rule-permissions=p&rule-cost=2&rule-tags=x%0D%0Ay&\
        limit-rule=1&limit-name=abc&limit-cost=&limit-limit=5&limit-window=1&limit-window-unit=min&\
        limit-rule=0&limit-name=&limit-cost=&limit-limit=&limit-window=&limit-window-unit=s&\
        limit-rule=7&limit-name=lost&limit-cost=&limit-limit=&limit-window=&limit-window-unit=s";

    fn rows() -> RuleRows {
        RuleRows::from_form(&Form::parse(TWO.as_bytes()))
    }

    fn paths(rows: &RuleRows) -> Vec<(&str, usize)> {
        rows.iter().map(|row| (row.path.as_str(), row.limits.len())).collect()
    }

    #[test]
    fn rule_rows_read_rules_with_their_limits() {
        let mut rows = rows();
        rows.remove_blank_limits();

        let mut fields = FieldReader::default();
        let rules = rows.read(&mut fields);

        let limit =
            GatewayLimit { name: "abc".into(), cost: None, limit: Some(5), duration: Some(60_000) };
        let first = GatewayRule {
            methods: vec!["GET".into()],
            path: Some("/a".into()),
            ..GatewayRule::default()
        };
        let second = GatewayRule {
            path: Some("/b".into()),
            permissions: Some("p".into()),
            cost: Some(2),
            ratelimits: vec![limit],
            tags: vec!["x".into(), "y".into()],
            ..GatewayRule::default()
        };
        assert!(fields.finish(()).is_ok());
        assert_eq!(rules, [first, second]);
        assert_eq!(RuleRows::from_rules(&rules).read(&mut FieldReader::default()), rules);
    }

    #[test]
    fn rule_rows_change_as_the_step_says() {
        for (step, expected) in [
            ("add-rule", vec![("/a", 1), ("/b", 1), ("", 0)]),
            ("remove-rule 0", vec![("/b", 1)]),
            ("remove-rule 2", vec![("/a", 1), ("/b", 1)]),
            ("raise-rule 1", vec![("/b", 1), ("/a", 1)]),
            ("raise-rule 0", vec![("/a", 1), ("/b", 1)]),
            ("add-limit 1", vec![("/a", 1), ("/b", 2)]),
            ("remove-limit 1 0", vec![("/a", 1), ("/b", 0)]),
            ("remove-limit 1 1", vec![("/a", 1), ("/b", 1)]),
            ("add-limit", vec![("/a", 1), ("/b", 1)]),
            ("save", vec![("/a", 1), ("/b", 1)]),
        ] {
            let mut rows = rows();
            rows.apply_step(step);
            assert_eq!(paths(&rows), expected, "{step}");
        }
    }

    #[test]
    fn rule_rows_get_no_row_when_their_maximum_is_reached() {
        let mut rows = RuleRows(vec![RuleRow::default(); RULES_MAX - 1]);
        for expected in [RULES_MAX, RULES_MAX] {
            rows.apply_step("add-rule");
            assert_eq!(rows.0.len(), expected);
        }
        for at in 0..7 {
            (0..=RULE_LIMITS_MAX).for_each(|_| rows.apply_step(&format!("add-limit {at}")));
            assert!(rows.0[at].limits.len() <= RULE_LIMITS_MAX);
        }
        assert_eq!(rows.count_limits(), FORM_LIMITS_MAX);
        assert!(!rows.has_limit_capacity());
    }

    #[test]
    fn rule_rows_report_the_path_of_each_invalid_field() {
        let mut rows = rows();
        rows.0[1].cost = "1000000000001".into();
        rows.0[1].tags = "t".repeat(513);
        rows.0[1].limits[0].window = DurationField::from_ms(999);

        let mut fields = FieldReader::default();
        rows.read(&mut fields);

        let Err(foundation::error::Error::Invalid(errors)) = fields.finish(()) else {
            panic!("no errors")
        };
        let paths: Vec<_> =
            errors.iter().map(|e| e.message.split(' ').next().unwrap_or_default()).collect();
        let expected = [
            "rules[0].ratelimits[0].name",
            "rules[1].ratelimits[0].duration",
            "rules[1].cost",
            "rules[1].tags[0]",
        ];
        assert_eq!(paths, expected);
    }
}
