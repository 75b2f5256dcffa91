//! The values of the headers about a key.

use bytes::Bytes;

/// The number of headers about a key.
const HEADERS: usize = 7;

/// Values of headers in one allocation, which every answer shares.
#[derive(Debug)]
pub struct HeaderValues {
    /// Every value, one after the other.
    bytes: Bytes,
    /// Where each value ends.
    ends: [usize; HEADERS],
}

impl HeaderValues {
    /// Creates the values of headers, in their order.
    pub fn new(values: &[String; HEADERS]) -> Self {
        let bytes = Bytes::from(values.concat().into_boxed_str().into_boxed_bytes());
        let mut end = 0;
        let ends = values.each_ref().map(|value| {
            end += value.len();
            end
        });
        Self { bytes, ends }
    }

    /// Returns the values in their order. None is copied.
    pub fn values(&self) -> impl Iterator<Item = Bytes> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let value = self.bytes.slice(start..*end);
            start = *end;
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_returned_in_their_order() {
        let texts = ["key_1", "", "a,b", "", "", "%C3%A9", "x"].map(str::to_owned);

        let headers = HeaderValues::new(&texts);

        assert_eq!(headers.values().collect::<Vec<_>>(), texts);
        assert_eq!(headers.values().count(), HEADERS);
    }
}
