//! Choosing the permissions of a role: by boxes for those that there are, as slugs for others.

use foundation::error::Result;

use super::super::form::Form;
use super::super::page_request::WorkspaceRequest;
use crate::domain::page::Paging;
use crate::domain::rbac;

/// How many permissions are offered beside those that are chosen.
const OFFERED: usize = 100;

/// The choice as it is filled in.
pub struct Choice {
    pub offers: Vec<Offer>,
    /// Whether there are permissions that are not offered.
    pub has_more: bool,
    /// Slugs that were written.
    pub more: String,
}

pub struct Offer {
    pub slug: String,
    pub is_checked: bool,
}

/// The slugs that a form tells, each once.
pub fn chosen(form: &Form) -> Vec<String> {
    let written = form.text("more").split([' ', ',', '\t', '\r', '\n']);
    let mut slugs: Vec<String> = Vec::new();
    for slug in form.all("permission").chain(written).filter(|slug| !slug.is_empty()) {
        if !slugs.iter().any(|known| known == slug) {
            slugs.push(slug.to_owned());
        }
    }
    slugs
}

impl Choice {
    /// With these checked.
    pub async fn of<'a>(
        asked: &WorkspaceRequest,
        checked: impl Iterator<Item = &'a str>,
        more: &str,
    ) -> Result<Self> {
        let offer = |slug: &str| Offer { slug: slug.to_owned(), is_checked: true };
        let mut offers: Vec<_> = checked.map(offer).collect();
        let paging = Paging { limit: OFFERED, ..Paging::default() };
        let found = rbac::list_permissions(&asked.visit.app, &asked.caller, &paging).await?;
        for permission in found.items {
            if !offers.iter().any(|offer| offer.slug == permission.slug) {
                offers.push(Offer { slug: permission.slug, is_checked: false });
            }
        }
        offers.sort_by(|a, b| a.slug.cmp(&b.slug));
        Ok(Self { offers, has_more: found.next.is_some(), more: more.to_owned() })
    }

    /// As a form was filled in.
    pub async fn again(asked: &WorkspaceRequest) -> Result<Self> {
        let form = &asked.visit.form;
        Self::of(asked, form.all("permission"), form.text("more")).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_and_what_is_written_is_chosen_once() {
        let form = Form::parse(b"permission=a.b&permission=c&more=c%0D%0Ad%2C+e%0D%0A%0D%0Aa.b");

        assert_eq!(chosen(&form), ["a.b", "c", "d", "e"]);
    }
}
