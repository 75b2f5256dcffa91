//! Stores the master key of an embedded server, if none is configured, in a file in its data directory.
//!
//! A rotation writes the new key to a second file, reseals everything with it, and renames the file over the old one.
//! If it is interrupted at any point, both files together open everything.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{MasterKey, MasterKeys};

fn key_path(data_dir: &Path) -> PathBuf {
    data_dir.join("master.key")
}

fn next_key_path(data_dir: &Path) -> PathBuf {
    data_dir.join("master.key.next")
}

/// Reads the keys in the files. Returns `None` if there are none.
pub fn read(data_dir: &Path) -> Result<Option<MasterKeys>, String> {
    // The next key first: it replaces the other one, and whatever is sealed from now on must remain readable after
    // that.
    let next = read_key(&next_key_path(data_dir))?;
    let current = read_key(&key_path(data_dir))?;
    Ok(match (next, current) {
        (Some(current), previous) => {
            Some(MasterKeys { current_key: current, previous_key: previous })
        }
        (None, Some(current)) => Some(MasterKeys { current_key: current, previous_key: None }),
        (None, None) => None,
    })
}

/// Creates the file, readable only by its owner.
pub fn create(data_dir: &Path) -> Result<MasterKeys, String> {
    let current = MasterKey::generate();
    write_key(&key_path(data_dir), &current)?;
    Ok(MasterKeys { current_key: current, previous_key: None })
}

/// Begins a rotation. Returns the next key, which is created unless an interrupted rotation did, and the key to
/// replace.
pub fn begin_rotation(data_dir: &Path) -> Result<MasterKeys, String> {
    let previous = read_key(&key_path(data_dir))?;
    let next = next_key_path(data_dir);
    let current = match read_key(&next)? {
        Some(key) => key,
        None => {
            let key = MasterKey::generate();
            write_key(&next, &key)?;
            key
        }
    };
    Ok(MasterKeys { current_key: current, previous_key: previous })
}

/// Returns the file of the next key, which exists only while a rotation has not ended.
pub fn find_unfinished_rotation(data_dir: &Path) -> Option<PathBuf> {
    Some(next_key_path(data_dir)).filter(|path| path.exists())
}

/// Replaces the old key with the next one, when nothing sealed with the old one is left.
pub fn end_rotation(data_dir: &Path) -> Result<(), String> {
    let (next, file) = (next_key_path(data_dir), key_path(data_dir));
    let rename = || fs::rename(&next, &file).and_then(|()| sync_directory(&file));
    rename().map_err(|e| format!("failed to rename {}: {e}", next.display()))
}

fn read_key(path: &Path) -> Result<Option<MasterKey>, String> {
    match fs::read_to_string(path) {
        Ok(text) => MasterKey::parse(&text).map(Some).map_err(|error| {
            format!("{} does not contain a master key, which {error}", path.display())
        }),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("failed to read {}: {e}", path.display())),
    }
}

/// Writes the file completely or not at all. An existing file is not overwritten.
fn write_key(path: &Path, key: &MasterKey) -> Result<(), String> {
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        writeln!(file, "{}", key.expose())?;
        file.sync_all()?;
        fs::hard_link(&draft, path)?;
        sync_directory(path)
    };
    let written = write();
    let _ = fs::remove_file(&draft);
    written.map_err(|e| format!("failed to write {}: {e}", path.display()))
}

/// Syncs the directory of a file to disk, because the file's name is stored there.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    match path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
