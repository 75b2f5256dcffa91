//! Fuzzes the identifiers of rate-limit descriptors: each can be read back, so two descriptors never share a counter.

use grpc::{Descriptor, Entry};

use crate::compose;

const PIECES: &[&str] =
    &["\n", "\n", "\t", "\t", "\r", "|", "=", "\\", "a", "b", "é", " ", "*", "\\|", "a=b"];

type Pair = (Vec<u8>, Vec<u8>);

/// An input is an entry in each line: its key, and after a tab its value. A carriage return in them stands for a newline.
#[test]
fn identifier_is_read_back() {
    bolero::check!(name = "descriptor").for_each(|bytes: &[u8]| {
        for text in [bytes.to_owned(), compose(bytes, PIECES).concat().into_bytes()] {
            let lines = text.split(|byte| *byte == b'\n');
            let pairs: Vec<Pair> = lines
                .map(|line| match line.iter().position(|byte| *byte == b'\t') {
                    Some(at) => (with_newlines(&line[..at]), with_newlines(&line[at + 1..])),
                    None => (with_newlines(line), Vec::new()),
                })
                .collect();

            let identifier = grpc::to_identifier(&to_descriptor(&pairs));

            assert_eq!(read_identifier(&identifier), pairs, "{identifier:?}");
            // No star of an override stands for a newline.
            assert!(!identifier.contains(['\n', '\0']), "{identifier:?}");
        }
    });
}

fn with_newlines(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect()
}

fn to_descriptor(pairs: &[Pair]) -> Descriptor {
    let entry = |(key, value): &Pair| Entry { key: key.clone(), value: value.clone() };
    Descriptor { entries: pairs.iter().map(entry).collect(), ..Descriptor::default() }
}

/// Reads `key=value|key=value`, in which a backslash is followed by a character that stands for itself, or by `x` and a byte.
fn read_identifier(identifier: &str) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let (mut key, mut text) = (None, Vec::new());
    let mut letters = identifier.bytes();
    while let Some(letter) = letters.next() {
        match letter {
            b'\\' => match letters.next().unwrap() {
                b'x' => {
                    let digits = [letters.next().unwrap(), letters.next().unwrap()];
                    let digits = str::from_utf8(&digits).unwrap();
                    text.push(u8::from_str_radix(digits, 16).unwrap());
                }
                itself => text.push(itself),
            },
            b'=' => assert_eq!(key.replace(std::mem::take(&mut text)), None, "a second value"),
            b'|' => pairs.push((key.take().unwrap(), std::mem::take(&mut text))),
            letter => text.push(letter),
        }
    }
    pairs.push((key.unwrap(), text));
    pairs
}
