//! The master key of an embedded server, where none is configured: a file in its data directory.
//!
//! A rotation writes the new key beside the old one, seals everything with it, and puts it in the old one's
//! place. Wherever it is interrupted, both files together open everything.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{MasterKey, MasterKeys};

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("master.key")
}

fn next_file(data_dir: &Path) -> PathBuf {
    data_dir.join("master.key.next")
}

/// The keys in the files; `None`: there is none.
pub fn read(data_dir: &Path) -> Result<Option<MasterKeys>, String> {
    // The next one first: it takes the other's place, and whatever is sealed from now on must outlive that.
    let next = read_file(&next_file(data_dir))?;
    let current = read_file(&file(data_dir))?;
    Ok(match (next, current) {
        (Some(current), previous) => Some(MasterKeys { current, previous }),
        (None, Some(current)) => Some(MasterKeys { current, previous: None }),
        (None, None) => None,
    })
}

/// Makes the file, which only its owner can read.
pub fn make(data_dir: &Path) -> Result<MasterKeys, String> {
    let current = MasterKey::random();
    write_file(&file(data_dir), &current)?;
    Ok(MasterKeys { current, previous: None })
}

/// The keys of a rotation: the next one, which is made where an interrupted one has not, and the one to replace.
pub fn begin_rotation(data_dir: &Path) -> Result<MasterKeys, String> {
    let previous = read_file(&file(data_dir))?;
    let next = next_file(data_dir);
    let current = match read_file(&next)? {
        Some(key) => key,
        None => {
            let key = MasterKey::random();
            write_file(&next, &key)?;
            key
        }
    };
    Ok(MasterKeys { current, previous })
}

/// Puts the next key in the place of the old one, of which nothing is left to open.
pub fn end_rotation(data_dir: &Path) -> Result<(), String> {
    let (next, file) = (next_file(data_dir), file(data_dir));
    let rename = || fs::rename(&next, &file).and_then(|()| keep_name(&file));
    rename().map_err(|e| format!("cannot rename {}: {e}", next.display()))
}

fn read_file(path: &Path) -> Result<Option<MasterKey>, String> {
    match fs::read_to_string(path) {
        Ok(text) => MasterKey::parse(&text)
            .map(Some)
            .map_err(|fault| format!("{} holds no master key, which {fault}", path.display())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("cannot read {}: {e}", path.display())),
    }
}

/// The file is there with all that is in it, or not at all; one that is there stays.
fn write_file(path: &Path, key: &MasterKey) -> Result<(), String> {
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        writeln!(file, "{}", key.expose())?;
        file.sync_all()?;
        fs::hard_link(&draft, path)?;
        keep_name(path)
    };
    let written = write();
    let _ = fs::remove_file(&draft);
    written.map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// A file's name is in its directory, which is a file of its own to the disk.
fn keep_name(path: &Path) -> std::io::Result<()> {
    match path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
