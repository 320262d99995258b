//! Header fields as ranges over the caller's buffer, and the rules for names and values.
//!
//! A name is classified once, by length and two words, while it is in the cache. What this crate itself reads (`host`,
//! framing, `connection` …) and what clients send often are [`Name`]s; the caller can keep ready-made objects for them.

use crate::scan;

/// A range of the buffer the head was parsed from. Offsets are `u32`: heads are far smaller than that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset behind the last byte.
    pub end: u32,
}

impl Span {
    pub(crate) const fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// The bytes in `buf`, which must be the buffer that was parsed; empty when it is shorter than that.
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        buf.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Number of bytes.
    pub const fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether there are no bytes.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// One header field: where its name and its value (outer white space removed) lie, and which well-known name it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name as sent, in the peer's letter case.
    pub name: Span,
    /// The value without outer white space.
    pub value: Span,
    /// The name in its lower-case form, if it is one of the well-known ones.
    pub known: Name,
}

macro_rules! names {
    ($($name:ident $text:literal)*) => {
        /// Well-known field names, shortest first. `Name as usize` indexes [`Name::ALL`]; [`Name::Other`] comes last.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Name {
            $(#[doc = concat!("`", $text, "`")] $name,)*
            /// Any other name.
            Other,
        }

        impl Name {
            /// Every name but [`Name::Other`], in order.
            pub const ALL: &'static [Name] = &[$(Name::$name),*];

            /// The lower-case name; empty for [`Name::Other`].
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Name::$name => $text,)*
                    Name::Other => "",
                }
            }

            /// The part of a line before the value: the name, a colon and a space.
            #[inline]
            pub(crate) const fn line_begin(self) -> &'static str {
                match self {
                    $(Name::$name => concat!($text, ": "),)*
                    Name::Other => "",
                }
            }
        }
    };
}

names! {
    Te "te"
    Dnt "dnt"
    Via "via"
    Date "date"
    From "from"
    Host "host"
    Range "range"
    Accept "accept"
    Cookie "cookie"
    Expect "expect"
    Origin "origin"
    Pragma "pragma"
    Server "server"
    Referer "referer"
    Trailer "trailer"
    Upgrade "upgrade"
    IfMatch "if-match"
    IfRange "if-range"
    Location "location"
    Priority "priority"
    Forwarded "forwarded"
    SecChUa "sec-ch-ua"
    XRealIp "x-real-ip"
    Connection "connection"
    KeepAlive "keep-alive"
    SetCookie "set-cookie"
    Tracestate "tracestate"
    UserAgent "user-agent"
    Traceparent "traceparent"
    ContentType "content-type"
    XRequestId "x-request-id"
    Authorization "authorization"
    CacheControl "cache-control"
    IfNoneMatch "if-none-match"
    ContentLength "content-length"
    AcceptCharset "accept-charset"
    HttpSettings "http2-settings"
    SecFetchDest "sec-fetch-dest"
    SecFetchMode "sec-fetch-mode"
    SecFetchSite "sec-fetch-site"
    SecFetchUser "sec-fetch-user"
    AcceptEncoding "accept-encoding"
    AcceptLanguage "accept-language"
    XForwardedFor "x-forwarded-for"
    ContentEncoding "content-encoding"
    ProxyConnection "proxy-connection"
    SecChUaMobile "sec-ch-ua-mobile"
    XForwardedHost "x-forwarded-host"
    XForwardedPort "x-forwarded-port"
    XRequestedWith "x-requested-with"
    IfModifiedSince "if-modified-since"
    SecWebsocketKey "sec-websocket-key"
    TransferEncoding "transfer-encoding"
    XForwardedProto "x-forwarded-proto"
    SecChUaPlatform "sec-ch-ua-platform"
    IfUnmodifiedSince "if-unmodified-since"
    ProxyAuthorization "proxy-authorization"
    SecWebsocketVersion "sec-websocket-version"
    SecWebsocketProtocol "sec-websocket-protocol"
    SecWebsocketExtensions "sec-websocket-extensions"
    UpgradeInsecureRequests "upgrade-insecure-requests"
    AccessControlRequestMethod "access-control-request-method"
    AccessControlRequestHeaders "access-control-request-headers"
}

/// Sets the bit that tells lower-case letters from upper-case ones.
const FOLD: u64 = u64::from_ne_bytes([0x20; 8]);

/// The first and the last eight bytes of a name: all of it up to sixteen bytes. A shorter name gives its overlapping halves.
#[inline]
const fn halves(name: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        return (u32::from_le_bytes(*first) as u64, u32::from_le_bytes(*last) as u64);
    }
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        return (u16::from_le_bytes(*first) as u64, u16::from_le_bytes(*last) as u64);
    }
    (0, 0)
}

/// The same with letters folded. Among visible ASCII, folding makes letters, digits and `-` equal to nothing but themselves.
#[inline]
const fn key(name: &[u8]) -> (u64, u64) {
    let (first, last) = halves(name);
    (first | FOLD, last | FOLD)
}

struct Entry {
    key: (u64, u64),
    name: Name,
}

const COUNT: usize = Name::ALL.len();
/// One more than the length of the longest well-known name.
const LENGTHS: usize = 31;

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn entries() -> [Entry; COUNT] {
    let mut table = [const { Entry { key: (0, 0), name: Name::Other } }; COUNT];
    let mut at = 0;
    while at < COUNT {
        let name = Name::ALL[at];
        assert!(at == 0 || Name::ALL[at - 1].as_str().len() <= name.as_str().len(), "shortest first");
        table[at] = Entry { key: key(name.as_str().as_bytes()), name };
        at += 1;
    }
    table
}

/// For each length, where its names begin and end in [`ENTRIES`].
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn lengths() -> [(u8, u8); LENGTHS] {
    let mut table = [(0, 0); LENGTHS];
    let mut at = 0;
    while at < COUNT {
        let (begin, end) = &mut table[Name::ALL[at].as_str().len()];
        if *end == 0 {
            *begin = at as u8;
        }
        at += 1;
        *end = at as u8;
    }
    table
}

static ENTRIES: [Entry; COUNT] = entries();
static BY_LENGTH: [(u8, u8); LENGTHS] = lengths();

impl Name {
    /// Which well-known name this is, in any letter case. `name` must be visible ASCII, as every token is.
    #[inline]
    pub fn classify(name: &[u8]) -> Self {
        let Some(&(begin, end)) = BY_LENGTH.get(name.len()) else { return Self::Other };
        let key = key(name);
        for entry in ENTRIES.get(begin as usize..end as usize).unwrap_or_default() {
            if entry.key == key && (name.len() <= 16 || name.eq_ignore_ascii_case(entry.name.as_str().as_bytes())) {
                return entry.name;
            }
        }
        Self::Other
    }

    /// Whether this is `name`, to the letter.
    #[inline]
    pub(crate) fn is(self, name: &[u8]) -> bool {
        let own = self.as_str().as_bytes();
        // A call takes longer than the look at a short one.
        own.len() == name.len() && halves(own) == halves(name) && (name.len() <= 16 || own == name)
    }
}

/// For each byte its lower-case form if it is allowed in a token (RFC 9110 section 5.6.2), else 0.
static TOKEN: [u8; 256] = token_table();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn token_table() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0u8;
    while byte < 128 {
        let special = matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        );
        if special || byte.is_ascii_alphanumeric() {
            table[byte as usize] = byte.to_ascii_lowercase();
        }
        byte += 1;
    }
    table
}

/// The lower-case form of a token byte, or 0 for a byte no token may hold.
#[inline]
#[expect(clippy::indexing_slicing, reason = "a u8 is always inside a table of 256")]
pub(crate) fn token_byte(byte: u8) -> u8 {
    TOKEN[byte as usize]
}

/// Whether this is a token (RFC 9110 section 5.6.2): not empty, no separators, no control characters.
#[inline]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| token_byte(byte) != 0)
}

/// Whether this may be a field value (RFC 9110 section 5.5): no control characters but tabs; 0x80 and above may pass.
#[inline]
pub fn is_value(bytes: &[u8]) -> bool {
    scan::value_end(bytes, 0) == bytes.len()
}

/// `bytes` without spaces and tabs at its ends.
#[inline]
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    // Hardly any has some.
    match bytes {
        [b'!'..=u8::MAX, .., b'!'..=u8::MAX] => bytes,
        _ => trim_slowly(bytes),
    }
}

fn trim_slowly(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The members of a comma-separated list, empty ones left out (RFC 9110 section 5.6.1.2).
pub(crate) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|member| !member.is_empty())
}

/// Whether a comma-separated list has this member, in any letter case.
pub fn has_member(value: &[u8], member: &[u8]) -> bool {
    members(value).any(|found| found.eq_ignore_ascii_case(member))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_well_known_name_is_found_in_any_letter_case() {
        for &name in Name::ALL {
            let text = name.as_str();
            let mixed: String =
                text.chars().enumerate().map(|(i, c)| if i % 2 == 0 { c.to_ascii_uppercase() } else { c }).collect();
            for form in [text, &text.to_ascii_uppercase(), &mixed] {
                assert_eq!(Name::classify(form.as_bytes()), name, "{form}");
            }
            assert_eq!(Name::ALL[name as usize], name);
        }
    }

    #[test]
    fn one_other_byte_makes_it_another_name() {
        for &name in Name::ALL {
            for place in 0..name.as_str().len() {
                // Miri takes its time.
                for byte in (0x21..0x7f).step_by(if cfg!(miri) { 31 } else { 1 }) {
                    let mut text = name.as_str().as_bytes().to_vec();
                    text[place] = byte;
                    let expected = Name::ALL.iter().find(|n| n.as_str().as_bytes().eq_ignore_ascii_case(&text));
                    assert_eq!(Name::classify(&text), expected.copied().unwrap_or(Name::Other), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn unknown_lengths_are_other_names() {
        for length in 0..64 {
            assert_eq!(Name::classify(&vec![b'q'; length]), Name::Other);
        }
    }

    #[test]
    fn tokens_follow_the_grammar() {
        let allowed: Vec<u8> = (0..=255).filter(|&b| is_token(&[b])).collect();
        assert_eq!(allowed, b"!#$%&'*+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~");
        assert!(!is_token(b""));
    }

    #[test]
    fn values_may_hold_tabs_and_high_bytes_but_no_other_controls() {
        let refused: Vec<u8> = (0..=255).filter(|&b| !is_value(&[b'a', b])).collect();
        let controls: Vec<u8> = (0..32).filter(|&b| b != b'\t').chain([0x7f]).collect();
        assert_eq!(refused, controls);
        assert!(is_value(b""));
    }

    #[test]
    fn members_are_trimmed_and_empty_ones_skipped() {
        assert_eq!(members(b" , a,,\tb c ,").collect::<Vec<_>>(), [&b"a"[..], b"b c"]);
        assert!(has_member(b"keep-alive, Upgrade", b"upgrade"));
        assert!(!has_member(b"upgraded", b"upgrade"));
    }

    #[test]
    fn a_span_of_a_shorter_buffer_is_empty() {
        assert_eq!(Span::new(2, 9).of(b"abc"), b"");
        assert_eq!(Span::new(1, 3).of(b"abc"), b"bc");
        assert_eq!(Span::new(1, 3).len(), 2);
        assert!(Span::default().is_empty() && !Span::new(1, 3).is_empty());
    }
}
