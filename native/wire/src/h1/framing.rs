//! The body that follows a request head, and the fields about the connection.
//!
//! This is where smuggling is stopped: whatever two readers of the same bytes could understand differently is refused.

use crate::error::{Error, Refusal};
use crate::h1::request::{Head, Version};
use crate::h1::target::Authority;
use crate::headers::{Name, Span, members, token_byte, trim};
use crate::limits::Limits;
use crate::limits::table::MAX_LENGTH;

/// The body that follows a head (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyLength {
    /// No body.
    #[default]
    None,
    /// This many bytes, at least one.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// Notes on the fields that this crate interprets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    host: Once,
    length: Once,
    coding: Once,
    upgrade: bool,
    close: bool,
    asks_upgrade: bool,
    expectation: Expectation,
}

/// The client's expectation (RFC 9110 section 10.1.1); of several, the one that this server knows least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Expectation {
    #[default]
    Nothing,
    Continue,
    Unknown,
}

/// The first value of a field, and how often the field came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Once {
    value: Span,
    lines: u8,
}

impl Once {
    fn note(&mut self, value: Span) {
        if self.lines == 0 {
            self.value = value;
        }
        self.lines = self.lines.saturating_add(1);
    }
}

impl Marks {
    /// Look at one field as it passes.
    #[inline]
    pub(crate) fn note(&mut self, name: Name, value: Span, buf: &[u8]) {
        match name {
            Name::Host => self.host.note(value),
            Name::ContentLength => self.length.note(value),
            Name::TransferEncoding => self.coding.note(value),
            Name::Upgrade => self.upgrade = true,
            Name::Connection => self.note_connection(value.of(buf)),
            Name::Expect => self.note_expect(value.of(buf)),
            _ => {}
        }
    }

    /// RFC 9110 section 7.6.1: a list of options, in any letter case. Unknown options are ignored.
    fn note_connection(&mut self, value: &[u8]) {
        for option in members(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.asks_upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn note_expect(&mut self, value: &[u8]) {
        for expectation in members(value) {
            let known = expectation.eq_ignore_ascii_case(b"100-continue");
            let found = if known { Expectation::Continue } else { Expectation::Unknown };
            self.expectation = self.expectation.max(found);
        }
    }

    /// RFC 9112 section 3.2: exactly one valid Host on 1.1; before it was required, at most one.
    #[inline]
    pub(crate) fn check_host(&self, version: Version, buf: &[u8]) -> Result<(), Error> {
        match (self.host.lines, version) {
            (0, Version::Http10) => Ok(()),
            (0, Version::Http11) => Err(Error::new(Refusal::HostMissing)),
            (1, _) if Authority::parse(self.host.value.of(buf)).is_some() => Ok(()),
            (1, _) => Err(Error::new(Refusal::Host)),
            _ => Err(Error::new(Refusal::HostRepeated)),
        }
    }

    /// RFC 9112 section 6.3, held to its strictest reading.
    #[inline]
    pub(crate) fn body(&self, head: &Head, buf: &[u8], limits: &Limits) -> Result<BodyLength, Error> {
        match (self.length.lines, self.coding.lines) {
            (0, 0) => Ok(BodyLength::None),
            (1, 0) => declared(self.length.value.of(buf), limits),
            (_, 0) => Err(Error::new(Refusal::LengthRepeated)),
            (0, _) if head.version == Version::Http10 => Err(Error::new(Refusal::CodingTooEarly)),
            (0, 1) if self.coding.value.of(buf).eq_ignore_ascii_case(b"chunked") => Ok(BodyLength::Chunked),
            (0, _) => Err(refuse_codings(head, buf)),
            _ => Err(Error::new(Refusal::LengthBesideCoding)),
        }
    }

    /// RFC 9110 section 10.1.1: other expectations get 417, and HTTP/1.0 has none.
    #[inline]
    pub(crate) fn expects_continue(&self, version: Version) -> Result<bool, Error> {
        match self.expectation {
            _ if version == Version::Http10 => Ok(false),
            Expectation::Unknown => Err(Error::new(Refusal::Expectation)),
            expectation => Ok(expectation == Expectation::Continue),
        }
    }

    /// RFC 9112 section 9.3. HTTP/1.0 persistence is an extension (appendix C.2.2) this server does not speak.
    #[inline]
    pub(crate) fn persistent(&self, version: Version) -> bool {
        version == Version::Http11 && !self.close
    }

    /// RFC 9110 section 7.8: Upgrade counts only with the connection option, and never on HTTP/1.0.
    #[inline]
    pub(crate) fn upgrades(&self, version: Version) -> bool {
        self.asks_upgrade && self.upgrade && version == Version::Http11
    }
}

/// RFC 9110 section 8.6: digits only. Signs and lists, even of equal numbers, are refused.
fn declared(value: &[u8], limits: &Limits) -> Result<BodyLength, Error> {
    let length = parse_length(value).filter(|&length| length <= MAX_LENGTH);
    let length = length.ok_or(Error::new(Refusal::Length))?;
    if let Some(limit) = limits.body.filter(|&limit| length > limit) {
        return Err(Error::over(Refusal::BodyTooLarge, limit));
    }
    Ok(if length == 0 { BodyLength::None } else { BodyLength::Length(length) })
}

/// Digits to a number; `None` for anything else, and for numbers beyond 64 bits.
pub(crate) fn parse_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// What a Transfer-Encoding other than exactly `chunked` deserves. RFC 9112 section 6.3: 400 if the end of the body cannot
/// be found; section 6.1: 501 if it could, were the coding understood. `identity` is no coding any more.
#[cold]
fn refuse_codings(head: &Head, buf: &[u8]) -> Error {
    let values =
        head.fields.iter().filter(|field| field.known == Name::TransferEncoding).map(|field| field.value.of(buf));
    let (mut codings, mut chunked, mut valid, mut last_is_chunked) = (0, 0, true, false);
    for coding in values.flat_map(|value| value.split(|&byte| byte == b',')).map(trim) {
        last_is_chunked = coding.eq_ignore_ascii_case(b"chunked");
        valid &= is_coding(coding) && !coding.eq_ignore_ascii_case(b"identity");
        chunked += usize::from(last_is_chunked);
        codings += 1;
    }
    Error::new(if !valid {
        Refusal::Coding
    } else if chunked == usize::from(last_is_chunked) && (last_is_chunked || codings == 1) {
        Refusal::CodingUnsupported
    } else {
        Refusal::CodingOrder
    })
}

/// `token *( OWS ";" OWS token BWS "=" BWS ( token / quoted-string ) )` (RFC 9112 section 7). A comma in quotes, or an
/// escaped quote, has been taken for more than it is and is refused.
fn is_coding(coding: &[u8]) -> bool {
    let Some(mut rest) = skip_token(coding).map(trim) else { return false };
    while let [b';', parameter @ ..] = rest {
        let after = skip_token(trim(parameter)).map(trim).and_then(|rest| rest.strip_prefix(b"=")).map(trim);
        let Some(after) = after.and_then(|value| skip_quoted(value).or_else(|| skip_token(value))) else {
            return false;
        };
        rest = trim(after);
    }
    rest.is_empty()
}

fn skip_token(text: &[u8]) -> Option<&[u8]> {
    let length = text.iter().position(|&byte| token_byte(byte) == 0).unwrap_or(text.len());
    if length == 0 { None } else { text.get(length..) }
}

fn skip_quoted(text: &[u8]) -> Option<&[u8]> {
    let inner = text.strip_prefix(b"\"")?;
    let length = inner.iter().position(|&byte| byte == b'"')?;
    let (quoted, rest) = inner.split_at_checked(length)?;
    if quoted.contains(&b'\\') { None } else { rest.get(1..) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::request::Status;

    #[track_caller]
    fn parse(version: &str, fields: &str) -> Result<Head, u16> {
        let text = format!("POST / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        let mut head = Head::default();
        match head.parse(text.as_bytes(), &Limits::default()) {
            Ok(Status::Complete(_)) => Ok(head),
            Ok(Status::Partial) => panic!("{fields}"),
            Err(error) => Err(error.status()),
        }
    }

    #[track_caller]
    fn body(fields: &str) -> Result<BodyLength, u16> {
        parse("1.1", fields).map(|head| head.body)
    }

    #[test]
    fn lengths_are_digits() {
        assert_eq!(body("Content-Length: 5\r\n"), Ok(BodyLength::Length(5)));
        assert_eq!(body("content-length: \t00000000000000000000000005 \r\n"), Ok(BodyLength::Length(5)));
        assert_eq!(body("Content-Length: 0\r\n"), Ok(BodyLength::None));
        assert_eq!(body("Content-Length: 9223372036854775807\r\n"), Ok(BodyLength::Length(MAX_LENGTH)));
        assert_eq!(body(""), Ok(BodyLength::None));
    }

    /// F11, F12
    #[test]
    fn lengths_with_anything_else_are_refused() {
        for value in
            ["", "+5", "-5", "0x5", "5,5", "5, 5", "5 5", "5;", "\u{b2}", "9223372036854775808", &"9".repeat(1000)]
        {
            assert_eq!(body(&format!("Content-Length: {value}\r\n")), Err(400), "{value}");
        }
        assert_eq!(body("Content-Length: 5\r\nContent-Length: 5\r\n"), Err(400));
        assert_eq!(body(&"Content-Length: 5\r\n".repeat(255)), Err(400));
    }

    /// F1, F3
    #[test]
    fn codings_stand_alone_and_not_on_1_0() {
        assert_eq!(body("Transfer-Encoding: chunked\r\n"), Ok(BodyLength::Chunked));
        assert_eq!(body("transfer-encoding: \tCHUNKED \r\n"), Ok(BodyLength::Chunked));
        assert_eq!(body("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"), Err(400));
        assert_eq!(body("Content-Length: 5\r\nTransfer-Encoding: gzip\r\n"), Err(400));
        assert_eq!(parse("1.0", "Transfer-Encoding: chunked\r\n").map(|head| head.body), Err(400));
    }

    /// F2, F5
    #[test]
    fn other_codings_are_refused_for_what_they_are() {
        for value in
            ["gzip", "gzip, chunked", "a, b, chunked", "xchunked", "chunked;a=b", "gzip;a=\"b;c\" ; d=e, chunked"]
        {
            assert_eq!(body(&format!("Transfer-Encoding: {value}\r\n")), Err(501), "{value}");
        }
        for value in [
            "",
            ",",
            "chunked,",
            ",chunked",
            "gzip,,chunked",
            "chunked, chunked",
            "chunked, gzip",
            "gzip, deflate",
            "identity",
            "identity, chunked",
            "chunked gzip",
            "\"chunked\"",
            "chunked;",
            "chunked;a",
            "gzip;=b, chunked",
            "gzip;a=, chunked",
            "gzip;a=\"b, chunked",
            "gzip;a=\"\\\"\", chunked",
            "gzip;a=b c, chunked",
            "ch\u{fc}nked",
        ] {
            assert_eq!(body(&format!("Transfer-Encoding: {value}\r\n")), Err(400), "{value}");
        }
        assert_eq!(body("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), Err(501));
        assert_eq!(body("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), Err(400));
        assert_eq!(body("Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n"), Err(400));
    }

    /// R12
    #[test]
    fn only_one_expectation_is_known_and_1_0_has_none() {
        let expects =
            |version, value| parse(version, &format!("Expect: {value}\r\n")).map(|head| head.expects_continue);
        for value in
            ["100-continue", "100-CONTINUE", "100-continue, 100-continue", "100-continue\r\nExpect: 100-continue"]
        {
            assert_eq!(expects("1.1", value), Ok(true), "{value}");
        }
        for value in ["x", "100-continue;a", "100-continue, x", "\u{e9}", "100-continue\r\nExpect: x"] {
            assert_eq!(expects("1.1", value), Err(417), "{value}");
        }
        assert_eq!(expects("1.1", ""), Ok(false));
        assert_eq!(expects("1.0", "100-continue"), Ok(false));
        assert_eq!(expects("1.0", "x"), Ok(false));
    }

    /// D8
    #[test]
    fn connections_persist_on_1_1_unless_closed() {
        let persistent = |version, fields: &str| parse(version, fields).map(|head| head.persistent);
        for fields in
            ["", "Connection: keep-alive\r\n", "Connection: closed, x close\r\n", "Connection: \u{80}\u{ff},,\r\n"]
        {
            assert_eq!(persistent("1.1", fields), Ok(true), "{fields}");
        }
        for value in ["close", "CLOSE", "a, close", ",close,", "keep-alive\r\nConnection: close"] {
            assert_eq!(persistent("1.1", &format!("Connection: {value}\r\n")), Ok(false), "{value}");
        }
        assert_eq!(persistent("1.0", "Connection: keep-alive\r\n"), Ok(false));
    }
}
