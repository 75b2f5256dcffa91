//! The filter of verifications by region.

use domain::context::Regions;
use foundation::config::REGION_CHARS_MAX;

use super::super::page_request::WorkspaceRequest;
use super::selection::Selection;

/// The select of the regions.
pub struct RegionFilter {
    /// The regions that are offered: name, whether it is selected.
    pub options: Vec<(String, bool)>,
    /// What is wrong with the region of the address.
    pub error: Option<String>,
}

impl RegionFilter {
    /// Offers the regions that this server knows, and the selected one. `error` is that of [`Selection::from_form`].
    pub fn new(request: &WorkspaceRequest, selection: &Selection, error: Option<String>) -> Self {
        let (app, selected) = (&request.page_request.app, selection.region.as_str());
        let mut options: Vec<(String, bool)> = Vec::new();
        if !selection.is_limits() {
            let listed = app.context.regions.iter().flat_map(Regions::names).map(String::as_str);
            for region in listed.chain([app.analytics.region(), selected]) {
                if !region.is_empty() && !options.iter().any(|(known, _)| known == region) {
                    options.push((region.to_owned(), region == selected));
                }
            }
        }
        Self { options, error }
    }

    /// Returns whether there is anything to show: a server without a region offers none.
    pub fn is_shown(&self) -> bool {
        !self.options.is_empty() || self.error.is_some()
    }
}

/// Parses the region of a filter; empty: all. A region that does not exist is valid: it has no verifications.
pub fn parse_region(text: &str) -> Result<String, String> {
    let region = text.trim();
    match region.chars().count() <= REGION_CHARS_MAX {
        true => Ok(region.to_owned()),
        false => Err(format!("Region must be at most {REGION_CHARS_MAX} characters")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_is_valid_up_to_the_maximum_length() {
        let longest = "x".repeat(REGION_CHARS_MAX);

        assert_eq!(parse_region(""), Ok(String::new()));
        assert_eq!(parse_region(&format!(" {longest} ")), Ok(longest.clone()));
        assert!(parse_region(&format!("{longest}x")).is_err());
    }
}
