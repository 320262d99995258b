//! Request targets and authorities: which of the four forms it is, and whether a host and port are valid.

use std::net::Ipv6Addr;

use crate::error::{Error, Refusal};
use crate::headers::Span;
use crate::method::Method;

/// The four forms of RFC 9112 section 3.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`
    #[default]
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, with CONNECT only.
    Authority,
    /// `*`, with OPTIONS only.
    Asterisk,
}

/// A request target, taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Which form it has.
    pub form: Form,
    /// All of it, as sent.
    pub whole: Span,
    /// Host and port of an absolute or authority form, which take the place of the Host field (RFC 9112 section 3.2.2);
    /// empty otherwise.
    pub authority: Span,
    /// The path as sent; `*` in asterisk form; empty in `http://host` and in authority form. See
    /// [`effective_path`](Target::effective_path).
    pub path: Span,
    /// The text after the first `?`; empty when there is none.
    pub query: Span,
}

impl Target {
    /// The path, before any decoding. RFC 9112 sections 3.2.1 and 3.2.4: an absolute form without a path means `/`, or
    /// for OPTIONS, if there is no query either, the server as a whole.
    pub fn effective_path<'a>(&self, buf: &'a [u8], method: Method) -> &'a [u8] {
        match self.path.of(buf) {
            // An empty query is one; where there is none, the span is nowhere.
            [] if method == Method::Options && self.query == Span::default() => b"*",
            [] => b"/",
            path => path,
        }
    }

    /// Whether an https resource is asked for explicitly: only a trusted gateway may ask for one on a connection
    /// without encryption (RFC 9110 section 7.4).
    pub fn names_https(&self, buf: &[u8]) -> bool {
        self.form == Form::Absolute
            && self.whole.of(buf).first_chunk::<5>().is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))
    }

    /// Parse the target at `whole`; `question` is the place of its first `?`. Its bytes are known to be visible ASCII
    /// without `#`: fragments are never sent (RFC 9112 section 3.2). Brackets, braces, quotes and the like, which RFC
    /// 3986 has encoded, pass since browsers send them as they are.
    #[inline]
    pub(crate) fn parse(buf: &[u8], whole: Span, question: Option<usize>, method: Method) -> Result<Self, Error> {
        let end = question.unwrap_or(whole.end as usize);
        let path = Span::new(whole.start as usize, end);
        let query = question.map_or_else(Span::default, |at| Span { start: at as u32 + 1, end: whole.end });
        let target = Self { form: Form::Origin, whole, authority: Span::default(), path, query };
        match whole.of(buf) {
            _ if method == Method::Connect => target.authority_form(buf),
            [b'/', ..] => Ok(target),
            b"*" if method == Method::Options => Ok(Self { form: Form::Asterisk, ..target }),
            _ => target.absolute_form(buf),
        }
    }

    /// RFC 9112 section 3.2.2. A server of http and https resources can only be asked for those.
    fn absolute_form(self, buf: &[u8]) -> Result<Self, Error> {
        let before_query = self.path.of(buf);
        let scheme = [&b"http://"[..], b"https://"]
            .into_iter()
            .find(|scheme| before_query.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
            .ok_or(Error::new(Refusal::Target))?;
        let rest = before_query.get(scheme.len()..).unwrap_or_default();
        let length = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let start = self.path.start as usize + scheme.len();
        let authority = Span::new(start, start + length);
        // RFC 9110 section 4.2.4: user information is an error.
        if Authority::parse(authority.of(buf)).is_none() {
            return Err(Error::new(Refusal::TargetAuthority));
        }
        let path = Span { start: authority.end, end: self.path.end };
        Ok(Self { form: Form::Absolute, authority, path, ..self })
    }

    /// RFC 9112 section 3.2.3: host and port, both required.
    fn authority_form(self, buf: &[u8]) -> Result<Self, Error> {
        match Authority::parse(self.whole.of(buf)) {
            Some(Authority { port: Some([_, ..]), .. }) => {
                let nothing = Span { start: self.whole.end, end: self.whole.end };
                Ok(Self { form: Form::Authority, authority: self.whole, path: nothing, query: nothing, ..self })
            }
            _ => Err(Error::new(Refusal::ConnectTarget)),
        }
    }
}

/// A valid `uri-host [ ":" port ]` (RFC 9110 section 7.2, RFC 3986 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// A registered name, an IPv4 address, or an IP literal in its brackets. Not empty.
    pub host: &'a [u8],
    /// The digits behind the colon, if there is one; may be none. At most 65535.
    pub port: Option<&'a [u8]>,
}

impl<'a> Authority<'a> {
    /// Take `text` apart, or `None` if it is not valid. RFC 9110 section 4.2.1: in http and https no host is empty.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let host_end = match text {
            [b'[', ..] => text.iter().position(|&byte| byte == b']')? + 1,
            _ => reg_name_end(text),
        };
        let (host, rest) = text.split_at_checked(host_end)?;
        let port = match rest {
            [] => None,
            [b':', digits @ ..] if is_port(digits) => Some(digits),
            _ => return None,
        };
        let valid = match host {
            [] => false,
            [b'[', ..] => is_ip_literal(host),
            _ => true,
        };
        valid.then_some(Self { host, port })
    }
}

fn is_port(digits: &[u8]) -> bool {
    let value = digits.iter().try_fold(0u16, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    });
    value.is_some()
}

/// Where a registered name ends (RFC 3986 section 3.2.2). Addresses in dotted form are names by this grammar too.
fn reg_name_end(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match text.get(at..).unwrap_or_default() {
            [byte, ..] if is_name_byte(*byte) => at += 1,
            [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => at += 3,
            _ => return at,
        }
    }
}

fn is_ip_literal(bracketed: &[u8]) -> bool {
    let [b'[', inner @ .., b']'] = bracketed else { return false };
    match inner {
        [b'v' | b'V', rest @ ..] => is_future_address(rest),
        _ => std::str::from_utf8(inner).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok()),
    }
}

/// `1*HEXDIG "." 1*( unreserved / sub-delims / ":" )`, behind the `v`.
fn is_future_address(rest: &[u8]) -> bool {
    let mut parts = rest.splitn(2, |&byte| byte == b'.');
    let (Some(version @ [_, ..]), Some(address @ [_, ..])) = (parts.next(), parts.next()) else { return false };
    version.iter().all(u8::is_ascii_hexdigit) && address.iter().all(|&byte| byte == b':' || is_name_byte(byte))
}

/// For each byte whether it is unreserved or a sub-delimiter (RFC 3986 sections 2.2 and 2.3).
static NAME_BYTES: [bool; 256] = name_bytes();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn name_bytes() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        let unreserved = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        let sub_delimiter = matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
        table[byte as usize] = unreserved || sub_delimiter;
        byte += 1;
    }
    table
}

#[inline]
#[expect(clippy::indexing_slicing, reason = "a u8 is always inside a table of 256")]
fn is_name_byte(byte: u8) -> bool {
    NAME_BYTES[byte as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_authorities_pass() {
        for text in [
            "a",
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:80",
            "h:65535",
            "h:0000080",
            "1.2.3.4:5",
            "999.1.1.1",
            "a_b",
            "a%2Db",
            "%41b",
            "abc%2D%2d",
            "a,b;c=d",
            "[::1]",
            "[::1]:8000",
            "[2001:db8::1.2.3.4]",
            "[v1.a:b]",
            "[vF.x]:1",
        ] {
            assert!(Authority::parse(text.as_bytes()).is_some(), "{text}");
        }
    }

    #[test]
    fn invalid_authorities_are_refused() {
        for text in [
            "",
            " ",
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "u@a",
            "u:p@a",
            "a:b",
            "a:1:2",
            "a:80:",
            "a:-1",
            "a:+1",
            "a:65536",
            "a: 80",
            ":80",
            "a%",
            "a%2",
            "a%zz",
            "a%2g",
            "a%g2",
            "a\\b",
            "a\"b",
            "[",
            "[]",
            "[::1",
            "::1]",
            "[::1]x",
            "[::1]80",
            "[1.2.3.4]",
            "[::g]",
            "[:::]",
            "[::1%25eth0]",
            "[v.a]",
            "[v1.]",
            "[v1]",
            "[vg.a]",
            "a]",
            "a[b]",
            "a\u{e9}",
            "::1",
            "http://a",
        ] {
            assert!(Authority::parse(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn host_and_port_are_told_apart() {
        let found = Authority::parse(b"[::1]:80").unwrap();
        assert_eq!((found.host, found.port), (&b"[::1]"[..], Some(&b"80"[..])));
    }

    /// Form, authority, path, query.
    type Parts<'a> = (Form, &'a [u8], &'a [u8], &'a [u8]);

    fn parse(text: &str, method: Method) -> Result<Parts<'_>, Error> {
        let buf = text.as_bytes();
        let target = Target::parse(buf, Span::new(0, buf.len()), text.find('?'), method)?;
        Ok((target.form, target.authority.of(buf), target.path.of(buf), target.query.of(buf)))
    }

    #[test]
    fn the_four_forms_are_told_apart() {
        use Form::*;
        assert_eq!(parse("/a?b?c", Method::Get).unwrap(), (Origin, &b""[..], &b"/a"[..], &b"b?c"[..]));
        assert_eq!(parse("//a//", Method::Get).unwrap(), (Origin, &b""[..], &b"//a//"[..], &b""[..]));
        assert_eq!(parse("HTTP://h:1/a?b", Method::Get).unwrap(), (Absolute, &b"h:1"[..], &b"/a"[..], &b"b"[..]));
        assert_eq!(parse("https://h?/", Method::Get).unwrap(), (Absolute, &b"h"[..], &b""[..], &b"/"[..]));
        assert_eq!(parse("*", Method::Options).unwrap(), (Asterisk, &b""[..], &b"*"[..], &b""[..]));
        assert_eq!(parse("h:443", Method::Connect).unwrap(), (Authority, &b"h:443"[..], &b""[..], &b""[..]));
    }

    #[test]
    fn an_absolute_form_without_a_path_means_the_root_or_the_server() {
        let path = |text: &str, method| {
            let buf = text.as_bytes();
            let target = Target::parse(buf, Span::new(0, buf.len()), text.find('?'), method).unwrap();
            String::from_utf8(target.effective_path(buf, method).to_vec()).unwrap()
        };
        assert_eq!(path("/a?b", Method::Get), "/a");
        assert_eq!(path("http://h", Method::Get), "/");
        assert_eq!(path("http://h?a", Method::Options), "/");
        assert_eq!(path("http://h", Method::Options), "*");
        assert_eq!(path("*", Method::Options), "*");
    }

    #[test]
    fn other_targets_are_refused() {
        for text in
            ["*", "a", "?a", "a:80", "http:/a", "http:///a", "http://u@h/", "http://h:x/", "ftp://h/", "http://"]
        {
            assert!(parse(text, Method::Get).is_err(), "{text}");
        }
        for text in ["/", "h", "h:", ":80", "h:80/", "http://h:80", "u@h:80", "h:99999"] {
            assert!(parse(text, Method::Connect).is_err(), "{text}");
        }
        assert!(parse("*?a", Method::Options).is_err());
    }
}
