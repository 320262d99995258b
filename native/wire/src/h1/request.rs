//! The request head: request line, fields, and where each piece lies. Strict, in one pass, resumable at any byte.
//!
//! The first byte that breaks a rule decides the error, so how a head was cut into reads never changes the outcome.
//! What the fields mean for the message is decided in [`framing`](crate::h1::framing) once the head is complete.

use crate::error::{Error, Refusal};
use crate::h1::framing::{BodyLength, Marks};
use crate::h1::sections::{Number, Sections};
use crate::h1::target::{Form, Target};
use crate::headers::{Field, Name, Span, has_member, token_byte};
use crate::limits::Limits;
use crate::method::{Method, is_method_byte};
use crate::scan;
use crate::scratch::Reused;

/// The minor version that decides framing and persistence. Higher minor versions are served as 1.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1 and later 1.x
    #[default]
    Http11,
}

/// The result of [`Head::parse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The head ends after this many bytes.
    Complete(usize),
    /// More bytes are needed.
    Partial,
}

/// Which part the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    RequestLine,
    Target,
    Version,
    Fields,
    Complete,
}

/// One request head. Reuse it: the storage for fields stays. Connections share one through a
/// [`Scratch`](crate::h1::Scratch), never by itself.
///
/// The public fields are meaningful once [`parse`](Head::parse) said [`Status::Complete`]. Spans are offsets into the
/// buffer given to that call.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Head {
    stage: Stage,
    /// Where the line or the run being read begins, and how far it is known to be good.
    from: usize,
    scanned: usize,
    /// The place of the first `?` of the target.
    question: Option<usize>,
    /// The colon of the field line being read, and the name in front of it.
    colon: Option<(usize, Name)>,
    /// Where the field section begins.
    section: usize,
    pub(crate) marks: Marks,

    /// Where the request line begins: behind empty lines.
    pub start: usize,
    /// The method, classified.
    pub verb: Method,
    /// The method as sent.
    pub method: Span,
    /// The target, taken apart.
    pub target: Target,
    /// The version it is to be treated as.
    pub version: Version,
    /// The fields in the order sent, repeats kept.
    pub fields: Vec<Field>,
    /// Which body follows.
    pub body: BodyLength,
    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1).
    pub expects_continue: bool,
    /// Whether the client lets the connection live on (RFC 9112 section 9.3).
    pub persistent: bool,
    /// Whether the client validly asks for another protocol (RFC 9110 section 7.8); [`upgrades_to`](Head::upgrades_to)
    /// tells which one.
    pub upgrades: bool,
    /// The place of the fields in [`Sections`].
    pub memory: Memory,
}

/// The place in [`Sections`] of the fields of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// Nothing.
    #[default]
    None,
    /// It keeps them from now on, under this number.
    Kept(Number),
    /// They were known under this number, word for word, and not read: `fields` is empty.
    Recalled(Number),
}

impl Memory {
    /// The number under which it keeps the fields, if it does.
    pub fn number(self) -> Option<Number> {
        match self {
            Self::None => None,
            Self::Kept(number) | Self::Recalled(number) => Some(number),
        }
    }
}

impl Reused for Head {
    #[inline]
    fn reset(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Self { fields, ..Self::default() };
    }
}

impl Head {
    /// Whether the fields were known, word for word, and not read.
    #[inline]
    pub fn is_recalled(&self) -> bool {
        matches!(self.memory, Memory::Recalled(_))
    }

    /// Read a head from `buf`, which begins where the message begins. After `Partial`, call again with the same bytes
    /// and more behind them: nothing already looked at is looked at again. After `Complete` or an error the next call
    /// begins a new head.
    #[inline]
    pub fn parse(&mut self, buf: &[u8], limits: &Limits) -> Result<Status, Error> {
        self.parse_recalling(buf, limits, None)
    }

    /// [`parse`](Self::parse), which takes what it concluded from the fields out of `sections` when it met them before,
    /// and puts it there.
    #[inline]
    pub fn parse_recalling(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        sections: Option<&mut Sections>,
    ) -> Result<Status, Error> {
        if self.stage == Stage::Complete {
            self.reset();
        }
        if self.stage == Stage::RequestLine
            && let Err(error) = self.empty_lines(buf, limits)
        {
            return self.failed(error);
        }
        // Spans hold 32 bits, whatever the limit.
        let end = self.start.saturating_add(limits.head).min(u32::MAX as usize);
        let window = buf.get(..end).unwrap_or(buf);
        match self.advance(window, limits, sections) {
            Ok(Some(length)) => {
                self.stage = Stage::Complete;
                Ok(Status::Complete(length))
            }
            Ok(None) if buf.len() <= end => Ok(Status::Partial),
            Ok(None) if self.stage == Stage::Fields => self.failed(Error::over(Refusal::HeadTooLarge, limits.head)),
            Ok(None) => self.failed(Error::over(Refusal::LineTooLong, limits.head)),
            Err(error) => self.failed(error),
        }
    }

    /// Whether a byte of a request line has been seen: false for a connection that is merely open.
    pub fn has_begun(&self) -> bool {
        self.stage != Stage::RequestLine || self.scanned > self.start
    }

    /// The first field with this name.
    pub fn get(&self, name: Name) -> Option<Span> {
        self.fields.iter().find(|field| field.known == name).map(|field| field.value)
    }

    /// Whether the client asks for this protocol, among others or not, in any letter case.
    pub fn upgrades_to(&self, buf: &[u8], protocol: &[u8]) -> bool {
        let mut offers = self.fields.iter().filter(|field| field.known == Name::Upgrade);
        self.upgrades && offers.any(|field| has_member(field.value.of(buf), protocol))
    }

    #[cold]
    fn failed(&mut self, error: Error) -> Result<Status, Error> {
        self.stage = Stage::Complete;
        Err(error)
    }

    #[inline]
    fn advance(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        sections: Option<&mut Sections>,
    ) -> Result<Option<usize>, Error> {
        if self.stage == Stage::RequestLine && !self.request_line_begin(buf, limits)? {
            return Ok(None);
        }
        if self.stage == Stage::Target && !self.request_target(buf, limits)? {
            return Ok(None);
        }
        if self.stage == Stage::Version && !self.request_version(buf)? {
            return Ok(None);
        }
        // The meaning of a section depends on the version, and in other forms of the target on more than that.
        let recallable = self.version == Version::Http11 && self.target.form == Form::Origin;
        let sections = sections.filter(|_| recallable);
        let start = self.section;
        let rest = buf.get(start..).unwrap_or_default();
        if let Some(known) = &sections
            && self.from == start
            && let Some((number, length)) = known.find(rest)
        {
            (self.memory, self.persistent) = (Memory::Recalled(number), true);
            return Ok(Some(start + length));
        }
        let Some(end) = self.field_lines(buf, limits)? else { return Ok(None) };
        self.decide(buf, limits)?;
        let plain = self.body == BodyLength::None && self.persistent && !self.upgrades && !self.expects_continue;
        if let Some(sections) = sections
            && plain
        {
            let number = sections.note(buf.get(start..end).unwrap_or_default());
            self.memory = number.map_or(Memory::None, Memory::Kept);
        }
        Ok(Some(end))
    }

    /// RFC 9112 section 2.2: empty lines in front of a request line are ignored, here a few of them. They are short, so
    /// after `Partial` they are simply read again, and so is the method.
    #[inline]
    fn empty_lines(&mut self, buf: &[u8], limits: &Limits) -> Result<(), Error> {
        let mut at = 0;
        while let [b'\r', b'\n', ..] = buf.get(at..).unwrap_or_default() {
            if at == limits.empty_lines * 2 {
                return Err(Error::over(Refusal::EmptyLines, limits.empty_lines));
            }
            at += 2;
        }
        (self.start, self.scanned) = (at, at);
        Ok(())
    }

    #[inline]
    fn request_line_begin(&mut self, buf: &[u8], limits: &Limits) -> Result<bool, Error> {
        let start = self.start;
        let rest = buf.get(start..).unwrap_or_default();
        match rest {
            [] | [b'\r'] => return Ok(false),
            [b'\r' | b'\n', ..] => return Err(Error::new(Refusal::LineBegin)),
            _ => self.scanned = buf.len(),
        }
        let Some(length) = rest.iter().take(limits.method + 1).position(|&byte| !is_method_byte(byte)) else {
            if rest.len() > limits.method {
                // RFC 9112 section 3: a method longer than any implemented SHOULD get 501.
                return Err(Error::over(Refusal::MethodTooLong, limits.method));
            }
            return Ok(false);
        };
        if length == 0 || rest.get(length) != Some(&b' ') {
            return Err(Error::new(Refusal::Method));
        }
        self.method = Span::new(start, start + length);
        self.verb = Method::classify(self.method.of(buf));
        self.from = start + length + 1;
        self.scanned = self.from;
        self.stage = Stage::Target;
        Ok(true)
    }

    /// The target up to its space. The first `?` is found on the way, and in front of it every `%` is checked: a path that
    /// cannot be decoded has no meaning (RFC 3986 section 2.1). In queries a lone `%` is common and harmless.
    #[inline]
    fn request_target(&mut self, buf: &[u8], limits: &Limits) -> Result<bool, Error> {
        while self.question.is_none() {
            self.scanned = scan::path_end(buf, self.scanned);
            match buf.get(self.scanned..).unwrap_or_default() {
                [b'?', ..] => self.question = Some(self.scanned),
                [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => self.scanned += 3,
                _ => break,
            }
        }
        if self.question.is_some() {
            self.scanned = scan::target_end(buf, self.scanned);
        }
        let end = self.scanned;
        if end - self.from > limits.target {
            return Err(Error::over(Refusal::TargetTooLong, limits.target));
        }
        match buf.get(end..).unwrap_or_default() {
            [b' ', ..] if end > self.from => {}
            [] | [b'%'] => return Ok(false),
            [b'%', high] if high.is_ascii_hexdigit() => return Ok(false),
            [b'%', ..] => return Err(Error::new(Refusal::TargetPercent)),
            [b'#', ..] => return Err(Error::new(Refusal::TargetFragment)),
            _ => return Err(Error::new(Refusal::Target)),
        }
        self.target.whole = Span::new(self.from, end);
        self.from = end + 1;
        self.stage = Stage::Version;
        Ok(true)
    }

    #[inline]
    fn request_version(&mut self, buf: &[u8]) -> Result<bool, Error> {
        let Some(version) = parse_version(buf.get(self.from..).unwrap_or_default())? else { return Ok(false) };
        self.version = version;
        self.target = Target::parse(buf, self.target.whole, self.question, self.verb)?;
        self.from += VERSION_LINE.len();
        self.section = self.from;
        self.scanned = self.from;
        self.stage = Stage::Fields;
        Ok(true)
    }

    /// Field lines up to the empty one; `Some` is the length of the head.
    #[inline]
    fn field_lines(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<usize>, Error> {
        loop {
            let line = self.from;
            match buf.get(line) {
                Some(b'\r') => return line_feed(buf, line + 1, Refusal::HeadEnd),
                None => return Ok(None),
                Some(_) if self.fields.len() == limits.fields => {
                    return Err(Error::over(Refusal::TooManyFields, limits.fields));
                }
                Some(_) => {}
            }
            let (colon, known) = match self.colon {
                Some(found) => found,
                None => match self.field_name(buf, line)? {
                    Some(found) => found,
                    None => return Ok(None),
                },
            };
            let Some((end, next)) = self.field_value(buf)? else {
                self.colon = Some((colon, known));
                return Ok(None);
            };
            let value = trim_span(buf, colon + 1, end);
            self.marks.note(known, value, buf);
            self.fields.push(Field { name: Span::new(line, colon), value, known });
            (self.from, self.scanned, self.colon) = (next, next, None);
        }
    }

    /// The colon of the line, if it is there yet, and the name in front of it. RFC 9112 sections 5.1 and 5.2: no white
    /// space before it, and a line that begins with some (an obsolete fold) is refused.
    #[inline]
    fn field_name(&mut self, buf: &[u8], line: usize) -> Result<Option<(usize, Name)>, Error> {
        let end = scan::name_end(buf, self.scanned);
        self.scanned = end;
        match buf.get(end) {
            None => Ok(None),
            Some(b':') if end > line => {
                self.scanned = end + 1;
                Ok(Some((end, classify_name(Span::new(line, end).of(buf))?)))
            }
            Some(_) => Err(Error::new(Refusal::FieldName)),
        }
    }

    /// Where the value ends and the next line starts, if this one is complete. A line ends in CRLF and nothing else
    /// (RFC 9112 section 2.2 allows a bare LF; taking it is how requests get smuggled).
    #[inline]
    fn field_value(&mut self, buf: &[u8]) -> Result<Option<(usize, usize)>, Error> {
        let end = scan::value_end(buf, self.scanned);
        self.scanned = end;
        match buf.get(end) {
            None => Ok(None),
            Some(b'\r') => Ok(line_feed(buf, end + 1, Refusal::FieldEnd)?.map(|next| (end, next))),
            Some(_) => Err(Error::new(Refusal::FieldValue)),
        }
    }

    /// Decide on Host, framing, expectations and persistence, which depend on the whole head.
    #[inline]
    fn decide(&mut self, buf: &[u8], limits: &Limits) -> Result<(), Error> {
        let marks = self.marks;
        marks.check_host(self.version, buf)?;
        self.body = marks.body(self, buf, limits)?;
        self.expects_continue = marks.expects_continue(self.version)?;
        self.persistent = marks.persistent(self.version);
        self.upgrades = marks.upgrades(self.version);
        if self.target.form == Form::Authority {
            return Err(Error::new(Refusal::Connect));
        }
        Ok(())
    }
}

const VERSION_LINE: &[u8; 10] = b"HTTP/1.1\r\n";

/// RFC 9112 section 2.3, and the end of the line. Decided byte by byte, so garbage is refused before the line ends.
#[inline]
fn parse_version(rest: &[u8]) -> Result<Option<Version>, Error> {
    if rest.first_chunk() == Some(VERSION_LINE) {
        return Ok(Some(Version::Http11));
    }
    for (byte, expected) in rest.iter().zip(VERSION_LINE) {
        if byte != expected && !(byte.is_ascii_digit() && expected.is_ascii_digit()) {
            return Err(Error::new(Refusal::Version));
        }
    }
    match rest {
        [_, _, _, _, _, major, _, minor, _, _, ..] => match (major, minor) {
            (b'0', _) => Err(Error::new(Refusal::VersionTooOld)),
            (b'1', b'0') => Ok(Some(Version::Http10)),
            (b'1', _) => Ok(Some(Version::Http11)),
            _ => Err(Error::new(Refusal::VersionUnsupported)),
        },
        _ => Ok(None),
    }
}

/// The index after the LF that is required at `at`, if that byte is there yet.
#[inline]
fn line_feed(buf: &[u8], at: usize, otherwise: Refusal) -> Result<Option<usize>, Error> {
    match buf.get(at) {
        Some(b'\n') => Ok(Some(at + 1)),
        None => Ok(None),
        Some(_) => Err(Error::new(otherwise)),
    }
}

/// A well-known name is known to be a token; any other is checked byte by byte.
#[inline]
fn classify_name(name: &[u8]) -> Result<Name, Error> {
    let known = Name::classify(name);
    if known == Name::Other && !name.iter().all(|&byte| token_byte(byte) != 0) {
        return Err(Error::new(Refusal::FieldName));
    }
    Ok(known)
}

/// The part of `start..end` without spaces and tabs at its ends.
#[inline]
fn trim_span(buf: &[u8], mut start: usize, mut end: usize) -> Span {
    while start < end && matches!(buf.get(start), Some(b' ' | b'\t')) {
        start += 1;
    }
    while start < end && matches!(buf.get(end - 1), Some(b' ' | b'\t')) {
        end -= 1;
    }
    Span::new(start, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn limits() -> Limits {
        Limits { head: 100, fields: 3, target: 10, method: 5, empty_lines: 3, body: Some(10), ..Limits::default() }
    }

    /// Parse in one piece, then in every two pieces, then byte by byte: the outcome must be the same.
    #[track_caller]
    fn parse_with(input: &[u8], limits: &Limits) -> Result<(Status, Head), Error> {
        let whole = parse_cuts(input, &[], limits);
        for cut in 0..input.len() {
            assert_eq!(outcome(&parse_cuts(input, &[cut], limits)), outcome(&whole), "cut at {cut}");
        }
        let bytes: Vec<usize> = (0..input.len()).collect();
        assert_eq!(outcome(&parse_cuts(input, &bytes, limits)), outcome(&whole), "byte by byte");
        whole
    }

    fn parse_cuts(input: &[u8], cuts: &[usize], limits: &Limits) -> Result<(Status, Head), Error> {
        let mut head = Head::default();
        for &cut in cuts {
            match head.parse(&input[..cut], limits)? {
                Status::Partial => {}
                complete @ Status::Complete(_) => return Ok((complete, head)),
            }
        }
        head.parse(input, limits).map(|status| (status, head))
    }

    fn outcome(result: &Result<(Status, Head), Error>) -> Result<String, Error> {
        match result {
            Ok((Status::Partial, _)) => Ok("partial".into()),
            Ok((status, head)) => Ok(format!(
                "{status:?} {:?} {:?} {:?} {:?} {:?} {:?} {} {} {}",
                head.start,
                head.method,
                head.target,
                head.version,
                head.fields,
                head.body,
                head.expects_continue,
                head.persistent,
                head.upgrades
            )),
            Err(error) => Err(*error),
        }
    }

    #[track_caller]
    fn parse(input: &str) -> Head {
        match parse_with(input.as_bytes(), &Limits::default()) {
            Ok((Status::Complete(length), head)) => {
                assert_eq!(length, input.len());
                head
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn status(input: &[u8], limits: &Limits) -> u16 {
        match parse_with(input, limits) {
            Ok((Status::Complete(_), _)) => 200,
            Ok((Status::Partial, _)) => 0,
            Err(error) => error.status(),
        }
    }

    #[test]
    fn a_head_is_taken_apart() {
        let text = "\r\nPUT /a%20b?c=d HTTP/1.1\r\nHost: h:80\r\nX-Own:  v w \t\r\ncookie:\r\n\r\n";
        let head = parse(text);
        let buf = text.as_bytes();
        assert_eq!((head.start, head.verb, head.method.of(buf)), (2, Method::Put, &b"PUT"[..]));
        assert_eq!((head.target.path.of(buf), head.target.query.of(buf)), (&b"/a%20b"[..], &b"c=d"[..]));
        let fields: Vec<_> =
            head.fields.iter().map(|field| (field.name.of(buf), field.value.of(buf), field.known)).collect();
        let expected =
            [(&b"Host"[..], &b"h:80"[..], Name::Host), (b"X-Own", b"v w", Name::Other), (b"cookie", b"", Name::Cookie)];
        assert_eq!(fields, expected);
        assert_eq!(head.get(Name::Host).unwrap().of(buf), b"h:80");
        assert_eq!((head.version, head.persistent, head.body), (Version::Http11, true, BodyLength::None));
    }

    #[test]
    fn a_reused_head_remembers_nothing() {
        let mut head = Head::default();
        let first = b"POST /?a HTTP/1.0\r\nContent-Length: 3\r\nConnection: close\r\n\r\n";
        assert!(matches!(head.parse(first, &Limits::default()), Ok(Status::Complete(_))));
        assert!(head.parse(b"bad", &Limits::default()).is_err());
        let second = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
        assert_eq!(head.parse(second, &Limits::default()), Ok(Status::Complete(27)));
        assert_eq!((head.fields.len(), head.body, head.persistent), (1, BodyLength::None, true));
        assert!(head.target.query.is_empty());
    }

    #[test]
    fn a_reused_head_keeps_its_storage() {
        let (mut head, many) = (Head::default(), with_fields(100));
        assert!(matches!(head.parse(&many, &Limits::default()), Ok(Status::Complete(_))));
        assert!(matches!(head.parse(&with_fields(1), &Limits::default()), Ok(Status::Complete(_))));
        assert!(head.fields.capacity() >= 100);
    }

    /// Parse `text` three times with a memory; whether the last time the fields were recalled.
    fn recalls(text: &str, limits: &Limits) -> bool {
        let (mut head, mut sections) = (Head::default(), Sections::new());
        for _ in 0..3 {
            assert_eq!(
                head.parse_recalling(text.as_bytes(), limits, Some(&mut sections)),
                Ok(Status::Complete(text.len()))
            );
        }
        head.is_recalled()
    }

    #[test]
    fn a_section_met_twice_is_recalled_and_means_the_same() {
        let (mut head, mut sections, limits) = (Head::default(), Sections::new(), Limits::default());
        let mut parse = |head: &mut Head, text: &str| {
            assert_eq!(
                head.parse_recalling(text.as_bytes(), &limits, Some(&mut sections)),
                Ok(Status::Complete(text.len()))
            );
            (head.memory.number().map(Number::place), head.is_recalled(), head.fields.len())
        };
        assert_eq!(parse(&mut head, "GET /1 HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"), (None, false, 2));
        assert_eq!(parse(&mut head, "GET /2 HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"), (Some(0), false, 2));
        assert_eq!(parse(&mut head, "POST /333?a HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"), (Some(0), true, 0));
        assert_eq!((head.verb, head.target.path.len(), head.persistent), (Method::Post, 4, true));
        assert_eq!(parse(&mut head, "GET / HTTP/1.1\r\nHost: a\r\nX: z\r\n\r\n"), (None, false, 2));
    }

    #[test]
    fn only_plain_sections_of_plain_requests_are_recalled() {
        let limits = Limits::default();
        assert!(recalls("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &limits));
        assert!(recalls("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", &limits));
        for line in ["GET / HTTP/1.0", "GET http://b/ HTTP/1.1", "OPTIONS * HTTP/1.1"] {
            assert!(!recalls(&format!("{line}\r\nHost: a\r\n\r\n"), &limits), "{line}");
        }
        for fields in [
            "Connection: close",
            "Content-Length: 5",
            "Transfer-Encoding: chunked",
            "Expect: 100-continue",
            "Connection: upgrade\r\nUpgrade: websocket",
        ] {
            assert!(!recalls(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"), &limits), "{fields}");
        }
    }

    #[test]
    fn a_known_section_is_recalled_unless_some_of_it_has_been_read() {
        let (mut head, mut sections, limits) = (Head::default(), Sections::new(), Limits::default());
        let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let complete = Ok(Status::Complete(text.len()));
        for (cut, recalled) in [(0, false), (0, false), (0, true), (16, true), (20, true), (25, false), (26, false)] {
            assert_eq!(head.parse_recalling(&text[..cut], &limits, Some(&mut sections)), Ok(Status::Partial));
            assert_eq!(head.parse_recalling(text, &limits, Some(&mut sections)), complete);
            assert_eq!((head.is_recalled(), head.fields.is_empty()), (recalled, recalled), "cut at {cut}");
        }
    }

    #[test]
    fn methods_are_upper_case_tokens() {
        for method in ["GET", "M-SEARCH", "X", "A1", "A_B", "VERSION-CONTROL"] {
            assert_eq!(
                parse(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")).verb,
                Method::classify(method.as_bytes())
            );
        }
        for method in ["", "get", "Get", "G#T", "G(T", "G\u{1}T", "GET:", "\"GET\""] {
            let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(status(text.as_bytes(), &Limits::default()), 400, "{method}");
        }
        for &method in Method::ALL {
            assert_eq!(Method::classify(method.as_str().as_bytes()), method);
        }
        assert_eq!(Method::Other.as_str(), "");
    }

    #[test]
    fn garbage_is_refused_at_its_first_bad_byte() {
        for text in [
            "\0",
            " ",
            "g",
            "GET /\x7f",
            "GET  ",
            "GET / h",
            "GET / HTTP/1.1\n",
            "GET / HTTP/1.1\r\nHost: a\n",
            "\n",
            "\rG",
        ] {
            assert_eq!(status(text.as_bytes(), &Limits::default()), 400, "{text:?}");
        }
        for text in ["", "\r", "\r\n", "G", "GET", "GET ", "GET /", "GET / ", "GET / HTTP/1.1\r", "GET / HTTP/1.1\r\nA"]
        {
            assert_eq!(status(text.as_bytes(), &Limits::default()), 0, "{text:?}");
        }
    }

    #[test]
    fn versions_other_than_1_are_told_apart() {
        for (version, expected) in [
            ("HTTP/1.1", 200),
            ("HTTP/1.9", 200),
            ("HTTP/1.0", 200),
            ("HTTP/0.9", 400),
            ("HTTP/2.0", 505),
            ("HTTP/1.10", 400),
            ("HTTP/11.1", 400),
            ("HTTP/1", 400),
            ("http/1.1", 400),
            ("HTTP/1.1 ", 400),
            ("HTTP/1,1", 400),
            ("HTTP/111", 400),
            ("HTTP/a.1", 400),
            ("HTTP/1.b", 400),
            ("1TTP/1.1", 400),
        ] {
            let text = format!("GET / {version}\r\nHost: a\r\n\r\n");
            assert_eq!(status(text.as_bytes(), &Limits::default()), expected, "{version}");
        }
        assert_eq!(parse("GET / HTTP/1.0\r\n\r\n").version, Version::Http10);
    }

    #[test]
    fn a_percent_in_a_path_is_followed_by_two_digits() {
        for (target, expected) in
            [("/%41", 200), ("/%", 400), ("/%4", 400), ("/%4g", 400), ("/%%41", 400), ("/?%", 200), ("/%2f?%zz", 200)]
        {
            let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(status(text.as_bytes(), &Limits::default()), expected, "{target}");
        }
        assert_eq!(status(b"GET /%", &Limits::default()), 0);
        assert_eq!(status(b"GET /%4", &Limits::default()), 0);
        assert_eq!(status(b"GET /%z", &Limits::default()), 400);
    }

    /// F6, F7, F19
    #[test]
    fn field_lines_follow_the_grammar() {
        for line in [
            "X : a",
            "X\t: a",
            ": a",
            "X",
            "X a",
            " X: a",
            "\tX: a",
            "X(: a",
            "X\u{e9}: a",
            "X: a\0",
            "X: \x1b",
            "X: a\rb",
            "X: a\nY: b",
            "X: a\r\n b",
            "X:\r\n b",
            "X: \x7f",
            "X: a\r",
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n");
            assert_eq!(status(text.as_bytes(), &Limits::default()), 400, "{line:?}");
        }
        for line in ["X:", "X: ", "X: \t", "X:a", "X: a\tb", "X: \u{80}\u{ff}~", "!#$%&'*+-.^_`|~: a", "X:: a"] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n");
            assert_eq!(status(text.as_bytes(), &Limits::default()), 200, "{line:?}");
        }
        let high = b"GET / HTTP/1.1\r\nHost: a\r\nX: \xff~~~~~~~~\xff~\r\n\r\n";
        assert_eq!(status(high, &Limits::default()), 200);
    }

    #[test]
    fn host_is_there_once_and_valid() {
        for (fields, expected) in [
            ("", 400),
            ("Host: a\r\nHost: a\r\n", 400),
            ("Host:\r\n", 400),
            ("Host: a b\r\n", 400),
            ("Host: u@a\r\n", 400),
            ("hOsT: a:8000\r\n", 200),
        ] {
            let text = format!("GET / HTTP/1.1\r\n{fields}\r\n");
            assert_eq!(status(text.as_bytes(), &Limits::default()), expected, "{fields}");
        }
        assert_eq!(status(b"GET / HTTP/1.0\r\n\r\n", &Limits::default()), 200);
        assert_eq!(status(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", &Limits::default()), 400);
        assert_eq!(status(b"GET http://b/ HTTP/1.1\r\n\r\n", &Limits::default()), 400);
    }

    #[test]
    fn connect_is_checked_and_then_not_implemented() {
        assert_eq!(status(b"CONNECT b:80 HTTP/1.1\r\nHost: b:80\r\n\r\n", &Limits::default()), 501);
        assert_eq!(status(b"CONNECT b:80 HTTP/1.1\r\n\r\n", &Limits::default()), 400);
        assert_eq!(status(b"CONNECT b HTTP/1.1\r\nHost: b\r\n\r\n", &Limits::default()), 400);
    }

    #[test]
    fn upgrades_need_the_connection_option_and_1_1() {
        let text = |version, connection| {
            format!(
                "GET / HTTP/{version}\r\nHost: a\r\nConnection: {connection}\r\nUpgrade: h2c\r\nUpgrade: WebSocket, x\r\n\r\n"
            )
        };
        let input = text("1.1", "keep-alive, Upgrade");
        let head = parse(&input);
        assert!(head.upgrades_to(input.as_bytes(), b"websocket") && head.upgrades_to(input.as_bytes(), b"h2c"));
        assert!(!head.upgrades_to(input.as_bytes(), b"web"));
        for input in [text("1.1", "keep-alive"), text("1.0", "upgrade")] {
            let head = parse(&input);
            assert!(!head.upgrades && !head.upgrades_to(input.as_bytes(), b"websocket"));
        }
    }

    fn with_target(length: usize) -> Vec<u8> {
        format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(length - 1)).into_bytes()
    }

    /// U1
    #[test]
    fn targets_pass_up_to_the_limit() {
        assert_eq!(status(&with_target(10), &limits()), 200);
        assert_eq!(status(&with_target(11), &limits()), 414);
        assert_eq!(status(b"GET /?345678901", &limits()), 414);
        assert_eq!(status(b"GET /234%g78901", &limits()), 400);
    }

    #[test]
    fn methods_pass_up_to_the_limit() {
        assert_eq!(status(b"ABCDE / HTTP/1.1\r\nHost: a\r\n\r\n", &limits()), 200);
        assert_eq!(status(b"ABCDEF / HTTP/1.1\r\nHost: a\r\n\r\n", &limits()), 501);
        assert_eq!(status(b"ABCDEf", &limits()), 400);
    }

    #[test]
    fn empty_lines_pass_up_to_the_limit() {
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(status(format!("\r\n\r\n\r\n{request}").as_bytes(), &limits()), 200);
        assert_eq!(status(format!("\r\n\r\n\r\n\r\n{request}").as_bytes(), &limits()), 400);
    }

    fn with_fields(count: usize) -> Vec<u8> {
        format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(count - 1)).into_bytes()
    }

    /// D2
    #[test]
    fn fields_pass_up_to_the_limit() {
        assert_eq!(status(&with_fields(3), &limits()), 200);
        assert_eq!(status(&with_fields(4), &limits()), 431);
    }

    /// D2
    #[test]
    fn heads_pass_up_to_the_limit() {
        let with_head =
            |length: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(length - 32)).into_bytes();
        assert_eq!(with_head(100).len(), 100);
        assert_eq!(status(&with_head(100), &limits()), 200);
        assert_eq!(status(&with_head(101), &limits()), 431);
        assert_eq!(status(&with_head(200)[..101], &limits()), 431);
        assert_eq!(status(&with_head(200)[..100], &limits()), 0);
        let small = Limits { head: 8, ..Limits::default() };
        assert_eq!(status(b"GET /aaaa HTTP/1.1\r\n", &small), 414);
    }

    /// D3
    #[test]
    fn declared_bodies_pass_up_to_the_limit() {
        let with_length =
            |length| format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        assert_eq!(status(&with_length(10), &limits()), 200);
        assert_eq!(status(&with_length(11), &limits()), 413);
    }

    #[test]
    fn a_head_has_begun_with_the_first_byte_of_its_line() {
        let mut head = Head::default();
        for (input, begun) in
            [(&b""[..], false), (b"\r", false), (b"\r\n", false), (b"\r\nG", true), (b"\r\nGET /", true)]
        {
            assert_eq!(head.parse(input, &Limits::default()), Ok(Status::Partial));
            assert_eq!(head.has_begun(), begun, "{input:?}");
        }
    }
}
