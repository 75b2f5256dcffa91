//! Fuzzes how keys are created, displayed and hashed.

use foundation::secret::{KeyHash, Plaintext, split_prefixed_key};
use ring::digest::{SHA256, digest};

/// The maximum number of characters after the prefix that are displayed.
const SHOWN: usize = 4;

/// An input is a key.
#[test]
fn key_is_hashed_as_a_whole_and_displayed_up_to_four_characters() {
    bolero::check!(name = "key").for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let key = Plaintext::from(text.clone());

        assert_eq!(key.hash().to_bytes(), digest(&SHA256, text.as_bytes()).as_ref());
        assert_eq!(key.hash(), KeyHash::compute(&text));
        assert_eq!(key.expose(), text);
        assert_eq!(format!("{key:?}"), "Plaintext(…)");
        assert_start(&text, None);
        for (at, _) in text.match_indices('_') {
            assert_start(&text, Some(&text[..at]));
        }
        assert_parts_match_key(&text);
    });
}

#[test]
fn created_key_has_its_prefix_and_the_requested_random_bytes() {
    bolero::check!(name = "key").for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let prefix = Some(&*text).filter(|prefix| !prefix.is_empty());
        let byte_length = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));

        let (key, other) =
            (Plaintext::generate(prefix, byte_length), Plaintext::generate(prefix, byte_length));

        let random = key.expose().strip_prefix(&*text).unwrap();
        let random = if prefix.is_some() { random.strip_prefix('_').unwrap() } else { random };
        assert_eq!(base58_bytes(random), usize::from(byte_length), "{random}");
        assert!(byte_length < 16 || key.hash() != other.hash());
        assert_start(key.expose(), prefix);
    });
}

#[test]
fn hash_is_parsed_only_from_its_own_encodings() {
    bolero::check!(name = "key").for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let hash = KeyHash::compute(bytes);

        assert_eq!(hash.to_base64().len(), 44);
        assert_eq!(KeyHash::from_base64(&hash.to_base64()), Some(hash));
        assert_eq!(hash.to_hex().len(), 64);
        assert_eq!(KeyHash::from_hex(&hash.to_hex()), Some(hash));
        assert_eq!(KeyHash::from_hex(&hash.to_hex().to_uppercase()), Some(hash));
        assert!(hash.to_hex().starts_with(&format!("{:016x}", hash.fingerprint())));
        let read = KeyHash::from_base64(&text);
        assert!(read.is_none_or(|hash| hash.to_base64() == *text), "{text}");
        let is_hex = text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit());
        let read = KeyHash::from_hex(&text).map(|hash| hash.to_hex());
        assert_eq!(read, is_hex.then(|| text.to_lowercase()));
    });
}

fn assert_start(key: &str, prefix: Option<&str>) {
    let shown = Plaintext::from(key.to_owned()).start(prefix);

    let behind = prefix.map_or(key, |prefix| key.strip_prefix(prefix).unwrap());
    let behind = if prefix.is_some() { behind.strip_prefix('_').unwrap() } else { behind };
    let hidden = key.strip_prefix(&shown).unwrap();
    assert_eq!(hidden.chars().count(), behind.chars().count().saturating_sub(SHOWN), "{shown}");
}

/// As `prefixed-api-key` creates them, the long token is the last part, and the prefix may contain underscores.
fn assert_parts_match_key(key: &str) {
    let words: Vec<&str> = key.split('_').collect();
    match split_prefixed_key(key) {
        Some((prefix, short, long)) => {
            assert_eq!(format!("{prefix}_{short}_{long}"), key);
            assert!(!short.contains('_') && !long.contains('_'), "{key}");
        }
        None => assert!(words.len() < 3, "{key}"),
    }
}

/// Returns the number of bytes of a base58 text: one per leading 1, then the digits of a number.
fn base58_bytes(text: &str) -> usize {
    const DIGITS: &str = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let zeros = text.len() - text.trim_start_matches('1').len();
    let mut number: Vec<u8> = Vec::new();
    for c in text.chars() {
        let mut carry = DIGITS.find(c).unwrap();
        for byte in &mut number {
            carry += usize::from(*byte) * 58;
            *byte = u8::try_from(carry % 256).unwrap();
            carry /= 256;
        }
        if carry > 0 {
            number.push(u8::try_from(carry).unwrap());
        }
    }
    zeros + number.len()
}
