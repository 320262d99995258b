//! Response heads and bodies: validation, the choice of framing, and the bytes.
//!
//! A head is appended to the caller's buffer field by field, in the application's order; only lines that would
//! contradict the framing are left out or, once, taken back. After an error the buffer is as long as it was before.

use std::ops::Range;

use crate::error::AppError;
use crate::h1::framing::parse_length;
use crate::h1::request::Version;
use crate::headers::{Name, has_member, is_value, members, token_byte, trim};
use crate::status::statuses;

macro_rules! status_lines {
    ($($code:literal $phrase:literal)*) => {
        /// The whole status line of a status that has a phrase.
        const fn status_line(status: u16) -> Option<&'static str> {
            match status {
                $($code => Some(concat!("HTTP/1.1 ", $code, " ", $phrase, "\r\n")),)*
                _ => None,
            }
        }
    };
}

statuses!(status_lines);

/// Tells a client that its body is wanted (RFC 9110 section 10.1.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How the end of a response body is marked (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body: the application's is dropped.
    None,
    /// This many bytes are still to come.
    Length(u64),
    /// Chunks.
    Chunked,
    /// The end of the connection is the end of the body.
    CloseDelimited,
}

/// The properties of the request that its response depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exchange {
    /// Whether the method was HEAD.
    pub head: bool,
    /// The request's version.
    pub version: Version,
    /// Whether the connection ends after this response.
    pub close: bool,
}

/// Whether the status and the method allow a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Allowed,
    /// HEAD and 304: none, but the framing fields of the described response are allowed.
    Described,
    /// 204: none, and no framing fields (RFC 9110 section 8.6, RFC 9112 section 6.1).
    Forbidden,
    /// 205: none, declared by a length of zero (RFC 9110 section 15.3.6).
    Reset,
}

impl Content {
    pub(crate) const fn new(status: u16, head: bool) -> Self {
        match status {
            204 => Self::Forbidden,
            205 => Self::Reset,
            304 => Self::Described,
            _ if head => Self::Described,
            _ => Self::Allowed,
        }
    }

    pub(crate) const fn allows_framing_fields(self) -> bool {
        matches!(self, Self::Allowed | Self::Described)
    }
}

/// A response head being written.
#[derive(Debug)]
pub struct HeadWriter {
    start: usize,
    content: Content,
    version: Version,
    persistence: Persistence,
    chunked: bool,
    failed: bool,
    length: Option<u64>,
    /// Lines that may have to be taken back: the length if a coding follows, `keep-alive` if the connection closes.
    length_line: Range<usize>,
    keep_alive_line: Range<usize>,
}

/// Whether the connection lives on behind the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Persistence {
    Persists,
    Closes,
    /// And the application has declared that.
    Announced,
}

impl HeadWriter {
    /// Append the status line and `defaults`, ready-made field lines (each with its CRLF). Final statuses only: 1xx ends
    /// no request (RFC 9110 section 15.2). The status line says 1.1 on 1.0 requests too (section 6.2).
    #[inline]
    pub fn begin(out: &mut Vec<u8>, exchange: Exchange, status: u16, defaults: &[u8]) -> Result<Self, AppError> {
        if status < 200 {
            return Err(AppError::Status);
        }
        let start = out.len();
        put_status_line(out, status)?;
        out.extend_from_slice(defaults);
        Ok(Self {
            start,
            content: Content::new(status, exchange.head),
            version: exchange.version,
            persistence: if exchange.close || exchange.version == Version::Http10 {
                Persistence::Closes
            } else {
                Persistence::Persists
            },
            chunked: false,
            failed: false,
            length: None,
            length_line: 0..0,
            keep_alive_line: 0..0,
        })
    }

    /// Append a field of the application's: its name in lower case, its value without outer white space. After an error
    /// the whole head is gone.
    #[inline]
    pub fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), AppError> {
        if self.failed {
            return Err(AppError::State);
        }
        self.try_field(out, name, trim(value)).inspect_err(|_| self.fail(out))
    }

    /// Append the missing fields and the empty line. `body` is the length of the body when all of it is at hand:
    /// without a framing field of the application's it is then declared, instead of chunks. Also says whether the
    /// connection lives on.
    #[inline]
    pub fn end(mut self, out: &mut Vec<u8>, body: Option<u64>) -> Result<(BodyWriter, bool), AppError> {
        if self.failed {
            return Err(AppError::State);
        }
        let framing = self.choose_framing(out, body);
        let persists = self.persistence == Persistence::Persists;
        if !persists {
            self.announce_close(out);
        }
        out.extend_from_slice(b"\r\n");
        Ok((BodyWriter { framing }, persists))
    }

    /// Take a close into account that was decided since the head was begun.
    pub(crate) fn close_if(mut self, close: bool) -> Self {
        if close && self.persistence == Persistence::Persists {
            self.persistence = Persistence::Closes;
        }
        self
    }

    #[cold]
    fn fail(&mut self, out: &mut Vec<u8>) {
        self.failed = true;
        out.truncate(self.start);
    }

    #[inline]
    fn try_field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), AppError> {
        let line = out.len();
        match put_field(out, name, value)? {
            Name::ContentLength => self.note_length(out, value, line),
            Name::TransferEncoding => self.note_codings(out, value, line),
            Name::Connection => {
                self.note_connection(out, value, line);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// RFC 9110 section 8.6: one value; a repeat of it says nothing new. RFC 9112 section 6.2: never beside a coding.
    fn note_length(&mut self, out: &mut Vec<u8>, value: &[u8], line: usize) -> Result<(), AppError> {
        let length = parse_length(value).ok_or(AppError::ContentLength)?;
        match self.length {
            Some(known) if known != length => return Err(AppError::Conflict),
            None if self.content.allows_framing_fields() && !self.chunked => self.length_line = line..out.len(),
            _ => out.truncate(line),
        }
        self.length = Some(length);
        Ok(())
    }

    /// RFC 9112 section 6.1: codings only for clients that speak 1.1, and `chunked` is the last of them, once, whatever
    /// the application wrote. A length written before is taken back.
    fn note_codings(&mut self, out: &mut Vec<u8>, value: &[u8], line: usize) -> Result<(), AppError> {
        out.truncate(line);
        let mut names = members(value).filter(|coding| !coding.eq_ignore_ascii_case(b"chunked")).peekable();
        if self.chunked && names.peek().is_some() {
            return Err(AppError::TransferEncoding);
        }
        if self.chunked || !self.content.allows_framing_fields() || self.version == Version::Http10 {
            return Ok(());
        }
        self.chunked = true;
        out.extend_from_slice(b"transfer-encoding: ");
        for name in names {
            out.extend(name.iter().map(u8::to_ascii_lowercase));
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(b"chunked\r\n");
        let withdrawn = std::mem::take(&mut self.length_line);
        if self.keep_alive_line.start >= withdrawn.end {
            self.keep_alive_line.start -= withdrawn.len();
            self.keep_alive_line.end -= withdrawn.len();
        }
        out.drain(withdrawn);
        Ok(())
    }

    fn note_connection(&mut self, out: &mut Vec<u8>, value: &[u8], line: usize) {
        if has_member(value, b"close") {
            self.persistence = Persistence::Announced;
        } else if value.eq_ignore_ascii_case(b"keep-alive") {
            if self.keep_alive_line.is_empty() {
                self.keep_alive_line = line..out.len();
            } else {
                out.truncate(line);
            }
        }
    }

    /// RFC 9112 section 9.6: `close`, once, and nothing beside it that contradicts it.
    fn announce_close(&mut self, out: &mut Vec<u8>) {
        out.drain(std::mem::take(&mut self.keep_alive_line));
        if self.persistence != Persistence::Announced {
            out.extend_from_slice(b"connection: close\r\n");
        }
    }

    /// RFC 9112 section 6.3, from the sender's side. Appends the framing field the application did not give.
    #[inline]
    fn choose_framing(&self, out: &mut Vec<u8>, body: Option<u64>) -> Framing {
        match (self.content, self.length, body) {
            (Content::Described | Content::Forbidden, ..) => Framing::None,
            (Content::Reset, ..) => {
                put_length(out, 0);
                Framing::None
            }
            (Content::Allowed, ..) if self.chunked => Framing::Chunked,
            (Content::Allowed, Some(length), _) => Framing::Length(length),
            (Content::Allowed, None, Some(length)) => {
                put_length(out, length);
                Framing::Length(length)
            }
            (Content::Allowed, None, None) if self.version == Version::Http10 => Framing::CloseDelimited,
            (Content::Allowed, None, None) => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
                Framing::Chunked
            }
        }
    }
}

/// A response body being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyWriter {
    framing: Framing,
}

impl BodyWriter {
    /// How the end of the body is marked.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Append `data` as the next part of the body.
    #[inline]
    pub fn write(&mut self, out: &mut Vec<u8>, data: &[u8]) -> Result<(), AppError> {
        if self.begin_part(out, data.len())? {
            out.extend_from_slice(data);
            self.end_part(out);
        }
        Ok(())
    }

    /// Append the framing before a part of `length` bytes. `true`: the caller sends these bytes itself, without a copy,
    /// and then calls [`end_part`](Self::end_part). `false`: nothing of this part is sent.
    #[inline]
    pub fn begin_part(&mut self, out: &mut Vec<u8>, length: usize) -> Result<bool, AppError> {
        match &mut self.framing {
            Framing::None => return Ok(false),
            Framing::Length(left) => *left = left.checked_sub(length as u64).ok_or(AppError::TooLong)?,
            Framing::Chunked if length > 0 => put_chunk_size(out, length),
            Framing::Chunked | Framing::CloseDelimited => {}
        }
        Ok(length > 0)
    }

    /// Append the framing after a part.
    #[inline]
    pub fn end_part(&self, out: &mut Vec<u8>) {
        if self.framing == Framing::Chunked {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Append the end of the body.
    #[inline]
    pub fn finish(self, out: &mut Vec<u8>) -> Result<(), AppError> {
        self.check_end(0)?;
        if self.framing == Framing::Chunked {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        Ok(())
    }

    /// Whether the body may end after another `length` bytes: a length that was promised must be reached.
    pub fn check_end(&self, length: u64) -> Result<(), AppError> {
        if matches!(self.framing, Framing::Length(left) if left > length) { Err(AppError::TooShort) } else { Ok(()) }
    }

    /// Append the end of the body with trailers, which only chunks can carry: otherwise they are left out (RFC 9110
    /// section 6.5.1).
    pub fn finish_with_trailers(self, out: &mut Vec<u8>, trailers: &Trailers) -> Result<(), AppError> {
        if self.framing != Framing::Chunked {
            return self.finish(out);
        }
        out.extend_from_slice(b"0\r\n");
        out.extend_from_slice(&trailers.lines);
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// The field lines behind the last chunk, each of them checked.
#[derive(Clone, Debug, Default)]
pub struct Trailers {
    lines: Vec<u8>,
}

impl Trailers {
    /// Add a field: its name in lower case, its value without outer white space. After an error it is not added.
    pub fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), AppError> {
        let start = self.lines.len();
        put_field(&mut self.lines, name, trim(value))?;
        if is_forbidden_trailer(&name.to_ascii_lowercase()) {
            self.lines.truncate(start);
            return Err(AppError::Trailer);
        }
        Ok(())
    }

    /// Names and values, in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let lines = self.lines.split(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\r"));
        lines.filter_map(|line| {
            let colon = line.iter().position(|&byte| byte == b':')?;
            Some((line.get(..colon)?, line.get(colon + 2..)?))
        })
    }

    /// Add those of `more` behind these.
    pub fn append(&mut self, mut more: Self) {
        self.lines.append(&mut more.lines);
    }
}

/// Append an interim response (RFC 9110 section 15.2): 100, or 103 with its links. Fields about framing and the
/// connection are left out. After an error nothing has been appended.
pub fn put_interim<'a>(
    out: &mut Vec<u8>,
    status: u16,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<(), AppError> {
    // 101 is not an interim response: it ends HTTP on the connection.
    if !(100..=199).contains(&status) || status == 101 {
        return Err(AppError::Status);
    }
    let start = out.len();
    put_status_line(out, status)?;
    for (name, value) in fields {
        let line = out.len();
        let known = put_field(out, name, trim(value)).inspect_err(|_| out.truncate(start))?;
        if matches!(known, Name::ContentLength | Name::TransferEncoding | Name::Connection) {
            out.truncate(line);
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Append a whole response with a text body, as the server itself sends them.
pub fn put_text(
    out: &mut Vec<u8>,
    exchange: Exchange,
    status: u16,
    defaults: &[u8],
    text: &[u8],
) -> Result<bool, AppError> {
    let mut head = HeadWriter::begin(out, exchange, status, defaults)?;
    head.field(out, b"content-type", b"text/plain; charset=utf-8")?;
    // Declared here, because a response to HEAD declares it, too.
    head.field(out, b"content-length", text.len().to_string().as_bytes())?;
    let (mut body, persistent) = head.end(out, None)?;
    body.write(out, text)?;
    body.finish(out)?;
    Ok(persistent)
}

/// Append `name: value` and CRLF, the name in lower case. After an error nothing has been appended.
#[inline]
pub fn put_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<Name, AppError> {
    let start = out.len();
    out.reserve(name.len() + value.len() + b": \r\n".len());
    // Most names are well-known and in lower case already: compared at once instead of byte by byte.
    let known = Name::classify(name);
    if known != Name::Other && known.is(name) {
        if !is_value(value) {
            return Err(AppError::FieldValue);
        }
        out.extend_from_slice(known.line_begin().as_bytes());
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
        return Ok(known);
    }
    let mut valid = !name.is_empty();
    out.extend(name.iter().map(|&byte| {
        let lower = token_byte(byte);
        valid &= lower != 0;
        lower
    }));
    if !valid {
        out.truncate(start);
        return Err(AppError::FieldName);
    }
    if !is_value(value) {
        out.truncate(start);
        return Err(AppError::FieldValue);
    }
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(known)
}

/// A status without a phrase keeps the space in front of it (RFC 9112 section 4).
#[inline]
fn put_status_line(out: &mut Vec<u8>, status: u16) -> Result<(), AppError> {
    match status_line(status) {
        Some(line) => out.extend_from_slice(line.as_bytes()),
        None if (100..600).contains(&status) => {
            out.extend_from_slice(b"HTTP/1.1 ");
            put_decimal(out, u64::from(status));
            out.extend_from_slice(b" \r\n");
        }
        None => return Err(AppError::Status),
    }
    Ok(())
}

fn put_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"content-length: ");
    put_decimal(out, length);
    out.extend_from_slice(b"\r\n");
}

fn put_decimal(out: &mut Vec<u8>, mut number: u64) {
    let start = out.len();
    loop {
        out.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.get_mut(start..).unwrap_or_default().reverse();
}

/// Lower-case hexadecimal without padding, and CRLF. `length` is not zero: that would end the body.
fn put_chunk_size(out: &mut Vec<u8>, length: usize) {
    let digits = length.ilog2() / 4;
    out.extend((0..=digits).rev().map(|place| {
        let digit = (length >> (place * 4) & 15) as u8;
        if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
    }));
    out.extend_from_slice(b"\r\n");
}

/// What must be known before the content (RFC 9110 section 6.5.1): fields about framing, the connection, routing,
/// authentication, requests, the response as a whole and the format of its content. Sorted.
const FORBIDDEN_TRAILERS: [&[u8]; 36] = [
    b"age",
    b"authorization",
    b"cache-control",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-range",
    b"content-type",
    b"cookie",
    b"date",
    b"expect",
    b"expires",
    b"host",
    b"if-match",
    b"if-modified-since",
    b"if-none-match",
    b"if-range",
    b"if-unmodified-since",
    b"keep-alive",
    b"location",
    b"max-forwards",
    b"pragma",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"range",
    b"retry-after",
    b"set-cookie",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"vary",
    b"via",
    b"warning",
    b"www-authenticate",
];

/// Whether the field called `name`, in lower case, may not come behind the content.
fn is_forbidden_trailer(name: &[u8]) -> bool {
    FORBIDDEN_TRAILERS.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::phrase;

    const GET: Exchange = Exchange { head: false, version: Version::Http11, close: false };
    const HEAD: Exchange = Exchange { head: true, ..GET };
    const CLOSING: Exchange = Exchange { close: true, ..GET };
    const OLD: Exchange = Exchange { version: Version::Http10, ..GET };

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn head(exchange: Exchange, status: u16, fields: Fields<'_>) -> Result<(String, Framing, bool), AppError> {
        let mut out = b"before|".to_vec();
        let result = try_head(&mut out, exchange, status, fields);
        match result {
            Ok((framing, persistent)) => {
                let text = String::from_utf8_lossy(&out).into_owned();
                Ok((text.strip_prefix("before|").unwrap().to_owned(), framing, persistent))
            }
            Err(error) => {
                assert_eq!(out, b"before|", "an error takes everything back");
                Err(error)
            }
        }
    }

    fn try_head(
        out: &mut Vec<u8>,
        exchange: Exchange,
        status: u16,
        fields: Fields<'_>,
    ) -> Result<(Framing, bool), AppError> {
        let mut head = HeadWriter::begin(out, exchange, status, b"server: x\r\n")?;
        for (name, value) in fields {
            head.field(out, name.as_bytes(), value.as_bytes())?;
        }
        let (body, persistent) = head.end(out, None)?;
        Ok((body.framing(), persistent))
    }

    #[track_caller]
    fn expect(exchange: Exchange, status: u16, fields: Fields<'_>, lines: &str, framing: Framing, persistent: bool) {
        let (text, found, lives) = head(exchange, status, fields).unwrap();
        let (line, rest) = text.split_once("\r\n").unwrap();
        assert!(line.starts_with(&format!("HTTP/1.1 {status} ")), "{line}");
        let rest = rest.strip_prefix("server: x\r\n").unwrap().strip_suffix("\r\n\r\n").unwrap_or("");
        assert_eq!((rest.replace("\r\n", "|").as_str(), found, lives), (lines, framing, persistent));
    }

    #[test]
    fn fields_keep_their_order_with_names_in_lower_case_and_values_trimmed() {
        let fields = [("X-B", " 1 "), ("Content-Length", "3"), ("x-a", "\t\u{e9}\t")];
        expect(GET, 200, &fields, "x-b: 1|content-length: 3|x-a: \u{e9}", Framing::Length(3), true);
    }

    #[test]
    fn a_body_of_unknown_length_is_chunked_or_on_1_0_ends_with_the_connection() {
        expect(GET, 200, &[], "transfer-encoding: chunked", Framing::Chunked, true);
        expect(OLD, 200, &[], "connection: close", Framing::CloseDelimited, false);
        expect(OLD, 200, &[("transfer-encoding", "chunked")], "connection: close", Framing::CloseDelimited, false);
        let fields = [("transfer-encoding", "chunked"), ("content-length", "3")];
        expect(OLD, 200, &fields, "content-length: 3|connection: close", Framing::Length(3), false);
    }

    #[test]
    fn a_body_at_hand_has_its_length_declared() {
        let mut out = Vec::new();
        let head = HeadWriter::begin(&mut out, GET, 200, b"").unwrap();
        let (body, _) = head.end(&mut out, Some(1234)).unwrap();
        assert_eq!(body.framing(), Framing::Length(1234));
        assert_eq!(out, b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n");
    }

    /// R3
    #[test]
    fn a_length_never_stands_beside_a_coding() {
        let chunked = "transfer-encoding: chunked";
        expect(GET, 200, &[("Transfer-Encoding", "CHUNKED"), ("content-length", "3")], chunked, Framing::Chunked, true);
        let fields = [("a", "1"), ("content-length", "3"), ("b", "2"), ("transfer-encoding", "chunked")];
        expect(GET, 200, &fields, "a: 1|b: 2|transfer-encoding: chunked", Framing::Chunked, true);
        expect(HEAD, 200, &fields, "a: 1|b: 2|transfer-encoding: chunked", Framing::None, true);
        let closing = [fields[1], ("connection", "keep-alive"), fields[3]];
        expect(CLOSING, 200, &closing, "transfer-encoding: chunked|connection: close", Framing::Chunked, false);
        let closing = [("connection", "keep-alive"), fields[1], fields[3]];
        expect(CLOSING, 200, &closing, "transfer-encoding: chunked|connection: close", Framing::Chunked, false);
    }

    #[test]
    fn chunked_is_the_last_coding_once() {
        let gzip = "transfer-encoding: gzip, chunked";
        for value in ["gzip, chunked", "GZIP", "chunked, gzip", " gzip ,, chunked"] {
            expect(GET, 200, &[("transfer-encoding", value)], gzip, Framing::Chunked, true);
        }
        let twice = [("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")];
        expect(GET, 200, &twice, "transfer-encoding: chunked", Framing::Chunked, true);
        let late = [("transfer-encoding", "chunked"), ("transfer-encoding", "gzip")];
        assert_eq!(head(GET, 200, &late), Err(AppError::TransferEncoding));
    }

    #[test]
    fn equal_lengths_are_sent_once_and_others_refused() {
        let twice = [("content-length", "3"), ("content-length", "03")];
        expect(GET, 200, &twice, "content-length: 3", Framing::Length(3), true);
        assert_eq!(head(GET, 200, &[twice[0], ("content-length", "4")]), Err(AppError::Conflict));
        for value in ["", "x", "-1", "+1", "1,1", "1 1", "99999999999999999999"] {
            assert_eq!(head(GET, 200, &[("content-length", value)]), Err(AppError::ContentLength), "{value}");
            assert_eq!(head(GET, 204, &[("content-length", value)]), Err(AppError::ContentLength), "{value}");
        }
    }

    /// R5
    #[test]
    fn statuses_without_content_say_so() {
        let fields = [("content-length", "3"), ("transfer-encoding", "chunked")];
        expect(GET, 204, &fields, "", Framing::None, true);
        expect(GET, 205, &fields, "content-length: 0", Framing::None, true);
        expect(GET, 304, &fields[..1], "content-length: 3", Framing::None, true);
        expect(GET, 304, &[], "", Framing::None, true);
        expect(HEAD, 200, &fields[..1], "content-length: 3", Framing::None, true);
        expect(HEAD, 200, &[], "", Framing::None, true);
    }

    #[test]
    fn a_close_is_said_once_and_not_contradicted() {
        let length = ("content-length", "0");
        let close = "content-length: 0|connection: close";
        expect(CLOSING, 200, &[length], close, Framing::Length(0), false);
        for value in ["close", "CLOSE", "x, close"] {
            let line = format!("content-length: 0|connection: {value}");
            expect(GET, 200, &[length, ("connection", value)], &line, Framing::Length(0), false);
            expect(CLOSING, 200, &[length, ("connection", value)], &line, Framing::Length(0), false);
        }
        expect(CLOSING, 200, &[("connection", "Keep-Alive"), length], close, Framing::Length(0), false);
        let twice = [("connection", "keep-alive"), ("connection", "keep-alive"), length, ("connection", "x")];
        let lines = "content-length: 0|connection: x|connection: close";
        expect(CLOSING, 200, &twice, lines, Framing::Length(0), false);
        let kept = "connection: Keep-Alive|content-length: 0";
        expect(GET, 200, &[("connection", "Keep-Alive"), length], kept, Framing::Length(0), true);
    }

    /// R1, R2
    #[test]
    fn bytes_that_would_split_the_response_are_refused() {
        for value in ["a\r\nb: c", "a\rb", "a\nb", "a\0b", "a\x1bb", "a\x7f"] {
            assert_eq!(head(GET, 200, &[("a", value)]), Err(AppError::FieldValue), "{value:?}");
        }
        for name in ["", "a b", "a:", "a\r\nb", "a\0", "[a]", "a\\b", "a\u{e9}", "(a)"] {
            assert_eq!(head(GET, 200, &[("b", "c"), (name, "b")]), Err(AppError::FieldName), "{name:?}");
        }
        expect(GET, 204, &[("a", "b\tc")], "a: b\tc", Framing::None, true);
    }

    #[test]
    fn nothing_goes_on_after_a_refused_field() {
        let mut out = Vec::new();
        let mut head = HeadWriter::begin(&mut out, GET, 200, b"").unwrap();
        assert_eq!(head.field(&mut out, b"", b""), Err(AppError::FieldName));
        assert_eq!(head.field(&mut out, b"a", b"b"), Err(AppError::State));
        assert_eq!(head.end(&mut out, None).unwrap_err(), AppError::State);
        assert_eq!(out, b"");
    }

    /// R8
    #[test]
    fn every_final_status_has_a_line_and_no_other_number_has() {
        for status in 0..=u16::MAX {
            let mut out = Vec::new();
            if HeadWriter::begin(&mut out, GET, status, b"").is_ok() {
                assert!((200..600).contains(&status));
                assert_eq!(out, format!("HTTP/1.1 {status} {}\r\n", phrase(status)).as_bytes());
            } else {
                assert!(!(200..600).contains(&status));
                assert_eq!(out, b"");
            }
        }
    }

    fn body(framing: Framing, parts: &[&[u8]]) -> Result<Vec<u8>, AppError> {
        let (mut out, mut body) = (Vec::new(), BodyWriter { framing });
        for part in parts {
            body.write(&mut out, part)?;
        }
        body.finish(&mut out)?;
        Ok(out)
    }

    #[test]
    fn bodies_are_framed_as_promised() {
        assert_eq!(body(Framing::None, &[b"dropped"]).unwrap(), b"");
        assert_eq!(body(Framing::Length(5), &[b"he", b"", b"llo"]).unwrap(), b"hello");
        assert_eq!(body(Framing::CloseDelimited, &[b"hello"]).unwrap(), b"hello");
        let part = [b'x'; 0x1a5];
        let expected = [&b"1a5\r\n"[..], &part, b"\r\n0\r\n\r\n"].concat();
        assert_eq!(body(Framing::Chunked, &[&part, b""]).unwrap(), expected);
    }

    /// R4
    #[test]
    fn a_body_of_another_length_than_promised_is_an_error() {
        assert_eq!(body(Framing::Length(5), &[b"hello", b"!"]), Err(AppError::TooLong));
        assert_eq!(body(Framing::Length(5), &[b"hell"]), Err(AppError::TooShort));
    }

    #[test]
    fn chunk_sizes_are_hexadecimal_without_padding() {
        for length in [1, 9, 10, 15, 16, 255, 256, 65535, 65536, usize::MAX] {
            let mut out = Vec::new();
            put_chunk_size(&mut out, length);
            assert_eq!(out, format!("{length:x}\r\n").as_bytes());
        }
    }

    #[test]
    fn numbers_are_decimal_without_padding() {
        for number in [0, 9, 10, 4096, u64::MAX] {
            let mut out = Vec::new();
            put_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    #[test]
    fn trailers_end_a_chunked_body_and_no_other() {
        let mut trailers = Trailers::default();
        trailers.add(b"X-Sum", b" 1 ").unwrap();
        trailers.add(b"etag", b"\"2\"").unwrap();
        let (mut out, chunked) = (Vec::new(), BodyWriter { framing: Framing::Chunked });
        chunked.finish_with_trailers(&mut out, &trailers).unwrap();
        assert_eq!(out, b"0\r\nx-sum: 1\r\netag: \"2\"\r\n\r\n");
        out.clear();
        chunked.finish_with_trailers(&mut out, &Trailers::default()).unwrap();
        assert_eq!(out, b"0\r\n\r\n");
        for framing in [Framing::None, Framing::Length(0), Framing::CloseDelimited] {
            let mut out = Vec::new();
            BodyWriter { framing }.finish_with_trailers(&mut out, &trailers).unwrap();
            assert_eq!(out, b"");
        }
        let short = BodyWriter { framing: Framing::Length(1) };
        assert_eq!(short.finish_with_trailers(&mut out, &trailers), Err(AppError::TooShort));
    }

    #[test]
    fn fields_that_must_be_known_before_the_content_are_no_trailers() {
        assert!(FORBIDDEN_TRAILERS.is_sorted());
        for (name, value, error) in [
            (&b"Content-Length"[..], &b"1"[..], AppError::Trailer),
            (b"transfer-encoding", b"chunked", AppError::Trailer),
            (b"WWW-Authenticate", b"x", AppError::Trailer),
            (b"a b", b"", AppError::FieldName),
            (b"a", b"\n", AppError::FieldValue),
        ] {
            let mut trailers = Trailers::default();
            assert_eq!(trailers.add(name, value), Err(error));
            assert!(trailers.lines.is_empty());
        }
    }

    #[test]
    fn a_last_part_must_reach_the_promised_length() {
        let body = BodyWriter { framing: Framing::Length(5) };
        assert_eq!((body.check_end(4), body.check_end(5)), (Err(AppError::TooShort), Ok(())));
        assert_eq!(BodyWriter { framing: Framing::Chunked }.check_end(0), Ok(()));
    }

    #[test]
    fn interim_responses_carry_no_framing() {
        let mut out = Vec::new();
        let fields = [(&b"Link"[..], &b"</a>; rel=preload"[..]), (b"content-length", b"1"), (b"connection", b"close")];
        put_interim(&mut out, 103, fields).unwrap();
        assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n");
        for status in [99, 101, 200] {
            assert_eq!(put_interim(&mut out, status, []), Err(AppError::Status));
        }
        let length = out.len();
        assert_eq!(put_interim(&mut out, 103, [(&b"a"[..], &b"\r"[..])]), Err(AppError::FieldValue));
        assert_eq!(out.len(), length);
    }

    #[test]
    fn a_text_response_is_whole() {
        let mut out = Vec::new();
        assert_eq!(put_text(&mut out, CLOSING, 400, b"server: x\r\n", b"No."), Ok(false));
        let expected = "HTTP/1.1 400 Bad Request\r\nserver: x\r\ncontent-type: text/plain; charset=utf-8\r\n\
            content-length: 3\r\nconnection: close\r\n\r\nNo.";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
