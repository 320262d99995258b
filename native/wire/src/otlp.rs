//! Spans as OTLP has them in protobuf (opentelemetry-proto, trace.proto): the twin of `uvicorn/tracing/otlp.py`.
//!
//! Fields are in the order of both, which tests compare byte for byte. Texts are UTF-8 of at most [`MAX_TEXT`] bytes: a
//! collector rejects a whole batch because of one byte that is not.

use std::borrow::Cow;

use crate::method::Method;

/// Bytes of a text; the rest is cut off.
pub const MAX_TEXT: usize = 1024;

/// What the semantic conventions write for a method that they do not know, and an error without a name.
pub const OTHER: &str = "_OTHER";

/// The events of a span.
const CALLED: &str = "uvicorn.application.start";
const FIRST_BYTE: &str = "uvicorn.response.start";

/// Flags of a span, above those of its trace: the parent is in another process.
const REMOTE_IS_KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;

/// Bytes for the tag and the length of a span, which are known last.
const ROOM: usize = 8;

/// One request, as its span shows it. Texts are empty if there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerSpan<'a> {
    /// The id of its trace.
    pub trace: [u8; 16],
    /// The id of the span.
    pub span: [u8; 8],
    /// The id of the span that has caused it.
    pub parent: Option<[u8; 8]>,
    /// The `tracestate`.
    pub state: &'a [u8],
    /// Flags of the trace.
    pub flags: u8,
    /// When it began, in nanoseconds since the epoch, as all times.
    pub begin: u64,
    /// When the application was called; 0: it was not.
    pub called: u64,
    /// When the first bytes of the response left; 0: none did.
    pub first_byte: u64,
    /// When it ended.
    pub end: u64,
    /// The method, and its text, which is used of one without a name.
    pub method: Method,
    /// See above.
    pub method_text: &'a [u8],
    /// `http`, `https`, `ws` or `wss`.
    pub scheme: &'a [u8],
    /// The template that the application has matched.
    pub route: &'a [u8],
    /// 0: there was no response.
    pub status: u16,
    /// `1.1` and the like.
    pub version: &'a [u8],
    /// The name or address under which the client has reached the server, and the port.
    pub host: (&'a [u8], Option<u16>),
    /// As it was sent.
    pub path: &'a [u8],
    /// As it was sent.
    pub query: &'a [u8],
    /// Address and port; the port is 0 if it is unknown.
    pub client: (&'a [u8], u16),
    /// As it was sent.
    pub user_agent: &'a [u8],
    /// Why the request failed.
    pub error: &'a [u8],
}

impl ServerSpan<'_> {
    /// Encode it as an element of `ScopeSpans`, in memory that is used again.
    pub fn encode<'b>(&self, scratch: &'b mut Vec<u8>) -> &'b [u8] {
        scratch.clear();
        scratch.extend_from_slice(&[0; ROOM]);
        self.put(scratch);
        let mut length = scratch.len() - ROOM;
        let begin = (ROOM - 1).saturating_sub(varint_length(length));
        let (head, _) = scratch.split_at_mut(ROOM);
        if let Some([tag, digits @ ..]) = head.get_mut(begin..) {
            *tag = 0x12;
            for digit in digits {
                *digit = (length & 0x7f) as u8 | if length < 0x80 { 0 } else { 0x80 };
                length >>= 7;
            }
        }
        scratch.get(begin..).unwrap_or_default()
    }

    fn put(&self, out: &mut Vec<u8>) {
        bytes(out, 0x0a, &self.trace);
        bytes(out, 0x12, &self.span);
        if !self.state.is_empty() {
            bytes(out, 0x1a, self.state);
        }
        if let Some(parent) = &self.parent {
            bytes(out, 0x22, parent);
        }
        fixed64(out, 0x39, self.begin);
        fixed64(out, 0x41, self.end);
        let is_other = self.method == Method::Other;
        let method = if is_other { OTHER } else { self.method.as_str() };
        self.name(out, if is_other { "HTTP" } else { method });
        out.extend_from_slice(b"\x30\x02"); // kind: a server's
        attribute(out, "http.request.method", method.as_bytes());
        if is_other {
            attribute(out, "http.request.method_original", self.method_text);
        }
        attribute(out, "url.scheme", self.scheme);
        if !self.route.is_empty() {
            attribute(out, "http.route", self.route);
        }
        if self.status != 0 {
            number(out, "http.response.status_code", self.status);
        }
        attribute(out, "network.protocol.version", self.version);
        if let (host @ [_, ..], port) = self.host {
            attribute(out, "server.address", host);
            if let Some(port) = port {
                number(out, "server.port", port);
            }
        }
        attribute(out, "url.path", self.path);
        if !self.query.is_empty() {
            attribute(out, "url.query", self.query);
        }
        if let (client @ [_, ..], port) = self.client {
            attribute(out, "client.address", client);
            if port != 0 {
                number(out, "client.port", port);
            }
        }
        if !self.user_agent.is_empty() {
            attribute(out, "user_agent.original", self.user_agent);
        }
        if !self.error.is_empty() {
            attribute(out, "error.type", self.error);
        }
        for (time, event) in [(self.called, CALLED), (self.first_byte, FIRST_BYTE)] {
            if time != 0 {
                tag(out, 0x5a, 9 + 2 + event.len());
                fixed64(out, 0x09, time);
                bytes(out, 0x12, event.as_bytes());
            }
        }
        if !self.error.is_empty() {
            out.extend_from_slice(b"\x7a\x02\x18\x02"); // status: an error
        }
        let remote = if self.parent.is_some() { REMOTE } else { 0 };
        out.extend_from_slice(b"\x85\x01");
        out.extend_from_slice(&(u32::from(self.flags) | REMOTE_IS_KNOWN | remote).to_le_bytes());
    }

    fn name(&self, out: &mut Vec<u8>, method: &str) {
        if self.route.is_empty() {
            return bytes(out, 0x2a, method.as_bytes());
        }
        let name = [method.as_bytes(), b" ", self.route].concat();
        bytes(out, 0x2a, &text(&name));
    }
}

/// The name or address in the value of `Host`, and the port if there is one.
pub fn authority(host: &[u8]) -> (&[u8], Option<u16>) {
    let (name, rest) = match host {
        [b'[', inner @ ..] => {
            let end = inner.iter().position(|&byte| byte == b']').unwrap_or(inner.len());
            (inner.get(..end).unwrap_or_default(), inner.get(end + 1..).unwrap_or_default())
        }
        _ => host.split_at(host.iter().position(|&byte| byte == b':').unwrap_or(host.len())),
    };
    let port = match rest {
        [b':', digits @ ..] if (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok())
        }
        _ => None,
    };
    (name, port)
}

/// A text of bytes that a client has chosen.
fn text(value: &[u8]) -> Cow<'_, [u8]> {
    let value = value.get(..MAX_TEXT).unwrap_or(value);
    if value.is_ascii() {
        return Cow::Borrowed(value);
    }
    match String::from_utf8_lossy(value) {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Append an attribute that is a text.
fn attribute(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let value = text(value);
    let inner = 1 + varint_length(value.len()) + value.len();
    tag(out, 0x4a, 2 + key.len() + 1 + varint_length(inner) + inner);
    bytes(out, 0x0a, key.as_bytes());
    tag(out, 0x12, inner);
    bytes(out, 0x0a, &value);
}

/// Append an attribute that is a number.
fn number(out: &mut Vec<u8>, key: &str, value: u16) {
    let inner = 1 + varint_length(value.into());
    tag(out, 0x4a, 2 + key.len() + 2 + inner);
    bytes(out, 0x0a, key.as_bytes());
    tag(out, 0x12, inner);
    tag(out, 0x18, value.into());
}

fn bytes(out: &mut Vec<u8>, number: u8, value: &[u8]) {
    tag(out, number, value.len());
    out.extend_from_slice(value);
}

fn fixed64(out: &mut Vec<u8>, number: u8, value: u64) {
    out.push(number);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Append the tag of a field and its length, or its value if it is a number.
fn tag(out: &mut Vec<u8>, number: u8, mut value: usize) {
    out.push(number);
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_length(value: usize) -> usize {
    let bits = usize::BITS - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use super::{MAX_TEXT, ServerSpan, authority, text};
    use crate::method::Method;

    /// `tests/tracing/test_otlp.py` compares many spans with the official package and with the twin; here is one.
    #[test]
    fn a_span_is_an_element_of_a_list() {
        let span = ServerSpan {
            trace: [1; 16],
            span: [2; 8],
            begin: 3,
            end: 4,
            scheme: b"http",
            version: b"1.1",
            path: b"/a",
            status: 200,
            ..ServerSpan::default()
        };
        let mut scratch = vec![9; 3];
        let bytes = ServerSpan { method: Method::Get, ..span }.encode(&mut scratch).to_vec();
        let (head, body) = bytes.split_at(3);
        assert_eq!(head, [0x12, (body.len() & 0x7f) as u8 | 0x80, (body.len() >> 7) as u8]);
        assert_eq!(body.get(..2), Some(&[0x0a, 16][..]));
        assert!(body.windows(5).any(|window| window == b"\x2a\x03GET"));
        assert!(body.windows(3).any(|window| window == [0x18, 0xc8, 0x01]));
        assert!(body.ends_with(&[0x85, 0x01, 0, 1, 0, 0]));
        let huge = vec![0xff; 5000];
        let bytes = ServerSpan { path: &huge, ..span }.encode(&mut scratch).to_vec();
        let text = "\u{fffd}".repeat(MAX_TEXT);
        assert!(bytes.windows(text.len()).any(|window| window == text.as_bytes()));
    }

    #[test]
    fn texts_are_utf_8_and_bounded() {
        assert_eq!(&*text("gr\u{fc}n".as_bytes()), "gr\u{fc}n".as_bytes());
        assert_eq!(&*text(b"gr\xfcn"), "gr\u{fffd}n".as_bytes());
        assert_eq!(text(&[b'a'; MAX_TEXT + 1]).len(), MAX_TEXT);
    }

    #[test]
    fn a_host_has_a_name_and_maybe_a_port() {
        let cases: [(&[u8], &[u8], Option<u16>); 8] = [
            (b"example.org", b"example.org", None),
            (b"example.org:8000", b"example.org", Some(8000)),
            (b"[::1]:443", b"::1", Some(443)),
            (b"[::1]", b"::1", None),
            (b"[::1", b"::1", None),
            (b"a:", b"a", None),
            (b"a:65536", b"a", None),
            (b"", b"", None),
        ];
        for (host, name, port) in cases {
            assert_eq!(authority(host), (name, port));
        }
    }
}
