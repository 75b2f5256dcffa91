//! `keyward export`: keys with their hashes, in the form that `keyward import` reads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Stdout, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process;

use clap::Args;
use domain::keys::{self, DecryptMode, FoundKey, KeyFilter};
use domain::page::Paging;
use foundation::clock::Timestamp;
use foundation::config::Settings;
use foundation::error::Error;
use foundation::id::ApiId;
use foundation::model::{Meta, Ratelimit, Refill, RefillInterval};
use foundation::secret::KeyHash;
use serde::Serialize;
use serde_json::json;

use super::operator::Operator;
use super::output::{CommandOutput, counted, end_of_output};
use super::{CommandError, CommandResult};

/// The number of keys that are read at once.
const PAGE_LIMIT: usize = 500;
/// The number of random bytes of an imported key, unless the import says it.
const IMPORTED_BYTE_LENGTH: u8 = 16;

#[derive(Args)]
pub struct ExportOptions {
    /// Export the keys of this API
    #[arg(long = "api", value_name = "ID")]
    api_id: String,
    /// Write to this new file, which only its owner can read [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[arg(long, default_value = "ws_default")]
    workspace: String,
}

/// Where the keys are written to.
enum ExportTarget {
    Stdout(BufWriter<Stdout>),
    File(NewFile),
}

/// A file that gets its name when it is complete.
struct NewFile {
    path: PathBuf,
    /// The file until then.
    partial: PathBuf,
    writer: BufWriter<File>,
}

/// A key as `keyward import` reads it. The request has no null and no empty lists.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportedKey<'a> {
    hash: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<&'a str>,
    /// Stored and exported as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Meta>,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    permissions: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ratelimits: Vec<ExportedLimit<'a>>,
    enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    credits: Option<ExportedCredits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    byte_length: Option<u8>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportedLimit<'a> {
    name: &'a str,
    limit: i64,
    duration: i64,
    auto_apply: bool,
    r#async: bool,
}

impl<'a> From<&'a Ratelimit> for ExportedLimit<'a> {
    fn from(limit: &'a Ratelimit) -> Self {
        Self {
            name: &limit.name,
            limit: limit.limit,
            duration: limit.duration_ms,
            auto_apply: limit.auto_apply,
            r#async: limit.is_approximate,
        }
    }
}

#[derive(Serialize)]
struct ExportedCredits {
    /// Null: unlimited, with a refill that applies once the key has credits. Only version 1 has this.
    remaining: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refill: Option<ExportedRefill>,
}

impl ExportedCredits {
    /// Returns the credits of a key. `None`: it has none and no refill.
    fn from_key(found: &FoundKey) -> Option<Self> {
        let (remaining, refill) = match found.credits {
            Some((remaining, refill)) => (Some(remaining), refill),
            None => (None, Some(found.stored.refill?)),
        };
        Some(Self { remaining, refill: refill.as_ref().map(ExportedRefill::from) })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportedRefill {
    interval: &'static str,
    amount: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refill_day: Option<u8>,
}

impl From<&Refill> for ExportedRefill {
    fn from(refill: &Refill) -> Self {
        let (interval, refill_day) = match refill.interval {
            RefillInterval::Daily => ("daily", None),
            RefillInterval::Monthly { day } => ("monthly", Some(day)),
        };
        Self { interval, amount: refill.amount, refill_day }
    }
}

/// How many keys were written, and how many were left out.
struct ExportCounts {
    exported: usize,
    pending: usize,
}

/// Why an export ended.
enum ExportError {
    Read(Error),
    Write(io::Error),
}

impl From<Error> for ExportError {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

pub async fn run(settings: Settings, out: CommandOutput, options: ExportOptions) -> CommandResult {
    let operator = Operator::open(settings, &options.workspace).await?;
    let context = &operator.app.context;
    let api_id = ApiId::from(options.api_id.as_str());
    // Before the file is created, which must not exist.
    domain::apis::get(context, &operator.caller, &api_id).await?;
    context.connect_redis().await;
    let mut target = ExportTarget::open(options.output.as_deref())?;
    let written = match write_keys(&operator, &api_id, &mut target).await {
        Ok(counts) => target.publish().map(|()| counts).map_err(ExportError::Write),
        Err(error) => Err(error),
    };
    operator.close().await;
    match written {
        Ok(counts) => {
            report(out, options.output.as_deref(), &counts);
            Ok(())
        }
        Err(ExportError::Read(error)) => {
            Err(CommandError::from(error).with_context("the export is incomplete"))
        }
        Err(ExportError::Write(error)) => end_of_export(&options, &error),
    }
}

async fn write_keys(
    operator: &Operator,
    api_id: &ApiId,
    target: &mut ExportTarget,
) -> Result<ExportCounts, ExportError> {
    let mut counts = ExportCounts { exported: 0, pending: 0 };
    let mut start = String::new();
    loop {
        let filter = KeyFilter {
            api_id: api_id.clone(),
            owner: None,
            decrypt_mode: DecryptMode::None,
            // Credits that are left out would be lost where the keys are imported.
            requires_leases: true,
            paging: Paging { start, limit: PAGE_LIMIT, ..Paging::default() },
        };
        let page = keys::list(&operator.app.context, &operator.caller, filter).await?;
        for found in &page.items {
            // The hash of a key that waits for its first use is not that of the whole key.
            let Some(line) = to_line(found)? else {
                counts.pending += 1;
                continue;
            };
            writeln!(target.writer(), "{line}")?;
            counts.exported += 1;
        }
        match page.next_start {
            Some(next) => start = next,
            None => return Ok(counts),
        }
    }
}

impl ExportTarget {
    fn open(path: Option<&Path>) -> Result<Self, CommandError> {
        let Some(path) = path else {
            return Ok(Self::Stdout(BufWriter::new(io::stdout())));
        };
        NewFile::create(path).map(Self::File).map_err(|e| {
            CommandError::Usage(format!("--output: failed to create {}: {e}", path.display()))
        })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Stdout(writer) => writer,
            Self::File(file) => &mut file.writer,
        }
    }

    fn publish(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(writer) => writer.flush(),
            Self::File(file) => file.publish(),
        }
    }
}

impl NewFile {
    fn create(path: &Path) -> io::Result<Self> {
        if path.try_exists()? {
            return Err(exists());
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".partial-{}", process::id()));
        let partial = PathBuf::from(partial);
        // An interrupted command with the same id left it.
        match fs::remove_file(&partial) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        Ok(Self { path: path.to_owned(), partial, writer: BufWriter::new(file) })
    }

    /// Gives the file its name, unless another one has it now.
    fn publish(&mut self) -> io::Result<()> {
        self.writer.flush()?;
        self.writer.get_ref().sync_all()?;
        match fs::hard_link(&self.partial, &self.path) {
            Ok(()) => Ok(()),
            Err(_) if self.path.try_exists()? => Err(exists()),
            // The file system has no links.
            Err(_) => fs::rename(&self.partial, &self.path),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.partial);
    }
}

fn exists() -> io::Error {
    io::Error::new(ErrorKind::AlreadyExists, "the file exists")
}

/// Returns the result of an export that cannot be written.
fn end_of_export(options: &ExportOptions, error: &io::Error) -> CommandResult {
    match &options.output {
        None => end_of_output(error),
        Some(path) => {
            Err(CommandError::Runtime(format!("failed to write {}: {error}", path.display())))
        }
    }
}

/// Prints what was exported: with a file to standard output, otherwise only what is missing, to standard error.
#[expect(clippy::print_stderr, reason = "standard output has the export")]
fn report(out: CommandOutput, path: Option<&Path>, counts: &ExportCounts) {
    let ExportCounts { exported, pending } = *counts;
    let left_out = match pending {
        0 => String::new(),
        number => format!(
            "left out {} imported by a migration and not used yet",
            counted(number, "key", "keys")
        ),
    };
    match path {
        Some(path) => {
            let keys = counted(exported, "key", "keys");
            let separator = if pending == 0 { "" } else { "; " };
            let text = format!("exported {keys} to {}{separator}{left_out}", path.display());
            out.write(&text, &json!({ "exported": exported, "leftOut": pending }));
        }
        None if pending > 0 => eprintln!("keyward: {left_out}"),
        None => {}
    }
}

/// Returns a key as `keyward import` reads it. `None`: it has no hash of the whole key yet.
fn to_line(found: &FoundKey) -> Result<Option<String>, Error> {
    let stored = &found.stored;
    let key = &stored.key;
    if KeyHash::from_base64(&key.hash).is_none() {
        return Ok(None);
    }
    let exported = ExportedKey {
        hash: &key.hash,
        // Version 1 allows an empty name.
        name: key.name.as_deref().filter(|name| !name.is_empty()),
        external_id: key.owner_id.as_deref(),
        meta: key.meta.as_ref(),
        environment: key.environment.as_deref(),
        expires: key.expires_at,
        roles: found.resolved.roles().iter().map(String::as_str).collect(),
        permissions: stored.permissions.iter().map(|it| it.slug.as_str()).collect(),
        ratelimits: stored.ratelimits.iter().map(ExportedLimit::from).collect(),
        enabled: key.is_enabled,
        credits: ExportedCredits::from_key(found),
        // A key of `prefixed-api-key` can have an empty one.
        prefix: key.prefix.as_deref().filter(|prefix| !prefix.is_empty()),
        byte_length: Some(key.byte_length).filter(|length| *length != IMPORTED_BYTE_LENGTH),
    };
    let mut line = serde_json::to_string(&exported)
        .map_err(|e| Error::Internal(format!("failed to encode a key: {e}")))?;
    // Only metadata has line breaks: they are between its values, where they mean nothing. In texts they are escaped.
    line.retain(|c| c != '\n' && c != '\r');
    Ok(Some(line))
}
