//! Selecting roles and permissions by name: checkboxes for the existing ones, and a field for others.

use std::collections::HashSet;

use domain::page::Paging;
use domain::rbac;
use foundation::error::Result;

use super::super::form::Form;
use super::super::page_request::WorkspaceRequest;

/// The number of names that are offered in addition to the selected ones.
const OPTIONS_MAX: usize = 1_000;

/// Names to choose from.
pub struct NameChoice {
    pub options: Vec<NameOption>,
    /// Whether more names exist than are offered.
    pub has_more: bool,
}

pub struct NameOption {
    pub name: String,
    pub is_checked: bool,
}

/// The names that a form submits: those of checkboxes, and the lines of a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubmittedNames {
    /// All names, sorted, one per line.
    pub all: String,
    /// The lines of the field.
    pub typed: String,
}

impl SubmittedNames {
    pub fn from_form(form: &Form, checkbox: &str, field: &str) -> Self {
        let typed = form.text(field).replace("\r\n", "\n").trim().to_owned();
        Self { all: join_names(form.values(checkbox).chain(typed.lines())), typed }
    }
}

/// Sorts names and joins them, one per line, so that the same names are the same text.
pub fn join_names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut names: Vec<_> = names.map(str::trim).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    names.join("\n")
}

impl NameChoice {
    pub async fn load_roles(request: &WorkspaceRequest, all: &str, typed: &str) -> Result<Self> {
        let (context, paging) = (&request.page_request.app.context, first_names());
        let page = rbac::list_role_summaries(context, &request.caller, &paging).await?;
        let names = page.items.into_iter().map(|role| role.name);
        Ok(Self::new(names, page.next_start.is_some(), all, typed))
    }

    pub async fn load_permissions(
        request: &WorkspaceRequest,
        all: &str,
        typed: &str,
    ) -> Result<Self> {
        let (context, paging) = (&request.page_request.app.context, first_names());
        let page = rbac::list_permissions(context, &request.caller, &paging).await?;
        let slugs = page.items.into_iter().map(|permission| permission.slug);
        Ok(Self::new(slugs, page.next_start.is_some(), all, typed))
    }

    /// Offers the existing names and the selected ones. Those that are typed stay in their field.
    fn new(existing: impl Iterator<Item = String>, has_more: bool, all: &str, typed: &str) -> Self {
        let typed: HashSet<&str> = typed.lines().map(str::trim).collect();
        let checked = all.lines().filter(|name| !typed.contains(name));
        let mut options: Vec<_> =
            checked.map(|name| NameOption { name: name.to_owned(), is_checked: true }).collect();
        for name in existing {
            if options.iter().all(|option| option.name != name) {
                options.push(NameOption { name, is_checked: false });
            }
        }
        options.sort_by(|a, b| a.name.cmp(&b.name));
        Self { options, has_more }
    }
}

fn first_names() -> Paging {
    Paging::first_by_name(OPTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submitted_names_are_those_of_checkboxes_and_field() {
        let form = Form::parse(b"role=b&role=a&roles=c%0D%0A+a%0D%0A%0D%0Ad+");

        let names = SubmittedNames::from_form(&form, "role", "roles");
        assert_eq!((names.all.as_str(), names.typed.as_str()), ("a\nb\nc\nd", "c\n a\n\nd"));
    }

    #[test]
    fn choice_checks_selected_names_that_are_not_typed() {
        let existing = ["reader", "writer", "typed"].map(str::to_owned).into_iter();

        let choice = NameChoice::new(existing, false, "gone\nreader\ntyped", "typed");
        let found: Vec<_> =
            choice.options.iter().map(|option| (&*option.name, option.is_checked)).collect();
        let expected = [("gone", true), ("reader", true), ("typed", false), ("writer", false)];
        assert_eq!(found, expected);
    }
}
