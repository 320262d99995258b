//! The kind of a client's field (RFC 9113 sections 8.2 and 8.3, RFC 9114 sections 4.2 and 4.3). It depends on nothing but its bytes, so the kind of a
//! table's entry holds whenever it is referred to.

use crate::headers::{Name, is_value, token_byte};

/// Which field it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pseudo(Pseudo),
    Regular(Name),
    /// It makes the message malformed.
    Malformed,
}

/// The pseudo-fields of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    /// RFC 8441 section 4.
    Protocol,
}

impl Kind {
    pub(crate) fn of(name: &[u8], value: &[u8]) -> Self {
        // Section 8.2.1, and no other control characters either: as in HTTP/1.1.
        let is_trimmed = !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']);
        if !is_trimmed || !is_value(value) {
            return Self::Malformed;
        }
        match name {
            b":method" => Self::Pseudo(Pseudo::Method),
            b":scheme" => Self::Pseudo(Pseudo::Scheme),
            b":authority" => Self::Pseudo(Pseudo::Authority),
            b":path" => Self::Pseudo(Pseudo::Path),
            b":protocol" => Self::Pseudo(Pseudo::Protocol),
            _ if name.is_empty() || name.iter().any(|&byte| token_byte(byte) != byte || byte == 0) => Self::Malformed,
            _ => Self::regular(Name::classify(name), value),
        }
    }

    /// Section 8.2.2: fields about a connection of HTTP/1.1 are meaningless here, and could be smuggled.
    fn regular(name: Name, value: &[u8]) -> Self {
        match name {
            Name::Connection | Name::ProxyConnection | Name::KeepAlive | Name::TransferEncoding | Name::Upgrade => {
                Self::Malformed
            }
            Name::Te if !value.eq_ignore_ascii_case(b"trailers") => Self::Malformed,
            name => Self::Regular(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F20
    #[test]
    fn what_could_be_smuggled_is_malformed() {
        for (name, value) in [
            ("", "a"),
            (":", ""),
            (":status", "200"),
            (":Method", "GET"),
            (":path ", "/"),
            ("Accept", "a"),
            ("accepT", "a"),
            ("a b", "c"),
            ("a:b", "c"),
            ("a\r\nb", "c"),
            ("a\0", "c"),
            ("\u{e9}", "c"),
            ("connection", "close"),
            ("proxy-connection", "close"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("te", "trailers, gzip"),
            ("accept", "a\rb"),
            ("accept", "a\nb"),
            ("accept", "a\0b"),
            ("accept", "a\u{7f}b"),
            ("accept", " a"),
            ("accept", "a\t"),
            (":path", "/ "),
            (":path", "/\n"),
        ] {
            assert_eq!(Kind::of(name.as_bytes(), value.as_bytes()), Kind::Malformed, "{name:?}: {value:?}");
        }
    }

    #[test]
    fn others_are_what_they_are() {
        for (name, value, kind) in [
            (":method", "GET", Kind::Pseudo(Pseudo::Method)),
            (":scheme", "http", Kind::Pseudo(Pseudo::Scheme)),
            (":authority", "", Kind::Pseudo(Pseudo::Authority)),
            (":path", "/", Kind::Pseudo(Pseudo::Path)),
            (":protocol", "websocket", Kind::Pseudo(Pseudo::Protocol)),
            ("te", "Trailers", Kind::Regular(Name::Te)),
            ("cookie", "a=b c", Kind::Regular(Name::Cookie)),
            ("x-a.b", "\u{e9}\t!", Kind::Regular(Name::Other)),
            ("accept", "", Kind::Regular(Name::Accept)),
        ] {
            assert_eq!(Kind::of(name.as_bytes(), value.as_bytes()), kind, "{name}");
        }
    }
}
