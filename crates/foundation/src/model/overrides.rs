//! The overrides of a namespace, prepared so that the one that applies is found quickly.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::Override;
use crate::clock::Timestamp;

/// How many stars a pattern may have.
pub const STARS_MAX: usize = 8;

/// The overrides of one namespace.
#[derive(Debug, Default)]
pub struct Overrides {
    all: Vec<Override>,
    /// Places in `all`, by the identifier as it is stored, patterns too.
    exact: HashMap<Box<str>, usize>,
    /// The one to prefer first.
    patterns: Vec<Pattern>,
}

impl Overrides {
    pub fn new(all: Vec<Override>) -> Self {
        let exact =
            all.iter().enumerate().map(|(at, known)| (known.identifier.as_str().into(), at));
        let exact = exact.collect();
        let parsed = all
            .iter()
            .enumerate()
            .filter_map(|(at, known)| Some((at, Pattern::new(at, &known.identifier)?)));
        let mut patterns: Vec<_> = parsed.collect();
        patterns.sort_by_cached_key(|(at, pattern)| {
            (Reverse(pattern.literal), all[*at].created_at, all[*at].id.clone())
        });
        let patterns = patterns.into_iter().map(|(_, pattern)| pattern).collect();
        Self { all, exact, patterns }
    }

    /// The override for an identifier: the first of those that are tried for it that is live.
    pub fn find_active(&self, identifier: &str, now: Timestamp) -> Option<&Override> {
        self.candidates_for(identifier).find(|known| known.is_live(now))
    }

    /// What is tried for an identifier: the one that is stored for exactly this text, then the patterns that match it,
    /// that with the longest literal part first, then the older one.
    pub fn candidates_for<'a, 'i>(
        &'a self,
        identifier: &'i str,
    ) -> impl Iterator<Item = &'a Override> + use<'a, 'i> {
        let exact = self.exact.get(identifier).copied();
        // A pattern may be asked for by its own text.
        let others = self.patterns.iter().filter(move |pattern| Some(pattern.at) != exact);
        let matching = others.filter(move |pattern| pattern.matches(identifier));
        exact
            .into_iter()
            .chain(matching.map(|pattern| pattern.at))
            .filter_map(|at| self.all.get(at))
    }
}

/// A pattern, cut at its stars.
#[derive(Debug)]
struct Pattern {
    /// Its override's place.
    at: usize,
    first: Box<str>,
    middle: Box<[Box<str>]>,
    last: Box<str>,
    /// How many characters are not stars.
    literal: usize,
}

impl Pattern {
    /// `None`: there is no star in it.
    fn new(at: usize, text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('*')?;
        let (middle, last) =
            rest.rsplit_once('*').map_or((None, rest), |(m, last)| (Some(m), last));
        let middle =
            middle.into_iter().flat_map(|middle| middle.split('*')).map(Box::from).collect();
        let literal = text.chars().filter(|c| *c != '*').count();
        Some(Self { at, first: first.into(), middle, last: last.into(), literal })
    }

    /// Whether the whole text is the pattern with each star replaced by some characters of a line, or none. Each
    /// part is taken where it occurs first, so the text is walked through once.
    fn matches(&self, text: &str) -> bool {
        let rest = text.strip_prefix(&*self.first);
        let Some(mut rest) = rest.and_then(|rest| rest.strip_suffix(&*self.last)) else {
            return false;
        };
        for part in &self.middle {
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

    fn made(identifiers: &[&str]) -> Overrides {
        let made = |(at, identifier): (usize, &&str)| Override {
            is_async: false,
            id: OverrideId::from(format!("rlor_{at}")),
            identifier: (*identifier).to_owned(),
            limit: 1,
            duration_ms: 1000,
            expires_at: None,
            created_at: Timestamp(i64::try_from(at).unwrap_or(0)),
            updated_at: None,
        };
        Overrides::new(identifiers.iter().enumerate().map(made).collect())
    }

    #[test]
    fn the_exact_text_precedes_patterns_then_the_longest_then_the_older() {
        let overrides = made(&["*", "u*", "user_*", "*_vip!", "user_1", "us*r_", "*er_*"]);
        let found = |identifier: &str| {
            let found = overrides.find_active(identifier, Timestamp(0));
            found.map(|known| known.identifier.as_str())
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
    fn an_override_applies_up_to_its_last_moment() {
        let mut overrides = made(&["user_1", "user_*", "*"]);
        overrides.all[0].expires_at = Some(Timestamp(5));
        overrides.all[1].expires_at = Some(Timestamp(6));
        let found = |now: i64| {
            let found = overrides.find_active("user_1", Timestamp(now));
            found.map(|known| known.identifier.as_str())
        };

        assert_eq!([5, 6, 7].map(found), [Some("user_1"), Some("user_*"), Some("*")]);
    }

    #[test]
    fn all_that_match_are_tried_in_order_each_once() {
        let overrides = made(&["*", "u*", "user_*", "nobody", "user_1", "*er_*"]);
        let tried = |identifier: &str| -> Vec<_> {
            overrides.candidates_for(identifier).map(|known| known.identifier.clone()).collect()
        };

        assert_eq!(tried("user_1"), ["user_1", "user_*", "*er_*", "u*", "*"]);
        assert_eq!(tried("*er_*"), ["*er_*", "*"]);
        assert_eq!(tried("nobody"), ["nobody", "*"]);
        assert!(tried("a\nb").is_empty());
    }

    #[test]
    fn a_star_stands_for_what_is_in_one_line() {
        let overrides = made(&["a*b", "x*\n*y"]);
        let applies = |text: &str| overrides.find_active(text, Timestamp(0)).is_some();

        assert!(applies("a--b") && applies("x1\n2y"));
        assert!(!applies("a\nb") && !applies("x\n\ny") && !applies("x1\n2\n3y"));
    }
}
