//! Measures free space on disks.

use std::env;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};

/// Returns the free bytes of the disk of a directory, if the system reports them.
pub fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Returns where SQLite puts its temporary files: the first of its directories in which it can create one.
pub fn sqlite_temp_directory() -> PathBuf {
    let vars = ["SQLITE_TMPDIR", "TMPDIR"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let defaults = ["/var/tmp", "/usr/tmp", "/tmp"].into_iter().map(PathBuf::from);
    let is_usable = |directory: &PathBuf| {
        directory.is_dir() && access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
    };
    vars.chain(defaults).find(is_usable).unwrap_or_else(|| PathBuf::from("."))
}
