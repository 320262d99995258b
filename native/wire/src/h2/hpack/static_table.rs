//! The fields that both sides know from the beginning (RFC 7541 appendix A).

use std::sync::OnceLock;

use crate::fields::Kind;

/// Names and values, in order; the first has index 1.
pub(crate) const FIELDS: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The entry with an index of 1 to 61.
pub(crate) fn get(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = FIELDS.get(index.checked_sub(1)?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// The first index with this name, and that of the whole field.
pub(crate) fn find(name: &[u8], value: &[u8]) -> (Option<usize>, Option<usize>) {
    let Some(first) = FIELDS.iter().position(|field| field.0.as_bytes() == name) else { return (None, None) };
    let same = FIELDS.iter().skip(first).take_while(|field| field.0.as_bytes() == name);
    let whole = same.zip(first + 1..).find(|(field, _)| field.1.as_bytes() == value).map(|(_, index)| index);
    (Some(first + 1), whole)
}

/// The kind of the field with an index.
#[inline]
pub(crate) fn kind(index: u8) -> Kind {
    static KINDS: OnceLock<Vec<Kind>> = OnceLock::new();
    let kinds =
        KINDS.get_or_init(|| FIELDS.iter().map(|(name, value)| Kind::of(name.as_bytes(), value.as_bytes())).collect());
    usize::from(index).checked_sub(1).and_then(|place| kinds.get(place)).map_or(Kind::Malformed, |kind| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_what_they_say() {
        for (index, (name, value)) in (1..).zip(FIELDS) {
            assert_eq!(kind(index), Kind::of(name.as_bytes(), value.as_bytes()), "{name}");
        }
        assert_eq!((kind(0), kind(62)), (Kind::Malformed, Kind::Malformed));
    }
}
