//! Fuzzes the permissions of a root key against the tuples themselves.

use domain::permission::{self, Action, Grants};

use crate::compose;

const PIECES: &[&str] = &[
    "api.",
    "*.",
    "read_key\n",
    "create_key\n",
    "api_1.",
    "ratelimit.",
    "limit\n",
    "rbac.*.create_role\n",
    "identity.id_1.read_identity\n",
    ".",
    "\n",
    "é",
    "api.*.read_api\n",
    "a b.",
    "*",
    "read_key",
];

/// An input is one tuple per line.
#[test]
fn tuple_grants_all_instances_when_star_and_one_when_id() {
    bolero::check!(name = "grants").for_each(|bytes: &[u8]| {
        for text in [String::from_utf8_lossy(bytes).into_owned(), compose(bytes, PIECES).concat()] {
            let tuples: Vec<&str> = text.split('\n').take(8).collect();
            let grants: Grants = tuples.iter().copied().collect();
            let named = tuples.iter().filter_map(|tuple| tuple.split('.').nth(1));
            let ids: Vec<&str> =
                named.filter(|id| is_id(id)).chain(["api_1", "elsewhere"]).collect();

            for action in Action::ALL {
                let is_everywhere = tuples.contains(&&*action.to_wildcard_tuple());
                assert_eq!(grants.is_allowed(*action), is_everywhere, "{action:?} in {text:?}");
                for id in &ids {
                    let is_here = tuples.contains(&&*action.to_tuple(id));
                    let is_granted = grants.is_allowed_on(*action, id);
                    assert_eq!(
                        is_granted,
                        is_everywhere || is_here,
                        "{action:?} on {id} in {text:?}"
                    );
                }
            }
            tuples.into_iter().for_each(assert_parts_match_tuple);
        }
    });
}

fn assert_parts_match_tuple(tuple: &str) {
    match permission::parse_tuple(tuple) {
        Ok((action, id)) => {
            assert_eq!(action.to_tuple(id), tuple);
            assert!(id == "*" || is_id(id), "{tuple:?}");
        }
        Err(fault) => {
            assert!(fault.contains(tuple), "{fault}");
            let is_tuple = |action: &Action| {
                let inner = tuple.strip_prefix(action.resource())?.strip_suffix(action.action())?;
                let id = inner.strip_prefix('.')?.strip_suffix('.')?;
                Some(id == "*" || is_id(id))
            };
            assert!(!Action::ALL.iter().any(|action| is_tuple(action) == Some(true)), "{fault}");
        }
    }
}

fn is_id(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
