//! The directory of an embedded server.

use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use super::{Finding, size};

/// Below which free space somebody should know, and below which SQLite may soon fail to write.
const WARNING_BYTES: u64 = 1_000_000_000;
const PROBLEM_BYTES: u64 = 100_000_000;

/// Whether the directory can be used, and for how long yet.
pub fn look(data_dir: &Path) -> Vec<Finding> {
    let dir = data_dir.display();
    if !data_dir.exists() {
        let found = format!("there is no {dir} yet: the first start makes it");
        let todo = "start the server, or set KEYWARD_DATA_DIR to where the data is";
        return vec![Finding::warning("data-directory", found, todo)];
    }
    let may = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    let usable = match (data_dir.is_dir(), access(data_dir, may)) {
        (true, Ok(())) => Finding::ok("data-directory", format!("{dir} can be written")),
        (true, Err(e)) => Finding::problem(
            "data-directory",
            format!("{dir} cannot be written: {e}"),
            "make it writable for the user that the server runs as, or set KEYWARD_DATA_DIR",
        ),
        (false, _) => Finding::problem(
            "data-directory",
            format!("{dir} is no directory"),
            "set KEYWARD_DATA_DIR to a directory",
        ),
    };
    let space = match statvfs(data_dir) {
        Ok(found) => space(found.f_bavail.saturating_mul(found.f_frsize)),
        Err(e) => Finding::warning(
            "free-space",
            format!("it could not be found out: {e}"),
            "look with df how much is free",
        ),
    };
    vec![usable, space]
}

/// What is said of so much free space.
fn space(bytes: u64) -> Finding {
    let found = format!("{} free", size(bytes));
    let todo = "make room, or keep events for fewer days (KEYWARD_VERIFICATIONS_KEPT)";
    match bytes {
        ..PROBLEM_BYTES => Finding::problem("free-space", found, todo),
        PROBLEM_BYTES..WARNING_BYTES => Finding::warning("free-space", found, todo),
        WARNING_BYTES.. => Finding::ok("free-space", found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn less_than_a_gigabyte_is_a_warning_and_less_than_a_tenth_of_it_a_problem() {
        let states = [99_999_999, 100_000_000, 999_999_999, 1_000_000_000].map(|b| space(b).state);

        assert_eq!(states, [Severity::Problem, Severity::Warning, Severity::Warning, Severity::Ok]);
    }
}
