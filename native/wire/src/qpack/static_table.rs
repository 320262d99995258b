//! The fields that both sides know from the beginning (RFC 9204 appendix A).

use std::sync::OnceLock;

use crate::fields::Kind;

/// Names and values, in order; the first has index 0.
pub(crate) const FIELDS: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

/// The entry with an index.
#[inline]
pub(crate) fn get(index: u64) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = FIELDS.get(usize::try_from(index).ok()?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// The kind of the field with an index.
#[inline]
pub(crate) fn kind(index: u8) -> Kind {
    static KINDS: OnceLock<Vec<Kind>> = OnceLock::new();
    let kinds =
        KINDS.get_or_init(|| FIELDS.iter().map(|(name, value)| Kind::of(name.as_bytes(), value.as_bytes())).collect());
    kinds.get(usize::from(index)).map_or(Kind::Malformed, |kind| *kind)
}

const BUCKETS: usize = 128;
/// The end of a chain.
const NONE: u8 = u8::MAX;

/// Chains of the entries whose names have the same hash, in order.
struct Chains {
    first: [u8; BUCKETS],
    next: [u8; FIELDS.len()],
}

static CHAINS: Chains = chains();

const fn bucket(name: &[u8]) -> usize {
    match (name.first(), name.last()) {
        (Some(&first), Some(&last)) => (name.len() * 7 + first as usize * 31 + last as usize) % BUCKETS,
        _ => 0,
    }
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn chains() -> Chains {
    let mut chains = Chains { first: [NONE; BUCKETS], next: [NONE; FIELDS.len()] };
    let mut index = FIELDS.len();
    while index > 0 {
        index -= 1;
        let bucket = bucket(FIELDS[index].0.as_bytes());
        chains.next[index] = chains.first[bucket];
        chains.first[bucket] = index as u8;
    }
    chains
}

/// The first index with this name, and that of the whole field.
pub(crate) fn find(name: &[u8], value: &[u8]) -> (Option<u64>, Option<u64>) {
    let (mut named, mut index) = (None, CHAINS.first.get(bucket(name)).copied().unwrap_or(NONE));
    while let Some((other, content)) = FIELDS.get(usize::from(index)) {
        if other.as_bytes() == name {
            named = named.or(Some(u64::from(index)));
            if content.as_bytes() == value {
                return (named, Some(u64::from(index)));
            }
        }
        index = CHAINS.next.get(usize::from(index)).copied().unwrap_or(NONE);
    }
    (named, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_and_are_what_they_say() {
        for (index, (name, value)) in (0..).zip(FIELDS) {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            let first = FIELDS.iter().position(|field| field.0.as_bytes() == name).map(|first| first as u64);
            assert_eq!(find(name, value), (first, Some(index)));
            assert_eq!(find(name, b"another value"), (first, None));
            assert_eq!((get(index), kind(index as u8)), (Some((name, value)), Kind::of(name, value)));
        }
        assert_eq!((find(b"", b""), find(b"x-unknown", b""), get(99)), ((None, None), (None, None), None));
        assert_eq!(kind(99), Kind::Malformed);
    }

    #[test]
    fn chains_are_short() {
        let length = |&first: &u8| {
            std::iter::successors(Some(first), |&index| CHAINS.next.get(usize::from(index)).copied()).count() - 1
        };
        let names = |bucket: usize| FIELDS.iter().filter(|field| super::bucket(field.0.as_bytes()) == bucket).count();
        for (bucket, first) in CHAINS.first.iter().enumerate() {
            assert_eq!(length(first), names(bucket), "bucket {bucket}");
        }
    }
}
