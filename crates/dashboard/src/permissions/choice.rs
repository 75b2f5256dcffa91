//! Selecting the permissions of a role: checkboxes for existing permissions, slugs for others.

use std::collections::HashSet;

use domain::bounds::{PERMISSIONS_MAX, SLUG_MAX};
use domain::page::Paging;
use domain::rbac;
use foundation::error::Result;
use foundation::model::AllowedChars;

use super::super::field_reader::FieldReader;
use super::super::form::Form;
use super::super::page_request::WorkspaceRequest;

/// The number of permissions offered in addition to the selected ones.
const OPTIONS_MAX: usize = 1_000;

/// The selection, as submitted.
pub struct PermissionChoice {
    pub options: Vec<PermissionOption>,
    /// Whether more permissions exist than are offered.
    pub has_more: bool,
    /// The text of the field for other slugs.
    pub other_slugs: String,
}

pub struct PermissionOption {
    pub slug: String,
    pub is_checked: bool,
}

/// Reads the slugs of a form, without duplicates.
pub fn read_slugs(fields: &mut FieldReader, form: &Form) -> Vec<String> {
    let slugs = selected_slugs(form);
    fields.texts("permissions", &slugs, PERMISSIONS_MAX, SLUG_MAX, AllowedChars::Slug)
}

fn selected_slugs(form: &Form) -> Vec<&str> {
    let written = form.text("more").split([' ', ',', '\t', '\r', '\n']);
    let slugs = form.values("permission").chain(written).filter(|slug| !slug.is_empty());
    let mut known = HashSet::new();
    slugs.filter(|slug| known.insert(*slug)).collect()
}

/// Applies to the stored slugs of a role what the user changed in its form: the slugs that were added to the original
/// ones, which are separated by spaces, and those that were removed from them.
pub fn apply_changes(
    mut stored: Vec<String>,
    selected: &[String],
    original: &str,
) -> Result<Vec<String>> {
    let original: HashSet<_> = original.split_whitespace().collect();
    stored.retain(|slug| selected.contains(slug) || !original.contains(slug.as_str()));
    let is_added = |slug: &&String| !original.contains(slug.as_str()) && !stored.contains(slug);
    let added: Vec<_> = selected.iter().filter(is_added).cloned().collect();
    stored.extend(added);
    let mut fields = FieldReader::default();
    fields.check_count("permissions", stored.len(), PERMISSIONS_MAX);
    fields.finish(stored)
}

impl PermissionChoice {
    /// Creates the selection with these slugs checked.
    pub async fn load<'a>(
        request: &WorkspaceRequest,
        checked: impl Iterator<Item = &'a str>,
        more: &str,
    ) -> Result<Self> {
        let offer = |slug: &str| PermissionOption { slug: slug.to_owned(), is_checked: true };
        let mut offers: Vec<_> = checked.map(offer).collect();
        let paging = Paging::first_by_name(OPTIONS_MAX);
        let found =
            rbac::list_permissions(&request.page_request.app.context, &request.caller, &paging)
                .await?;
        for permission in found.items {
            if !offers.iter().any(|offer| offer.slug == permission.slug) {
                offers.push(PermissionOption { slug: permission.slug, is_checked: false });
            }
        }
        offers.sort_by(|a, b| a.slug.cmp(&b.slug));
        Ok(Self {
            options: offers,
            has_more: found.next_start.is_some(),
            other_slugs: more.to_owned(),
        })
    }

    /// Creates the selection from the submitted form.
    pub async fn from_form(request: &WorkspaceRequest) -> Result<Self> {
        let form = &request.page_request.form;
        Self::load(request, form.values("permission"), form.text("more")).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selected_slugs_merges_checked_and_written_slugs() {
        let form = Form::parse(b"permission=a.b&permission=c&more=c%0D%0Ad%2C+e%0D%0A%0D%0Aa.b");

        assert_eq!(selected_slugs(&form), ["a.b", "c", "d", "e"]);
    }

    #[test]
    fn apply_changes_keeps_what_the_user_did_not_change() {
        let slugs = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();

        // Meanwhile, `b` was removed and `x` and `d` were added.
        let changed = apply_changes(slugs("a c x d"), &slugs("a b d e"), "a b c");
        assert_eq!(changed.expect("the slugs"), ["a", "x", "d", "e"]);
    }

    #[test]
    fn apply_changes_rejects_more_than_1000_slugs() {
        let slugs: Vec<_> = (0..1_000).map(|number| format!("s{number}")).collect();
        let is_accepted =
            |added: &str| apply_changes(slugs.clone(), &[added.to_owned()], "").is_ok();

        assert_eq!([is_accepted("s999"), is_accepted("more")], [true, false]);
    }
}
