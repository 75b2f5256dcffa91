//! Files with keys, as `keyward import` reads them: twice, so that every key is checked before the first is imported.
//!
//! A file with one JSON object per line, as `keyward export` writes it, is read line by line, so it may have any size. What is read
//! at once is bounded: a JSON list, CSV, and what can be read only once, such as standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Seek as _};

use api::Operation as _;
use api::import_keys::ImportKeys;
use serde_json::value::{RawValue, to_raw_value};

use super::CommandError;
use super::input::{FILE_MAX_BYTES, STDIN, read_bytes};

/// The name of the argument in errors.
const FILE: &str = "FILE";
/// The maximum size of a line without its end: a larger key does not fit into a request.
const LINE_BYTES_MAX: u64 = ImportKeys::BODY_MAX_BYTES as u64;
/// The mark with which some programs begin files.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Returns an error about the file.
pub fn file_error(what: &str) -> CommandError {
    CommandError::Usage(format!("{FILE}: {what}"))
}

/// The keys of a file as JSON, in their order, up to the first error.
pub type FileKeys<'a> = Box<dyn Iterator<Item = Result<Box<RawValue>, CommandError>> + 'a>;

/// A file with keys, which can be read more than once.
pub struct KeyFile {
    content: KeyFileContent,
}

enum KeyFileContent {
    /// One JSON object per line.
    Lines(KeyFileSource),
    /// The keys of a JSON list or of CSV.
    Keys(Vec<Box<RawValue>>),
}

impl KeyFile {
    /// Opens a file, or reads standard input for `-`.
    pub fn open(path: &str) -> Result<Self, CommandError> {
        let failed = |e: io::Error| file_error(&format!("failed to read {path}: {e}"));
        let bytes = if path == STDIN {
            read_bytes(io::stdin().lock(), FILE_MAX_BYTES)
        } else {
            let file = File::open(path).map_err(failed)?;
            // Another kind of file, such as a pipe, can be read only once.
            if file.metadata().map_err(failed)?.is_file() {
                return Self::from_source(KeyFileSource::File(file));
            }
            read_bytes(file, FILE_MAX_BYTES)
        };
        let bytes = bytes.map_err(failed)?.ok_or_else(|| {
            file_error(&format!(
                "{path} is larger than {FILE_MAX_BYTES} bytes; write it to a file and import that"
            ))
        })?;
        Self::from_bytes(bytes)
    }

    /// Reads the content of a file.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, CommandError> {
        Self::from_source(KeyFileSource::Memory(bytes))
    }

    fn from_source(source: KeyFileSource) -> Result<Self, CommandError> {
        let first = find_first_byte(source.open_reader()?).map_err(|e| read_error(&e))?;
        let content = match first {
            None | Some(b'{') => KeyFileContent::Lines(source),
            Some(first) => {
                let text = source.into_text()?;
                let text = text.trim_start_matches(BYTE_ORDER_MARK);
                let keys = if first == b'[' { parse_list(text) } else { parse_csv(text) };
                KeyFileContent::Keys(keys?)
            }
        };
        Ok(Self { content })
    }

    /// Returns the keys from the first one on.
    pub fn keys(&self) -> Result<FileKeys<'_>, CommandError> {
        let keys: FileKeys<'_> = match &self.content {
            KeyFileContent::Lines(source) => Box::new(KeyLines::new(source.open_reader()?)),
            KeyFileContent::Keys(keys) => Box::new(keys.iter().cloned().map(Ok)),
        };
        Ok(keys)
    }
}

fn read_error(error: &io::Error) -> CommandError {
    file_error(&format!("failed to read: {error}"))
}

/// Returns the first byte that is neither white space nor part of the byte order mark.
fn find_first_byte(reader: impl BufRead) -> io::Result<Option<u8>> {
    for byte in reader.bytes() {
        let byte = byte?;
        if !byte.is_ascii_whitespace() && !BYTE_ORDER_MARK.as_bytes().contains(&byte) {
            return Ok(Some(byte));
        }
    }
    Ok(None)
}

fn parse_list(text: &str) -> Result<Vec<Box<RawValue>>, CommandError> {
    serde_json::from_str(text).map_err(|e| file_error(&format!("is not a JSON list: {e}")))
}

fn parse_csv(text: &str) -> Result<Vec<Box<RawValue>>, CommandError> {
    let keys = dashboard::parse_csv_keys(text).map_err(|e| file_error(&e))?;
    let keys = keys.iter().map(to_raw_value).collect::<Result<Vec<_>, serde_json::Error>>();
    keys.map_err(|e| file_error(&e.to_string()))
}

/// The bytes of a file.
enum KeyFileSource {
    File(File),
    Memory(Vec<u8>),
}

impl KeyFileSource {
    /// Returns a reader of the file from its start. There is one reader at a time.
    fn open_reader(&self) -> Result<Box<dyn BufRead + '_>, CommandError> {
        match self {
            Self::File(file) => {
                let mut file: &File = file;
                file.rewind().map_err(|e| read_error(&e))?;
                Ok(Box::new(BufReader::new(file)))
            }
            Self::Memory(bytes) => Ok(Box::new(bytes.as_slice())),
        }
    }

    /// Reads the whole file.
    fn into_text(self) -> Result<String, CommandError> {
        let bytes = match self {
            Self::File(mut file) => {
                file.rewind().map_err(|e| read_error(&e))?;
                let bytes = read_bytes(file, FILE_MAX_BYTES).map_err(|e| read_error(&e))?;
                bytes.ok_or_else(|| {
                    file_error(&format!(
                        "a JSON list or CSV must have at most {FILE_MAX_BYTES} bytes; a file with one JSON object per line may have any size"
                    ))
                })?
            }
            Self::Memory(bytes) => bytes,
        };
        String::from_utf8(bytes).map_err(|_| file_error("is not encoded in UTF-8"))
    }
}

/// The keys of a file with one JSON object per line. Blank lines are left out.
struct KeyLines<'a> {
    reader: Box<dyn BufRead + 'a>,
    /// The current line, with its end.
    line: Vec<u8>,
    /// The number of the current line. The first one is 1.
    number: usize,
}

impl<'a> KeyLines<'a> {
    fn new(reader: Box<dyn BufRead + 'a>) -> Self {
        Self { reader, line: Vec::new(), number: 0 }
    }

    fn next_key(&mut self) -> Result<Option<Box<RawValue>>, CommandError> {
        while self.read_line()? {
            if let Some(key) = self.parse_line()? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// Reads the next line. Returns whether there is one.
    fn read_line(&mut self) -> Result<bool, CommandError> {
        self.line.clear();
        self.number += 1;
        let number = self.number;
        let mut reader = self.reader.by_ref().take(LINE_BYTES_MAX + 1);
        let bytes = reader
            .read_until(b'\n', &mut self.line)
            .map_err(|e| file_error(&format!("line {number}: failed to read: {e}")))?;
        if bytes as u64 > LINE_BYTES_MAX && !self.line.ends_with(b"\n") {
            let what = format!("line {number} is larger than {LINE_BYTES_MAX} bytes");
            return Err(file_error(&what));
        }
        Ok(bytes > 0)
    }

    /// Parses the current line. Returns `None` if it is blank.
    fn parse_line(&self) -> Result<Option<Box<RawValue>>, CommandError> {
        let number = self.number;
        let text = str::from_utf8(&self.line)
            .map_err(|_| file_error(&format!("line {number} is not encoded in UTF-8")))?;
        let text = text.trim_start_matches(BYTE_ORDER_MARK).trim_ascii();
        if text.is_empty() {
            return Ok(None);
        }
        let parsed = serde_json::from_str(text);
        parsed.map(Some).map_err(|e| file_error(&format!("line {number}: is not JSON: {e}")))
    }
}

impl Iterator for KeyLines<'_> {
    type Item = Result<Box<RawValue>, CommandError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_key().transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    fn read_all(file: Result<KeyFile, CommandError>) -> Result<Vec<Box<RawValue>>, CommandError> {
        file?.keys()?.collect()
    }

    /// Returns the error of reading a file with this content, or an empty text.
    fn error_of(bytes: impl Into<Vec<u8>>) -> String {
        match read_all(KeyFile::from_bytes(bytes.into())) {
            Err(CommandError::Usage(error)) => error,
            Ok(_) | Err(CommandError::Runtime(_) | CommandError::Negative) => String::new(),
        }
    }

    /// Returns a line with a key and this many bytes.
    fn line_of(bytes: usize) -> String {
        let key = r#"{"hash": "a"}"#;
        format!("{key}{}", " ".repeat(bytes - key.len()))
    }

    #[test]
    fn file_is_read_from_its_start_again() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"\xef\xbb\xbf\n{\"hash\": \"a\"}\r\n \t\n{\"hash\": \"b\"}")
            .expect("written");
        let path = file.path().to_str().expect("a path");

        let opened = KeyFile::open(path).ok().expect("a file with keys");

        let expected = json!([{ "hash": "a" }, { "hash": "b" }]);
        for _ in 0..2 {
            let keys: Result<Vec<_>, _> = opened.keys().ok().into_iter().flatten().collect();
            assert_eq!(json!(keys.unwrap_or_default()), expected);
        }
    }

    #[test]
    fn lines_are_bounded_and_named_in_errors() {
        let max = ImportKeys::BODY_MAX_BYTES;
        for end in ["", "\n", "\n{}"] {
            assert_eq!(error_of(format!("{}{end}", line_of(max))), "", "{end:?}");
            let error = error_of(format!("{{}}\n\n{}{end}", line_of(max + 1)));
            assert_eq!(error, format!("FILE: line 3 is larger than {max} bytes"), "{end:?}");
        }
        assert!(error_of("{}\n\n{").starts_with("FILE: line 3: is not JSON: "));
        let error = error_of(b"{}\n{\"hash\": \"\xff\"}".as_slice());
        assert_eq!(error, "FILE: line 2 is not encoded in UTF-8");
    }

    #[test]
    fn lists_and_csv_are_read_at_once() {
        assert!(error_of("[{}, {").starts_with("FILE: is not a JSON list: "));
        assert_eq!(error_of(b"[\"\xff\"]".as_slice()), "FILE: is not encoded in UTF-8");
        assert_eq!(error_of(b"name\n\xff".as_slice()), "FILE: is not encoded in UTF-8");
        assert!(error_of("name\na").starts_with("FILE: line 1 must be the headings"));
        assert_eq!(error_of(""), "");
    }
}
