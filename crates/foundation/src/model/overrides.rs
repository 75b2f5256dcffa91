//! Finds the active override of an identifier in a namespace.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::Override;
use crate::clock::Timestamp;

/// The maximum number of `*` in a pattern.
pub const WILDCARDS_MAX: usize = 8;

/// The overrides of one namespace, indexed for lookup.
#[derive(Debug, Default)]
pub struct Overrides {
    overrides: Vec<Override>,
    /// Indexes in `all`, by the stored identifier, including patterns.
    index_by_identifier: HashMap<Box<str>, usize>,
    /// The patterns in order of preference.
    patterns: Vec<Pattern>,
}

impl Overrides {
    pub fn new(all: Vec<Override>) -> Self {
        let exact =
            all.iter().enumerate().map(|(index, item)| (item.identifier.as_str().into(), index));
        let exact = exact.collect();
        let parsed = all
            .iter()
            .enumerate()
            .filter_map(|(index, item)| Some((index, Pattern::parse(index, &item.identifier)?)));
        let mut patterns: Vec<_> = parsed.collect();
        patterns.sort_by_cached_key(|(index, pattern)| {
            (Reverse(pattern.literal_chars), all[*index].created_at, all[*index].id.clone())
        });
        let patterns = patterns.into_iter().map(|(_, pattern)| pattern).collect();
        Self { overrides: all, index_by_identifier: exact, patterns }
    }

    pub fn as_slice(&self) -> &[Override] {
        &self.overrides
    }

    /// Returns the override for an identifier: the first candidate that is active.
    pub fn find_active(&self, identifier: &str, now: Timestamp) -> Option<&Override> {
        self.find_active_by_name(identifier, identifier, now)
    }

    /// Returns the override for an identifier whose counter has a shorter name: the first active one of that stored for
    /// exactly the name, and of the patterns that match the whole identifier.
    pub fn find_active_by_name(
        &self,
        name: &str,
        identifier: &str,
        now: Timestamp,
    ) -> Option<&Override> {
        self.candidates_by_name(name, identifier).find(|candidate| candidate.is_active(now))
    }

    /// Returns the candidates for an identifier: the override stored for exactly this text, then the patterns that
    /// match it, longest literal part first, then oldest first.
    pub fn candidates_for<'a, 'i>(
        &'a self,
        identifier: &'i str,
    ) -> impl Iterator<Item = &'a Override> + use<'a, 'i> {
        self.candidates_by_name(identifier, identifier)
    }

    fn candidates_by_name<'a, 'i>(
        &'a self,
        name: &str,
        identifier: &'i str,
    ) -> impl Iterator<Item = &'a Override> + use<'a, 'i> {
        let exact = self.index_by_identifier.get(name).copied();
        // An identifier may be the text of a pattern.
        let others =
            self.patterns.iter().filter(move |pattern| Some(pattern.override_index) != exact);
        let matching = others.filter(move |pattern| pattern.matches(identifier));
        exact
            .into_iter()
            .chain(matching.map(|pattern| pattern.override_index))
            .filter_map(|at| self.overrides.get(at))
    }
}

/// A pattern, split at its `*`.
#[derive(Debug)]
struct Pattern {
    /// The index of its override.
    override_index: usize,
    prefix: Box<str>,
    infixes: Box<[Box<str>]>,
    suffix: Box<str>,
    /// The number of characters that are not `*`.
    literal_chars: usize,
}

impl Pattern {
    /// Parses a pattern. Returns `None` if it has no `*`.
    fn parse(at: usize, text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('*')?;
        let (middle, last) =
            rest.rsplit_once('*').map_or((None, rest), |(m, last)| (Some(m), last));
        let middle =
            middle.into_iter().flat_map(|middle| middle.split('*')).map(Box::from).collect();
        let literal = text.chars().filter(|c| *c != '*').count();
        Some(Self {
            override_index: at,
            prefix: first.into(),
            infixes: middle,
            suffix: last.into(),
            literal_chars: literal,
        })
    }

    /// Returns whether the whole text matches the pattern, where each `*` matches any number of characters of one line.
    /// Each part is matched at its first occurrence, so the text is scanned once.
    fn matches(&self, text: &str) -> bool {
        let rest = text.strip_prefix(&*self.prefix);
        let Some(mut rest) = rest.and_then(|rest| rest.strip_suffix(&*self.suffix)) else {
            return false;
        };
        for part in &self.infixes {
            match rest.find(&**part) {
                Some(at) if !rest[..at].contains('\n') => rest = &rest[at + part.len()..],
                Some(_) | None => return false,
            }
        }
        !rest.contains('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::OverrideId;

    fn build_overrides(identifiers: &[&str]) -> Overrides {
        let build = |(at, identifier): (usize, &&str)| Override {
            is_approximate: false,
            id: OverrideId::from(format!("rlor_{at}")),
            identifier: (*identifier).to_owned(),
            limit: 1,
            duration_ms: 1000,
            expires_at: None,
            created_at: Timestamp(i64::try_from(at).unwrap_or(0)),
            updated_at: None,
        };
        Overrides::new(identifiers.iter().enumerate().map(build).collect())
    }

    #[test]
    fn find_active_prefers_exact_text_then_longest_then_oldest_pattern() {
        let overrides =
            build_overrides(&["*", "u*", "user_*", "*_vip!", "user_1", "us*r_", "*er_*"]);
        let found = |identifier: &str| {
            let found = overrides.find_active(identifier, Timestamp(0));
            found.map(|item| item.identifier.as_str())
        };

        assert_eq!(found("user_1"), Some("user_1"));
        assert_eq!(found("user_2"), Some("user_*"));
        // Both have five literal characters; the first is older.
        assert_eq!(found("user_vip!"), Some("user_*"));
        assert_eq!(found("the_vip!"), Some("*_vip!"));
        assert_eq!(found("the_VIP!"), Some("*"));
        assert_eq!(found("u"), Some("u*"));
        assert_eq!(found("*er_*"), Some("*er_*"));
        assert_eq!(found("line\nbreak"), None);
    }

    #[test]
    fn find_active_by_name_matches_the_name_as_it_is_and_patterns_with_the_whole_identifier() {
        let overrides = build_overrides(&["user=a*", "user=*|path=/b", "user=aa~1", "*~2"]);
        let found = |name: &str| {
            let found = overrides.find_active_by_name(name, "user=aaaa|path=/b", Timestamp(0));
            found.map(|item| item.identifier.as_str())
        };

        assert_eq!(found("user=aa~1"), Some("user=aa~1"));
        assert_eq!(found("user=aa~2"), Some("user=*|path=/b"));
    }

    #[test]
    fn override_applies_until_it_expires() {
        let mut overrides = build_overrides(&["user_1", "user_*", "*"]);
        overrides.overrides[0].expires_at = Some(Timestamp(5));
        overrides.overrides[1].expires_at = Some(Timestamp(6));
        let found = |now: i64| {
            let found = overrides.find_active("user_1", Timestamp(now));
            found.map(|item| item.identifier.as_str())
        };

        assert_eq!([5, 6, 7].map(found), [Some("user_1"), Some("user_*"), Some("*")]);
    }

    #[test]
    fn candidates_are_all_matches_in_order_each_once() {
        let overrides = build_overrides(&["*", "u*", "user_*", "nobody", "user_1", "*er_*"]);
        let candidates = |identifier: &str| -> Vec<_> {
            overrides.candidates_for(identifier).map(|item| item.identifier.clone()).collect()
        };

        assert_eq!(candidates("user_1"), ["user_1", "user_*", "*er_*", "u*", "*"]);
        assert_eq!(candidates("*er_*"), ["*er_*", "*"]);
        assert_eq!(candidates("nobody"), ["nobody", "*"]);
        assert!(candidates("a\nb").is_empty());
    }

    #[test]
    fn wildcard_matches_within_one_line() {
        let overrides = build_overrides(&["a*b", "x*\n*y"]);
        let applies = |text: &str| overrides.find_active(text, Timestamp(0)).is_some();

        assert!(applies("a--b") && applies("x1\n2y"));
        assert!(!applies("a\nb") && !applies("x\n\ny") && !applies("x1\n2\n3y"));
    }
}
