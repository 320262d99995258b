//! A request's field section, put together (RFC 9113 section 8.3.1, RFC 9114 section 4.3.1): the request line, and the
//! fields as an application sees them. Section numbers without an RFC are those of RFC 9113; RFC 9114 has the same rules.

use crate::error::{Error, Refusal};
use crate::fields::kind::{Kind, Pseudo};
use crate::fields::table::Key;
use crate::h1::framing::parse_length;
use crate::h1::target::Authority;
use crate::headers::{Name, Span, members};
use crate::limits::Limits;
use crate::limits::table::MAX_LENGTH;
use crate::method::{Method, is_method_byte};
use crate::priority::Priority;
use crate::scan;
use crate::scratch::Reused;

/// The slot of an entry of the client's table: the kind of its field, and the caller's value.
#[derive(Debug)]
pub(crate) struct Slot<K> {
    pub(crate) kind: Option<Kind>,
    pub(crate) kept: Option<K>,
}

impl<K> Default for Slot<K> {
    fn default() -> Self {
        Self { kind: None, kept: None }
    }
}

/// A field of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Which well-known name it has.
    pub known: Name,
    name: Span,
    value: Span,
    /// The entry of the client's table that it is: the connection can keep something there. That of `host`
    /// is the entry of `:authority`.
    pub entry: Option<Key>,
}

/// One request. Use it again: its storage stays. Connections share one through a [`Scratch`](crate::fields::Scratch).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The bytes of all spans.
    bytes: Vec<u8>,
    fields: Vec<Item>,
    /// The method, classified.
    pub verb: Method,
    method: Span,
    scheme: Span,
    target: Span,
    /// The place of the first `?` of the target.
    question: Option<u32>,
    protocol: Option<Span>,
    /// The value of `content-length`.
    pub length: Option<u64>,
    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1).
    pub expects_continue: bool,
    /// The client's wishes for the response.
    pub priority: Priority,
}

impl Reused for Head {
    fn reset(&mut self) {
        let (mut bytes, mut fields) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.fields));
        bytes.clear();
        fields.clear();
        *self = Self { bytes, fields, ..Self::default() };
    }
}

impl Head {
    /// The method as sent.
    pub fn method(&self) -> &[u8] {
        self.method.of(&self.bytes)
    }

    /// The scheme as sent: `http` or `https`, in any letter case.
    pub fn scheme(&self) -> &[u8] {
        self.scheme.of(&self.bytes)
    }

    /// The path as sent; `*` of an OPTIONS request may be.
    pub fn path(&self) -> &[u8] {
        let end = self.question.unwrap_or(self.target.end);
        Span { end, ..self.target }.of(&self.bytes)
    }

    /// The text after the first `?`; empty when there is none.
    pub fn query(&self) -> &[u8] {
        self.question.map_or(&[], |at| Span { start: at + 1, ..self.target }.of(&self.bytes))
    }

    /// The protocol that the stream is to become (RFC 8441).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.protocol.map(|protocol| protocol.of(&self.bytes))
    }

    /// The fields in the order sent, `host` for what `:authority` says, and one `cookie` for several (section 8.2.3).
    pub fn fields(&self) -> &[Item] {
        &self.fields
    }

    /// The name of one of them, in lower case.
    pub fn name(&self, item: &Item) -> &[u8] {
        if item.known == Name::Other { item.name.of(&self.bytes) } else { item.known.as_str().as_bytes() }
    }

    /// The value of one of them.
    pub fn value(&self, item: &Item) -> &[u8] {
        item.value.of(&self.bytes)
    }

    /// The value of the first field with this name.
    pub fn get(&self, name: Name) -> Option<&[u8]> {
        self.fields.iter().find(|item| item.known == name).map(|item| self.value(item))
    }

    fn keep(&mut self, bytes: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        Span::new(start, self.bytes.len())
    }

    /// Section 8.2.3: several cookies are one.
    #[cold]
    fn join_cookies(&mut self) {
        let start = self.bytes.len();
        for item in &self.fields {
            if item.known == Name::Cookie {
                if self.bytes.len() > start {
                    self.bytes.extend_from_slice(b"; ");
                }
                self.bytes.extend_from_within(item.value.start as usize..item.value.end as usize);
            }
        }
        let mut joined = Some(Span::new(start, self.bytes.len()));
        self.fields.retain_mut(|item| {
            if item.known != Name::Cookie {
                return true;
            }
            let first = joined.take();
            (item.value, item.entry) = (first.unwrap_or_default(), None);
            first.is_some()
        });
    }
}

/// Why a section does not become a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It breaks the rules of both versions: the stream is over (RFC 9113 section 8.1.1, RFC 9114 section 4.1.2).
    Malformed,
    /// It is to be answered with this.
    Refused(Error),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Error::new(refusal))
    }
}

/// The rules and the state of a section being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    pub(crate) limits: &'a Limits,
    /// Bytes of all fields together.
    pub(crate) size: usize,
    /// Whether there is extended CONNECT.
    pub(crate) connect_protocol: bool,
    /// Whether the message ends with it.
    pub(crate) end_stream: bool,
}

/// Puts a request together, field by field.
pub(crate) struct Reader<'a> {
    head: &'a mut Head,
    limits: &'a Limits,
    fault: Option<Fault>,
    /// A regular field has come.
    behind: bool,
    cookies: usize,
    /// Of `:authority`.
    authority: Option<Span>,
    /// Of the first `priority`: others may belong to a cached response.
    priority: Option<Span>,
}

impl<'a> Reader<'a> {
    /// Read into `head`, which is empty.
    #[inline]
    pub(crate) fn new(head: &'a mut Head, limits: &'a Limits) -> Self {
        Self { head, limits, fault: None, behind: false, cookies: 0, authority: None, priority: None }
    }

    /// The next field.
    #[inline]
    pub(crate) fn field(&mut self, kind: Kind, name: &[u8], value: &[u8], entry: Option<Key>) {
        let result = match kind {
            Kind::Pseudo(pseudo) => self.pseudo(pseudo, value, entry),
            Kind::Regular(known) => self.regular(known, name, value, entry),
            Kind::Malformed => Err(Fault::Malformed),
        };
        // Malformed wins over any other fault; otherwise the first fault counts.
        if let Err(fault) = result
            && (fault == Fault::Malformed || self.fault.is_none())
        {
            self.fault = Some(fault);
        }
    }

    /// Each once, in front of all other fields.
    fn pseudo(&mut self, pseudo: Pseudo, value: &[u8], entry: Option<Key>) -> Result<(), Fault> {
        if self.behind {
            return Err(Fault::Malformed);
        }
        let span = self.head.keep(value);
        let head = &mut *self.head;
        let earlier = match pseudo {
            Pseudo::Method => {
                head.verb = Method::classify(value);
                std::mem::replace(&mut head.method, span)
            }
            Pseudo::Scheme => std::mem::replace(&mut head.scheme, span),
            Pseudo::Path => std::mem::replace(&mut head.target, span),
            Pseudo::Protocol => head.protocol.replace(span).unwrap_or_default(),
            Pseudo::Authority => {
                head.fields.push(Item { known: Name::Host, name: Span::default(), value: span, entry });
                self.authority.replace(span).unwrap_or_default()
            }
        };
        // An empty one is malformed as well; of all these only an authority may be left out instead.
        if earlier != Span::default() || value.is_empty() { Err(Fault::Malformed) } else { Ok(()) }
    }

    fn regular(&mut self, known: Name, name: &[u8], value: &[u8], entry: Option<Key>) -> Result<(), Fault> {
        self.behind = true;
        if self.head.fields.len() >= self.limits.fields {
            return Err(Fault::Refused(Error::over(Refusal::TooManyFields, self.limits.fields)));
        }
        match known {
            Name::Host if !self.is_new_host(value)? => return Ok(()),
            Name::Cookie => self.cookies += 1,
            Name::ContentLength => {
                let length = parse_length(value).filter(|&length| length <= MAX_LENGTH).ok_or(Fault::Malformed)?;
                if self.head.length.replace(length).is_some() {
                    return Err(Fault::Malformed);
                }
            }
            Name::Expect => {
                self.head.expects_continue = true;
                if !members(value).all(|expectation| expectation.eq_ignore_ascii_case(b"100-continue")) {
                    return Err(Refusal::Expectation.into());
                }
            }
            _ => {}
        }
        let name = if known == Name::Other { self.head.keep(name) } else { Span::default() };
        let value = self.head.keep(value);
        if known == Name::Priority {
            self.priority = self.priority.or(Some(value));
        }
        self.head.fields.push(Item { known, name, value, entry });
        Ok(())
    }

    /// F21: one host, and a second one only if it is the same as `:authority` (section 8.3.1), in which case means nothing
    /// (RFC 3986 section 3.2.2).
    fn is_new_host(&self, value: &[u8]) -> Result<bool, Fault> {
        match self.head.get(Name::Host) {
            None => Ok(true),
            Some(authority) if self.authority.is_some() && authority.eq_ignore_ascii_case(value) => Ok(false),
            Some(_) => Err(Fault::Malformed),
        }
    }

    /// Checks that need all fields; `over`: there were more bytes of them than the rules allow, and some are missing.
    #[inline]
    pub(crate) fn end(self, over: bool, rules: Rules<'_>) -> Result<(), Fault> {
        let Self { head, fault, cookies, priority, .. } = self;
        if fault == Some(Fault::Malformed) {
            return Err(Fault::Malformed);
        }
        if over {
            return Err(Fault::Refused(Error::over(Refusal::HeadTooLarge, rules.size)));
        }
        check_pseudo(head, rules)?;
        // F22
        if rules.end_stream && head.length.is_some_and(|length| length > 0) {
            return Err(Fault::Malformed);
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        head.expects_continue &= !rules.end_stream;
        if cookies > 1 {
            head.join_cookies();
        }
        if let Some(priority) = priority {
            head.priority = Priority::parse(priority.of(&head.bytes));
        }
        check(head, rules.limits)
    }
}

/// Section 8.3.1, and 8.5 for CONNECT; RFC 8441 section 4.
fn check_pseudo(head: &Head, rules: Rules<'_>) -> Result<(), Fault> {
    let (scheme, target) = (!head.scheme.is_empty(), !head.target.is_empty());
    let complete = match head.verb {
        Method::Connect if head.protocol.is_none() => head.get(Name::Host).is_some() && !scheme && !target,
        Method::Connect => rules.connect_protocol && head.get(Name::Host).is_some() && scheme && target,
        _ => !head.method.is_empty() && head.protocol.is_none() && scheme && target,
    };
    if !complete {
        return Err(Fault::Malformed);
    }
    match head.target.of(&head.bytes) {
        [b'/', ..] | [] => Ok(()),
        b"*" if head.verb == Method::Options => Ok(()),
        _ => Err(Fault::Malformed),
    }
}

/// Check for requests that are malformed, or that no server of any version can serve.
fn check(head: &mut Head, limits: &Limits) -> Result<(), Fault> {
    let (method, bytes) = (head.method(), &head.bytes);
    if method.len() > limits.method {
        return Err(Fault::Refused(Error::over(Refusal::MethodTooLong, limits.method)));
    }
    if !method.iter().copied().all(is_method_byte) {
        return Err(Refusal::Method.into());
    }
    let host = head.get(Name::Host).ok_or(Refusal::HostMissing)?;
    if Authority::parse(host).is_none() {
        return Err(Refusal::Host.into());
    }
    if head.verb == Method::Connect && head.protocol.is_none() {
        return Err(Refusal::Connect.into());
    }
    let is_known = |scheme: &&[u8]| head.scheme().eq_ignore_ascii_case(scheme);
    if ![&b"http"[..], b"https"].iter().any(is_known) {
        return Err(Refusal::Target.into());
    }
    if head.target.len() > limits.target {
        return Err(Fault::Refused(Error::over(Refusal::TargetTooLong, limits.target)));
    }
    if let (Some(limit), Some(length)) = (limits.body, head.length)
        && length > limit
    {
        return Err(Fault::Refused(Error::over(Refusal::BodyTooLarge, limit)));
    }
    head.question = question(bytes, head.target)?;
    Ok(())
}

/// The place of the first `?` of a target that is visible ASCII without `#`, and in front of it without a `%` that
/// cannot be decoded: the same as in HTTP/1.1.
fn question(bytes: &[u8], target: Span) -> Result<Option<u32>, Fault> {
    let (text, mut at) = (bytes.get(..target.end as usize).unwrap_or_default(), target.start as usize);
    let question = loop {
        at = scan::path_end(text, at);
        match text.get(at..).unwrap_or_default() {
            [] => break None,
            [b'?', ..] => break Some(at as u32),
            [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => at += 3,
            [b'%', ..] => return Err(Refusal::TargetPercent.into()),
            [b'#', ..] => return Err(Refusal::TargetFragment.into()),
            _ => return Err(Refusal::Target.into()),
        }
    };
    match text.get(scan::target_end(text, at)..).unwrap_or_default() {
        [] => Ok(question),
        [b'#', ..] => Err(Refusal::TargetFragment.into()),
        _ => Err(Refusal::Target.into()),
    }
}

/// Reads a trailer section, which is checked and dropped: it must have no pseudo-fields (RFC 9113 section 8.1, RFC 9114
/// section 4.3).
#[derive(Debug, Default)]
pub(crate) struct TrailerReader {
    count: usize,
    malformed: bool,
}

impl TrailerReader {
    /// The next field.
    pub(crate) fn field(&mut self, kind: Kind) {
        self.count += 1;
        self.malformed |= !matches!(kind, Kind::Regular(_));
    }

    /// `over`: there were more bytes of them than the limits allow.
    pub(crate) fn end(self, over: bool, limits: &Limits) -> Result<(), Fault> {
        if self.malformed {
            Err(Fault::Malformed)
        } else if over {
            Err(Fault::Refused(Error::over(Refusal::TrailersTooLarge, limits.trailers)))
        } else if self.count > limits.fields {
            Err(Fault::Refused(Error::over(Refusal::TooManyTrailers, limits.fields)))
        } else {
            Ok(())
        }
    }
}
