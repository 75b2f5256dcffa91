//! Checks of the data directory of an embedded server.

use std::path::Path;

use foundation::vault::file;
use rustix::fs::{Access, access, statvfs};

use super::{Finding, format_size};

/// The free space below which a finding is a warning, and below which it is a problem: SQLite may soon fail to write.
const FREE_SPACE_WARNING_BYTES: u64 = 1_000_000_000;
const FREE_SPACE_PROBLEM_BYTES: u64 = 100_000_000;

/// Checks that the directory is writable and that its disk has free space.
pub fn check_data_directory(data_dir: &Path) -> Vec<Finding> {
    let dir = data_dir.display();
    if !data_dir.exists() {
        let found = format!("{dir} does not exist yet: the first start creates it");
        let todo = "start the server, or set KEYWARD_DATA_DIR to where the data is";
        return vec![Finding::warning("data-directory", found, todo)];
    }
    let needed = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    let usable = match (data_dir.is_dir(), access(data_dir, needed)) {
        (true, Ok(())) => Finding::ok("data-directory", format!("{dir} is writable")),
        (true, Err(e)) => Finding::problem(
            "data-directory",
            format!("{dir} is not writable: {e}"),
            "make it writable for the user that runs the server, or set KEYWARD_DATA_DIR",
        ),
        (false, _) => Finding::problem(
            "data-directory",
            format!("{dir} is not a directory"),
            "set KEYWARD_DATA_DIR to a directory",
        ),
    };
    let space = match statvfs(data_dir) {
        Ok(found) => check_free_space(found.f_bavail.saturating_mul(found.f_frsize)),
        Err(e) => Finding::warning(
            "free-space",
            format!("failed to read the free space: {e}"),
            "check it with df",
        ),
    };
    vec![usable, space]
}

/// Reports a rotation of the master key that has not ended. `None`: there is none.
pub fn check_rotation(data_dir: &Path) -> Option<Finding> {
    let path = file::find_unfinished_rotation(data_dir)?;
    let found = format!("{} exists: a rotation of the master key has not ended", path.display());
    let todo = "run keyward vault rotate, which ends an interrupted rotation, unless it is running; keep the file \
        until then";
    Some(Finding::warning("master-key-file", found, todo))
}

/// Returns the finding for an amount of free space.
fn check_free_space(bytes: u64) -> Finding {
    let found = format!("{} free", format_size(bytes));
    let todo = "free disk space, or shorten the retention of events (KEYWARD_VERIFICATIONS_KEPT)";
    match bytes {
        ..FREE_SPACE_PROBLEM_BYTES => Finding::problem("free-space", found, todo),
        FREE_SPACE_PROBLEM_BYTES..FREE_SPACE_WARNING_BYTES => {
            Finding::warning("free-space", found, todo)
        }
        FREE_SPACE_WARNING_BYTES.. => Finding::ok("free-space", found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn free_space_is_a_warning_below_1_gb_and_a_problem_below_100_mb() {
        let states = [99_999_999, 100_000_000, 999_999_999, 1_000_000_000]
            .map(|b| check_free_space(b).state);

        assert_eq!(states, [Severity::Problem, Severity::Warning, Severity::Warning, Severity::Ok]);
    }
}
