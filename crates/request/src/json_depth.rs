//! Bounds how deep the JSON of a request nests.

/// The maximum nesting depth.
pub const DEPTH_MAX: usize = 64;

/// Returns whether the brackets of a JSON text nest deeper than [`DEPTH_MAX`].
pub fn is_too_deep(json: &[u8]) -> bool {
    is_deeper_than(DEPTH_MAX, json)
}

/// Returns whether the brackets of a JSON text nest deeper than this. This is checked before parsing, so that the server
/// does not depend on a parser's own depth limit.
pub fn is_deeper_than(depth_max: usize, json: &[u8]) -> bool {
    // Fast path for nearly every text; the compiler vectorizes it.
    if json.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() <= depth_max {
        return false;
    }
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                if depth > depth_max {
                    return true;
                }
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_too_deep_when_nesting_exceeds_64_levels() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));

        assert!(!is_too_deep(deep(64).as_bytes()));
        assert!(is_too_deep(deep(65).as_bytes()));
        assert!(!is_deeper_than(66, deep(66).as_bytes()));
        assert!(is_deeper_than(66, deep(67).as_bytes()));
    }

    #[test]
    fn json_depth_ignores_brackets_when_inside_strings() {
        let text = format!("{{\"a\":\"{}\\\"{}\"}}", "[".repeat(100), "{".repeat(100));

        assert!(!is_too_deep(text.as_bytes()));
    }
}
