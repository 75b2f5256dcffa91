//! Form rows for the namespaces that the rate-limit service may use through a gateway policy.

use domain::bounds::{CHECK_DURATION_MAX_MS, DURATION_MIN_MS, IDENTIFIER_MAX};
use domain::gateways::NAMESPACES_MAX;
use foundation::model::{AllowedChars, DefaultLimit, EnforcementMode, GatewayNamespace};
use serde::{Deserialize, Serialize};

use super::super::duration_field::{DurationField, nth_value};
use super::super::field_reader::FieldReader;
use super::super::form::Form;

/// The form value of [`EnforcementMode::Shadow`].
const SHADOW: &str = "shadow";
/// The form value if refused calls count.
const COUNT: &str = "count";

/// The fields of one namespace, as submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceRow {
    pub namespace: String,
    pub limit: String,
    pub window: DurationField,
    pub is_shadow: bool,
    pub counts_refused: bool,
}

impl Default for NamespaceRow {
    fn default() -> Self {
        let [namespace, limit] = [const { String::new() }; 2];
        let window = DurationField::empty();
        Self { namespace, limit, window, is_shadow: false, counts_refused: false }
    }
}

impl NamespaceRow {
    fn from_namespace(namespace: &GatewayNamespace) -> Self {
        let default = namespace.default_limit;
        Self {
            namespace: namespace.namespace.clone(),
            limit: default.map(|default| default.limit.to_string()).unwrap_or_default(),
            window: default.map_or_else(DurationField::empty, |default| {
                DurationField::from_ms(default.duration)
            }),
            is_shadow: namespace.mode == EnforcementMode::Shadow,
            counts_refused: namespace.count_refused,
        }
    }

    fn is_blank(&self) -> bool {
        [&self.namespace, &self.limit, &self.window.number].into_iter().all(String::is_empty)
    }

    fn read(&self, fields: &mut FieldReader, at: usize) -> GatewayNamespace {
        let path = |field: &str| format!("namespaces[{at}].{field}");
        let (lengths, chars) = (1..=IDENTIFIER_MAX, AllowedChars::NonNul);
        let durations = DURATION_MIN_MS..=CHECK_DURATION_MAX_MS;
        let namespace = fields.text(&path("namespace"), &self.namespace, lengths, chars);
        let has_default = !self.limit.is_empty() || !self.window.number.is_empty();
        let default_limit = has_default.then(|| DefaultLimit {
            limit: fields.integer(&path("defaultLimit.limit"), &self.limit, 0..=i64::MAX),
            duration: fields.duration_ms(&path("defaultLimit.duration"), &self.window, durations),
        });
        let mode = match self.is_shadow {
            true => EnforcementMode::Shadow,
            false => EnforcementMode::Enforce,
        };
        GatewayNamespace { namespace, default_limit, mode, count_refused: self.counts_refused }
    }
}

/// The namespaces of a form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NamespaceRows(Vec<NamespaceRow>);

impl NamespaceRows {
    /// Creates rows from stored namespaces.
    pub fn from_namespaces(namespaces: &[GatewayNamespace]) -> Self {
        Self(namespaces.iter().map(NamespaceRow::from_namespace).collect())
    }

    /// Reads the rows of a form.
    pub fn from_form(form: &Form) -> Self {
        let row = |at: usize| NamespaceRow {
            namespace: nth_value(form, "namespace", at).trim().to_owned(),
            limit: nth_value(form, "namespace-limit", at).trim().to_owned(),
            window: DurationField::from_form(form, "namespace-window", at),
            is_shadow: nth_value(form, "namespace-mode", at) == SHADOW,
            counts_refused: nth_value(form, "namespace-refused", at) == COUNT,
        };
        Self((0..form.values("namespace").count()).map(row).collect())
    }

    /// Adds or removes a row, as the pressed button says.
    pub fn apply_step(&mut self, step: &str) {
        match step.split_once(' ') {
            None if step == "add-namespace" && self.has_capacity() => {
                self.0.push(NamespaceRow::default());
            }
            Some(("remove-namespace", at)) => {
                if let Some(at) = at.parse().ok().filter(|at: &usize| *at < self.0.len()) {
                    self.0.remove(at);
                }
            }
            _ => {}
        }
    }

    /// Removes the rows without any value.
    pub fn remove_blank(&mut self) {
        self.0.retain(|row| !row.is_blank());
    }

    pub fn iter(&self) -> std::slice::Iter<'_, NamespaceRow> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has_capacity(&self) -> bool {
        self.0.len() < NAMESPACES_MAX
    }

    /// Reads the namespaces.
    pub fn read(&self, fields: &mut FieldReader) -> Vec<GatewayNamespace> {
        self.0.iter().enumerate().map(|(at, row)| row.read(fields, at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "namespace=a&namespace-limit=5&namespace-window=1&namespace-window-unit=s&\
        namespace-mode=shadow&namespace-refused=count&namespace=&namespace-limit=&namespace-window=&\
        namespace-window-unit=min&namespace-mode=enforce&namespace-refused=ignore&namespace=b&\
        namespace-limit=&namespace-window=&namespace-window-unit=min&namespace-mode=enforce&\
        namespace-refused=ignore";

    fn rows() -> NamespaceRows {
        NamespaceRows::from_form(&Form::parse(THREE.as_bytes()))
    }

    #[test]
    fn namespace_rows_read_all_but_blank_rows() {
        let mut rows = rows();
        rows.remove_blank();

        let mut fields = FieldReader::default();
        let namespaces = rows.read(&mut fields);

        assert!(fields.finish(()).is_ok());
        let expected = [
            GatewayNamespace {
                namespace: "a".into(),
                default_limit: Some(DefaultLimit { limit: 5, duration: 1_000 }),
                mode: EnforcementMode::Shadow,
                count_refused: true,
            },
            GatewayNamespace {
                namespace: "b".into(),
                default_limit: None,
                mode: EnforcementMode::Enforce,
                count_refused: false,
            },
        ];
        assert_eq!(namespaces, expected);
        let again = NamespaceRows::from_namespaces(&namespaces);
        assert_eq!(again.read(&mut FieldReader::default()), expected);
    }

    #[test]
    fn namespace_rows_change_as_the_step_says() {
        let after = |step: &str| {
            let mut rows = rows();
            rows.apply_step(step);
            rows.iter().map(|row| row.namespace.clone()).collect::<Vec<_>>().join(",")
        };

        assert_eq!(after("add-namespace"), "a,,b,");
        assert_eq!(after("remove-namespace 0"), ",b");
        assert_eq!(after("remove-namespace 3"), "a,,b");
        assert_eq!(after("add-rule"), "a,,b");
        let mut rows = NamespaceRows(vec![NamespaceRow::default(); NAMESPACES_MAX]);
        rows.apply_step("add-namespace");
        assert_eq!((rows.0.len(), rows.has_capacity()), (NAMESPACES_MAX, false));
    }
}
