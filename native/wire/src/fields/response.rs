//! The head of a response: its fields, checked, before they are encoded.

use crate::error::AppError;
use crate::fields::{Indexing, Section};
use crate::h1::framing::parse_length;
use crate::h1::response::Content;
use crate::headers::{Name, is_value, token_byte, trim};
use crate::method::Method;

/// The kind of request, on which its response depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    /// HEAD: the response has no content.
    Head,
    /// Extended CONNECT: both halves are the application's.
    Tunnel,
}

impl Kind {
    pub(crate) const fn of(method: Method) -> Self {
        match method {
            Method::Head => Self::Head,
            Method::Connect => Self::Tunnel,
            _ => Self::Request,
        }
    }
}

/// The missing rest of a response's declared length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promised(Option<u64>);

impl Promised {
    pub(crate) const fn new(declared: Option<u64>) -> Self {
        Self(declared)
    }

    /// Whether `length` bytes more can be the last ones.
    pub(crate) fn check_end(self, length: usize) -> Result<(), AppError> {
        match self.0.map(|left| left.checked_sub(length as u64)) {
            Some(None) => Err(AppError::TooLong),
            Some(Some(1..)) => Err(AppError::TooShort),
            Some(Some(0)) | None => Ok(()),
        }
    }

    /// The application gives `length` bytes more, the last ones if `last`.
    pub(crate) fn give(&mut self, length: usize, last: bool) -> Result<(), AppError> {
        let left = match self.0 {
            None => None,
            Some(left) => Some(left.checked_sub(length as u64).ok_or(AppError::TooLong)?),
        };
        if last && left.is_some_and(|left| left > 0) {
            return Err(AppError::TooShort);
        }
        self.0 = left;
        Ok(())
    }
}

/// A response head being put together, for the stream `S`. It is not visible before its connection has finished it.
#[derive(Debug)]
pub struct ResponseHead<S> {
    pub(crate) stream: S,
    pub(crate) section: Section,
    content: Content,
    pub(crate) length: Option<u64>,
}

impl<S> ResponseHead<S> {
    /// Final statuses only: 1xx ends no request (RFC 9110 section 15.2).
    pub(crate) fn new(stream: S, kind: Kind, status: u16, section: Section) -> Result<Self, AppError> {
        if !(200..600).contains(&status) {
            return Err(AppError::Status);
        }
        let content = match kind {
            // The data of a tunnel is not content (RFC 9110 section 9.3.6).
            Kind::Tunnel if status < 300 => Content::Forbidden,
            _ => Content::new(status, kind == Kind::Head),
        };
        let mut head = Self { stream, section, content, length: None };
        put_status(&mut head.section, status);
        if content == Content::Reset {
            head.section.push(b"content-length", b"0", Indexing::Without);
        }
        Ok(head)
    }

    /// Add fields that were checked before.
    #[inline]
    pub fn defaults(&mut self, defaults: &Defaults) {
        self.section.extend(&defaults.0);
    }

    /// Add a field of the application's: its name in lower case, its value without outer white space. Fields about a
    /// connection of HTTP/1.1 are left out (RFC 9113 section 8.2.2, RFC 9114 section 4.2), and a length where none may be. After an error the field
    /// was not added.
    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), AppError> {
        let value = trim(value);
        let known = check(name, value)?;
        if known == Name::ContentLength {
            let length = parse_length(value).ok_or(AppError::ContentLength)?;
            let repeated = match self.length {
                Some(known) if known != length => return Err(AppError::Conflict),
                known => known.is_some(),
            };
            self.length = Some(length);
            if repeated || !self.content.allows_framing_fields() {
                return Ok(());
            }
        }
        put(&mut self.section, known, name, value);
        Ok(())
    }

    /// How many bytes of content follow, if that was declared; or none can.
    pub(crate) fn content(&self, kind: Kind) -> Framing {
        match self.content {
            Content::Allowed => Framing::Content(self.length),
            _ if kind == Kind::Tunnel => Framing::Content(None),
            _ => Framing::None,
        }
    }
}

/// Fields that many responses have, checked once.
#[derive(Debug, Default)]
pub struct Defaults(Section);

impl Defaults {
    /// Add a field, unless it is about a connection of HTTP/1.1, or about the length of one response.
    pub fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), AppError> {
        let value = trim(value);
        let known = check(name, value)?;
        if known != Name::ContentLength {
            put(&mut self.0, known, name, value);
        }
        Ok(())
    }

    /// Name and value of each.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value, _)| (name, value))
    }
}

/// The part after a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Nothing, whatever the application gives.
    None,
    /// Content, of a length that may be known.
    Content(Option<u64>),
}

/// `:status`.
fn put_status(section: &mut Section, status: u16) {
    let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
    section.push(b":status", &[digit(100), digit(10), digit(1)], Indexing::Add);
}

/// Whether this is the status of an interim response that can be sent (RFC 9110 section 15.2).
pub(crate) const fn is_interim(status: u16) -> bool {
    100 <= status && status < 200 && status != 101
}

/// Fill `section` with an interim response.
pub(crate) fn put_interim<'a>(
    section: &mut Section,
    status: u16,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<(), AppError> {
    put_status(section, status);
    for (name, value) in fields {
        let value = trim(value);
        let known = check(name, value)?;
        if known != Name::ContentLength {
            put(section, known, name, value);
        }
    }
    Ok(())
}

/// Whether both can be sent; and which well-known name it is.
fn check(name: &[u8], value: &[u8]) -> Result<Name, AppError> {
    let known = Name::classify(name);
    let is_known = known != Name::Other && known.as_str().as_bytes() == name;
    if !is_known && (name.is_empty() || name.iter().any(|&byte| token_byte(byte) == 0)) {
        return Err(AppError::FieldName);
    }
    if is_value(value) { Ok(known) } else { Err(AppError::FieldValue) }
}

/// Add a field that was checked, unless it is about a connection of HTTP/1.1.
fn put(section: &mut Section, known: Name, name: &[u8], value: &[u8]) {
    if matches!(
        known,
        Name::Connection | Name::KeepAlive | Name::ProxyConnection | Name::TransferEncoding | Name::Upgrade
    ) {
        return;
    }
    if known != Name::Other {
        section.push(known.as_str().as_bytes(), value, indexing(known, value));
    } else if name.iter().any(u8::is_ascii_uppercase) {
        section.push(&name.to_ascii_lowercase(), value, indexing_of_other(name));
    } else {
        section.push(name, value, indexing_of_other(name));
    }
}

/// A value that comes again is put into the table; any other would only evict those. Secrets are never compressed
/// together with bytes that an attacker may choose (RFC 7541 section 7.1.3).
fn indexing(known: Name, value: &[u8]) -> Indexing {
    match known {
        Name::SetCookie | Name::Authorization | Name::ProxyAuthorization | Name::Cookie => Indexing::Never,
        Name::Date
        | Name::Server
        | Name::ContentType
        | Name::ContentEncoding
        | Name::CacheControl
        | Name::Pragma
        | Name::Via
            if value.len() <= 128 =>
        {
            Indexing::Add
        }
        _ => Indexing::Without,
    }
}

/// Those that say the same in each response of a site.
fn indexing_of_other(name: &[u8]) -> Indexing {
    const STEADY: [&[u8]; 12] = [
        b"vary",
        b"alt-svc",
        b"accept-ranges",
        b"access-control-",
        b"content-language",
        b"content-security-policy",
        b"cross-origin-",
        b"permissions-policy",
        b"referrer-policy",
        b"strict-transport-security",
        b"x-content-type-options",
        b"x-frame-options",
    ];
    if STEADY.iter().any(|steady| name.starts_with(steady)) { Indexing::Add } else { Indexing::Without }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn head(kind: Kind, status: u16, fields: Fields<'_>) -> Result<(String, Framing), AppError> {
        let mut head = ResponseHead::new((), kind, status, Section::default())?;
        for (name, value) in fields {
            head.field(name.as_bytes(), value.as_bytes())?;
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let fields: Vec<_> =
            head.section.iter().map(|(name, value, _)| format!("{}={}", text(name), text(value))).collect();
        Ok((fields.join("|"), head.content(kind)))
    }

    #[test]
    fn fields_are_in_lower_case_and_without_those_of_a_connection() {
        let fields = [("X-A", " b "), ("Connection", "close"), ("transfer-encoding", "chunked"), ("Upgrade", "h2c")];
        assert_eq!(head(Kind::Request, 200, &fields), Ok((":status=200|x-a=b".into(), Framing::Content(None))));
        let fields = [("keep-alive", "5"), ("proxy-connection", "x"), ("Content-Type", "a")];
        assert_eq!(head(Kind::Request, 404, &fields).unwrap().0, ":status=404|content-type=a");
    }

    #[test]
    fn a_length_is_said_where_it_may_be() {
        let fields = [("content-length", "5"), ("content-length", "5")];
        for (kind, status, said, framing) in [
            (Kind::Request, 200, true, Framing::Content(Some(5))),
            (Kind::Head, 200, true, Framing::None),
            (Kind::Request, 304, true, Framing::None),
            (Kind::Request, 204, false, Framing::None),
            (Kind::Tunnel, 200, false, Framing::Content(None)),
            (Kind::Tunnel, 403, true, Framing::Content(Some(5))),
        ] {
            let expected = format!(":status={status}{}", if said { "|content-length=5" } else { "" });
            assert_eq!(head(kind, status, &fields), Ok((expected, framing)), "{kind:?} {status}");
        }
        let expected = (":status=205|content-length=0".into(), Framing::None);
        assert_eq!(head(Kind::Request, 205, &fields), Ok(expected));
    }

    #[test]
    fn what_an_application_must_not_say_is_an_error() {
        for (status, name, value, error) in [
            (199, "a", "b", AppError::Status),
            (600, "a", "b", AppError::Status),
            (200, "", "b", AppError::FieldName),
            (200, "a b", "b", AppError::FieldName),
            (200, ":status", "200", AppError::FieldName),
            (200, "a", "b\r\n", AppError::FieldValue),
            (200, "content-length", "-1", AppError::ContentLength),
        ] {
            assert_eq!(head(Kind::Request, status, &[(name, value)]), Err(error));
        }
        let fields = [("content-length", "5"), ("content-length", "6")];
        assert_eq!(head(Kind::Request, 200, &fields), Err(AppError::Conflict));
    }

    #[test]
    fn secrets_are_never_in_a_table() {
        let mut head = ResponseHead::new((), Kind::Request, 200, Section::default()).unwrap();
        for name in [&b"Set-Cookie"[..], b"date", b"etag", b"vary", b"x-request-id"] {
            head.field(name, b"a").unwrap();
        }
        let found: Vec<_> = head.section.iter().map(|(_, _, indexing)| indexing).collect();
        let (add, without) = (Indexing::Add, Indexing::Without);
        assert_eq!(found, [add, Indexing::Never, add, without, add, without]);
    }
}
