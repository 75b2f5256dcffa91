//! Which APIs a root key can use: all, specific ones, or none.

use domain::permission;

use super::super::form::Form;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiScope {
    All,
    Specific,
    None,
}

/// An option of the question which APIs the root key can use.
pub struct ScopeOption {
    pub value: &'static str,
    pub label: &'static str,
    pub hint: &'static str,
    pub is_selected: bool,
}

impl ApiScope {
    const OPTIONS: [Self; 3] = [Self::All, Self::Specific, Self::None];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Specific => "specific",
            Self::None => "none",
        }
    }

    /// Returns the answer of a form. `None`: the form has none.
    pub fn from_form(form: &Form) -> Option<Self> {
        let text = form.text("scope");
        Self::OPTIONS.into_iter().find(|scope| scope.as_str() == text)
    }

    /// Returns the answer that a page shows: that of its form, or else what the template or the selection says. `None`:
    /// the user has yet to answer.
    pub fn selected(form: &Form, tuples: &[String]) -> Option<Self> {
        if let Some(scope) = Self::from_form(form) {
            return Some(scope);
        }
        let has_api =
            form.values("on-api").next().is_some() || form.text("add").starts_with("api ");
        let on_apis = |is_meant: fn(&str) -> bool| {
            let mut granted = tuples.iter().filter_map(|tuple| permission::parse_tuple(tuple).ok());
            granted.any(|(action, id)| action.resource() == "api" && is_meant(id))
        };
        match form.text("template") {
            // These templates are for a service, which often needs only some APIs.
            "verify" | "keys" if !has_api => None,
            "limits" => Some(Self::None),
            _ if has_api || on_apis(|id| id != "*") => Some(Self::Specific),
            _ => on_apis(|id| id == "*").then_some(Self::All),
        }
    }

    /// Returns whether a permission is granted: those on APIs only if they are in the scope.
    fn includes(self, tuple: &str) -> bool {
        let Ok((action, id)) = permission::parse_tuple(tuple) else { return true };
        let is_on_api = action.resource() == "api";
        match self {
            Self::All => !is_on_api || id == "*",
            Self::Specific => !is_on_api || id != "*",
            Self::None => !is_on_api,
        }
    }

    pub fn options(selected: Option<Self>) -> Vec<ScopeOption> {
        let option = |scope: Self| {
            let (label, hint) = match scope {
                Self::All => ("All APIs", "Includes APIs that are created later"),
                Self::Specific => ("Specific APIs", "Only the APIs that you add"),
                Self::None => ("No APIs", "For rate limits, identities and other resources"),
            };
            let is_selected = selected == Some(scope);
            ScopeOption { value: scope.as_str(), label, hint, is_selected }
        };
        Self::OPTIONS.into_iter().map(option).collect()
    }
}

/// Returns the selected permissions without duplicates, and without those on APIs that the answer excludes: the page hides
/// them.
pub fn granted_tuples(form: &Form) -> Vec<String> {
    let scope = ApiScope::from_form(form);
    let mut tuples: Vec<String> = Vec::new();
    for tuple in form.values("permission") {
        let is_included = scope.is_none_or(|scope| scope.includes(tuple));
        if is_included && !tuples.iter().any(|known| known == tuple) {
            tuples.push(tuple.to_owned());
        }
    }
    tuples
}

/// Checks that specific APIs are named if the root key is for specific ones.
pub fn check_scope(form: &Form, tuples: &[String]) -> Result<(), &'static str> {
    let names_api = tuples.iter().any(|tuple| tuple.starts_with("api."));
    if ApiScope::from_form(form) == Some(ApiScope::Specific) && !names_api {
        return Err("Add an API and select its permissions, or select All APIs or No APIs.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(query: &str) -> Vec<String> {
        granted_tuples(&Form::parse(query.as_bytes()))
    }

    #[test]
    fn granted_tuples_are_those_of_the_scope_without_duplicates() {
        let all = "&permission=api.*.verify_key&permission=api.api_1.verify_key\
            &permission=ratelimit.*.limit&permission=api.*.verify_key&permission=no+tuple";

        let (wildcard, specific) = ("api.*.verify_key", "api.api_1.verify_key");
        let others = ["ratelimit.*.limit", "no tuple"];
        assert_eq!(granted(&format!("scope=all{all}")), [wildcard, others[0], others[1]]);
        assert_eq!(granted(&format!("scope=specific{all}")), [specific, others[0], others[1]]);
        assert_eq!(granted(&format!("scope=none{all}")), others);
        for none in ["", "scope=some"] {
            let expected = [wildcard, specific, others[0], others[1]];
            assert_eq!(granted(&format!("{none}{all}")), expected);
        }
    }

    #[test]
    fn scope_follows_from_template_and_selection() {
        for (query, tuple, expected) in [
            ("", "", None),
            ("", "api.*.read_api", Some(ApiScope::All)),
            ("", "api.api_1.read_api", Some(ApiScope::Specific)),
            ("", "ratelimit.*.limit", None),
            ("on-api=api_1", "api.*.read_api", Some(ApiScope::Specific)),
            ("add=api+api_1", "", Some(ApiScope::Specific)),
            ("add=ratelimit+rlns_1", "", None),
            ("template=verify", "api.*.verify_key", None),
            ("template=verify&on-api=api_1", "api.*.verify_key", Some(ApiScope::Specific)),
            ("template=verify&scope=all", "api.*.verify_key", Some(ApiScope::All)),
            ("template=limits", "ratelimit.*.limit", Some(ApiScope::None)),
            ("template=all", "api.*.read_api", Some(ApiScope::All)),
        ] {
            let form = Form::parse(query.as_bytes());
            assert_eq!(ApiScope::selected(&form, &[tuple.to_owned()]), expected, "{query} {tuple}");
        }
    }

    #[test]
    fn specific_scope_requires_an_api() {
        let checks = |query: &str| {
            let form = Form::parse(query.as_bytes());
            check_scope(&form, &granted_tuples(&form)).is_ok()
        };

        assert!(!checks("scope=specific&permission=ratelimit.*.limit&permission=api.*.read_api"));
        assert!(checks("scope=specific&permission=api.api_1.read_api"));
        assert!(checks("scope=none&permission=ratelimit.*.limit"));
        assert!(checks("scope=all") && checks(""));
    }
}
