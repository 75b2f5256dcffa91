//! Identifiers of counters, which name the entries of a descriptor.

use std::fmt::Write as _;

use domain::bounds::IDENTIFIER_MAX;
use foundation::secret::KeyHash;

use crate::rate_limit_call::Descriptor;

/// Returns the entries of a descriptor in their order as `key=value`, joined by `|`. A backslash escapes these two and itself.
/// NUL, and bytes that are no UTF-8, are `\xHH`: a client sends some of the values, and a gateway admits a call that fails. So
/// are newlines, which no `*` of an override stands for. Two descriptors with entries never have the same identifier.
pub fn to_identifier(descriptor: &Descriptor) -> String {
    fn append(bytes: &[u8], into: &mut String) {
        let is_escaped = |byte: &u8| matches!(byte, b'\\' | b'|' | b'=' | b'\n' | 0);
        if let (Ok(text), false) = (str::from_utf8(bytes), bytes.iter().any(is_escaped)) {
            return into.push_str(text);
        }
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\0' => into.push_str("\\x00"),
                    '\n' => into.push_str("\\x0A"),
                    '\\' | '|' | '=' => into.extend(['\\', c]),
                    _ => into.push(c),
                }
            }
            for byte in chunk.invalid() {
                // Writing to a string never fails.
                let _ = write!(into, "\\x{byte:02X}");
            }
        }
    }

    let bytes =
        descriptor.entries.iter().map(|entry| entry.key.len() + entry.value.len() + 2).sum();
    let mut identifier = String::with_capacity(bytes);
    for (at, entry) in descriptor.entries.iter().enumerate() {
        if at > 0 {
            identifier.push('|');
        }
        append(&entry.key, &mut identifier);
        identifier.push('=');
        append(&entry.value, &mut identifier);
    }
    identifier
}

/// Replaces the end of an identifier that is too long by the hash of the whole, and returns the whole beside it. A client sends
/// some of the values, and a gateway admits a call that fails: a long value must not be a way around the limits of the call.
pub fn bound_identifier(identifier: String) -> (String, Option<String>) {
    if !is_too_long(&identifier) {
        return (identifier, None);
    }
    let hash = KeyHash::compute(identifier.as_bytes()).to_base64();
    let kept = IDENTIFIER_MAX - hash.len() - 1;
    let start: String = identifier.chars().take(kept).collect();
    (start + "~" + &hash, Some(identifier))
}

/// Returns whether a text can be stored as the identifier of a counter, or as the name of a namespace.
pub fn is_storable(text: &str) -> bool {
    !text.is_empty() && !is_too_long(text) && !text.contains('\0')
}

/// A text has at most as many characters as bytes, so most are not counted.
fn is_too_long(text: &str) -> bool {
    text.len() > IDENTIFIER_MAX && text.chars().count() > IDENTIFIER_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_limit_call::Entry;

    #[test]
    fn identifier_tells_entries_apart() {
        let of_bytes = |entries: &[(&[u8], &[u8])]| {
            let entry =
                |&(key, value): &(&[u8], &[u8])| Entry { key: key.into(), value: value.into() };
            let entries = entries.iter().map(entry).collect();
            to_identifier(&Descriptor { entries, ..Descriptor::default() })
        };
        let identifier = |entries: &[(&str, &str)]| {
            let entries: Vec<_> =
                entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
            of_bytes(&entries)
        };

        assert_eq!(identifier(&[("path", "/a"), ("user", "1")]), "path=/a|user=1");
        assert_eq!(identifier(&[("a", "b|c=d\\")]), "a=b\\|c\\=d\\\\");
        assert_ne!(identifier(&[("a", "b|c=d")]), identifier(&[("a", "b"), ("c", "d")]));
        assert_ne!(identifier(&[("a", "b")]), identifier(&[("a=b", "")]));
        assert_eq!(of_bytes(&[(b"a", b"\xff=\xc3\xbc\0\xc3")]), "a=\\xFF\\=\u{fc}\\x00\\xC3");
        assert_ne!(of_bytes(&[(b"a", b"\xff")]), identifier(&[("a", "\\xFF")]));
        assert_eq!(identifier(&[("a\n", "b\n\r\n")]), "a\\x0A=b\\x0A\r\\x0A");
        assert_ne!(identifier(&[("a", "\n")]), identifier(&[("a", "\\x0A")]));
    }
}
