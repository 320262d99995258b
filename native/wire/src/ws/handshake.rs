//! The opening handshake (RFC 6455 section 4.2): the checks of a client's request, and its answer.

use base64ct::{Base64, Encoding};
use sha1_smol::Sha1;

use crate::error::{AppError, Error, Refusal};
use crate::h1::response::put_field;
use crate::h1::{BodyLength, Head, Version};
use crate::h2;
use crate::headers::{Name, is_token, members, trim};
use crate::method::Method;
use crate::ws::deflate::Agreement;
use crate::ws::offer;

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a key: 16 in base64.
const KEY: usize = 24;
/// The version that there is (RFC 6455 section 4.1).
const VERSION: &[u8] = b"13";

/// A valid request to open a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake<'a> {
    /// Those the client offers, in its order (RFC 6455 section 11.3.4).
    pub subprotocols: Vec<&'a str>,
    /// The data of the request that its answer needs, once the application has decided.
    pub answer: Answer,
}

impl<'a> Handshake<'a> {
    /// The handshake that a request asks for. `input` is what the head was read from; `deflate` says whether to compress
    /// if the client likes to.
    ///
    /// The error's status tells what else to say with it: [`hints`].
    pub fn read(head: &Head, input: &'a [u8], deflate: bool) -> Result<Self, Error> {
        if head.version == Version::Http10 {
            return Err(Error::new(Refusal::WebsocketVersion));
        }
        if head.verb != Method::Get {
            return Err(Error::new(Refusal::WebsocketMethod));
        }
        if !head.upgrades_to(input, b"websocket") {
            return Err(Error::new(Refusal::WebsocketUpgrade));
        }
        if head.body != BodyLength::None {
            // Its bytes would be taken for frames.
            return Err(Error::new(Refusal::WebsocketBody));
        }
        let values = |name: Name| {
            head.fields.iter().filter(move |field| field.known == name).map(|field| trim(field.value.of(input)))
        };
        check_version(values(Name::SecWebsocketVersion))?;
        let key = find_key(values(Name::SecWebsocketKey))?;
        let subprotocols = subprotocols(values(Name::SecWebsocketProtocol))?;
        let deflate = if deflate { offer::choose(values(Name::SecWebsocketExtensions))? } else { None };
        Ok(Self { subprotocols, answer: Answer { key: Some(key), deflate } })
    }

    /// The handshake of a request that is to make a stream of HTTP/2 a WebSocket (RFC 8441 section 5): fields about a
    /// connection of HTTP/1.1, the key included, are not part of it.
    pub fn of_stream(head: &'a h2::Head, deflate: bool) -> Result<Self, Error> {
        let values =
            |name: Name| head.fields().iter().filter(move |item| item.known == name).map(|item| trim(head.value(item)));
        check_version(values(Name::SecWebsocketVersion))?;
        let subprotocols = subprotocols(values(Name::SecWebsocketProtocol))?;
        let deflate = if deflate { offer::choose(values(Name::SecWebsocketExtensions))? } else { None };
        Ok(Self { subprotocols, answer: Answer { key: None, deflate } })
    }
}

/// The data for accepting a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// None of a stream of HTTP/2.
    key: Option<[u8; KEY]>,
    /// The compression that is agreed on; none if the client offers nothing suitable.
    pub deflate: Option<Agreement>,
}

impl Answer {
    /// The status that accepts it.
    pub const fn status(&self) -> u16 {
        if self.key.is_some() { 101 } else { 200 }
    }

    /// The proof that the key was read (RFC 6455 section 4.2.2).
    pub fn accept_value(&self) -> String {
        let mut digest = Sha1::new();
        digest.update(self.key.as_ref().map_or(&[][..], |key| key));
        digest.update(GUID);
        Base64::encode_string(&digest.digest().bytes())
    }

    /// Append the 101 response, or the head of one with 200, as HTTP/1.1 would have it: `defaults` (ready-made field lines) and then the fields of the application. What of those
    /// the answer itself has to say is left out, so that no field comes twice. After an error nothing is appended.
    pub fn accept<'f>(
        &self,
        out: &mut Vec<u8>,
        subprotocol: Option<&str>,
        defaults: &[u8],
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Result<(), AppError> {
        let start = out.len();
        let subprotocol = subprotocol.filter(|name| !name.is_empty());
        if self.key.is_some() {
            out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
            put_line(out, b"Sec-WebSocket-Accept", self.accept_value().as_bytes());
        } else {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        }
        if let Some(agreement) = self.deflate {
            put_line(out, b"Sec-WebSocket-Extensions", agreement.to_string().as_bytes());
        }
        out.extend_from_slice(defaults);
        let rest = || {
            for (name, value) in fields {
                put_application_field(out, name, value, subprotocol.is_some())?;
            }
            match subprotocol {
                Some(name) if !is_token(name.as_bytes()) => return Err(AppError::Subprotocol),
                Some(name) => put_line(out, b"Sec-WebSocket-Protocol", name.as_bytes()),
                None => {}
            }
            out.extend_from_slice(b"\r\n");
            Ok(())
        };
        rest().inspect_err(|_| out.truncate(start))
    }
}

/// Field lines to send with a refusal of this status (RFC 9110 sections 15.5.6 and 15.5.22, RFC 6455 section 4.4).
pub const fn hints(status: u16) -> &'static [(&'static str, &'static str)] {
    match status {
        405 => &[("allow", "GET")],
        426 => &[("upgrade", "websocket"), ("connection", "upgrade, close"), ("sec-websocket-version", "13")],
        _ => &[],
    }
}

fn put_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Append a field, unless the answer has it already, or a response without body must not have it (RFC 9112 section
/// 6.1).
fn put_application_field(out: &mut Vec<u8>, name: &[u8], value: &[u8], has_subprotocol: bool) -> Result<(), AppError> {
    const ACCEPT: &[u8] = b"sec-websocket-accept";
    let (start, value) = (out.len(), trim(value));
    let known = put_field(out, name, value)?;
    if known == Name::ContentLength && (value.is_empty() || !value.iter().all(u8::is_ascii_digit)) {
        return Err(AppError::ContentLength);
    }
    let reserved = match known {
        Name::Upgrade
        | Name::Connection
        | Name::SecWebsocketExtensions
        | Name::ContentLength
        | Name::TransferEncoding => true,
        Name::SecWebsocketProtocol => has_subprotocol,
        _ => name.eq_ignore_ascii_case(ACCEPT),
    };
    if reserved {
        out.truncate(start);
    }
    Ok(())
}

/// The version comes once, and defines the meaning of the key.
fn check_version<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<(), Error> {
    let Some(version) = values.next() else { return Err(Error::new(Refusal::WebsocketNoProtocolVersion)) };
    if version != VERSION || values.next().is_some() {
        return Err(Error::new(Refusal::WebsocketProtocolVersion));
    }
    Ok(())
}

/// The key: one, of 16 bytes in base64.
fn find_key<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<[u8; KEY], Error> {
    let Some(value) = values.next() else { return Err(Error::new(Refusal::WebsocketNoKey)) };
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let valid = value.strip_suffix(b"==").is_some_and(|digits| digits.iter().all(is_digit)) && values.next().is_none();
    let key = value.try_into().ok().filter(|_| valid);
    key.ok_or(Error::new(Refusal::WebsocketKey))
}

/// The members of all fields.
fn subprotocols<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<Vec<&'a str>, Error> {
    let token = |name: &'a [u8]| std::str::from_utf8(name).ok().filter(|_| is_token(name));
    let names: Option<Vec<_>> = values.flat_map(members).map(token).collect();
    names.ok_or(Error::new(Refusal::WebsocketSubprotocols))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::h1::Status;

    const REQUEST: &str = "GET /chat HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\n\
        Connection: keep-alive, Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Version: 13\r\n";

    fn read(request: &str, check: impl FnOnce(Result<Handshake<'_>, Error>)) {
        let mut head = Head::default();
        let request = format!("{request}\r\n");
        assert!(matches!(head.parse(request.as_bytes(), &Limits::default()), Ok(Status::Complete(_))), "{request}");
        check(Handshake::read(&head, request.as_bytes(), true));
    }

    #[track_caller]
    fn refused(request: &str, refusal: Refusal) {
        read(request, |result| assert_eq!(result, Err(Error::new(refusal))));
    }

    fn answer(request: &str, subprotocol: Option<&str>, fields: &[(&[u8], &[u8])]) -> Result<String, AppError> {
        let mut out = b"before".to_vec();
        let mut result = Ok(());
        read(request, |handshake| {
            result = handshake.unwrap().answer.accept(&mut out, subprotocol, b"server: x\r\n", fields.iter().copied());
        });
        if result.is_err() {
            assert_eq!(out, b"before");
        }
        result.map(|()| String::from_utf8(out).unwrap().split_off("before".len()))
    }

    /// RFC 6455 section 1.3
    #[test]
    fn the_example_is_answered() {
        assert_eq!(
            answer(REQUEST, None, &[]).unwrap(),
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nserver: x\r\n\r\n"
        );
    }

    /// W2
    #[test]
    fn subprotocols_of_all_fields_are_offered_in_order() {
        let lines = "Sec-WebSocket-Protocol: a, b ,,\tc\r\nSec-WebSocket-Protocol: d\r\n";
        read(&format!("{REQUEST}{lines}"), |handshake| {
            assert_eq!(handshake.unwrap().subprotocols, ["a", "b", "c", "d"]);
        });
    }

    /// W1, W13
    #[test]
    fn what_is_not_a_handshake_is_refused_with_the_first_reason() {
        let without = |text: &str| REQUEST.replace(text, "");
        refused(&REQUEST.replace("HTTP/1.1", "HTTP/1.0").replace("GET", "POST"), Refusal::WebsocketVersion);
        refused(&REQUEST.replace("GET", "POST"), Refusal::WebsocketMethod);
        refused(&REQUEST.replace("websocket\r", "h2c\r"), Refusal::WebsocketUpgrade);
        refused(&REQUEST.replace(", Upgrade", ""), Refusal::WebsocketUpgrade);
        refused(&format!("{REQUEST}Content-Length: 1\r\n"), Refusal::WebsocketBody);
        refused(&without("Sec-WebSocket-Version: 13\r\n"), Refusal::WebsocketNoProtocolVersion);
        refused(&REQUEST.replace(" 13", " 8"), Refusal::WebsocketProtocolVersion);
        refused(&format!("{REQUEST}Sec-WebSocket-Version: 13\r\n"), Refusal::WebsocketProtocolVersion);
        refused(&without("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), Refusal::WebsocketNoKey);
        refused(&format!("{REQUEST}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), Refusal::WebsocketKey);
        for key in [
            "",
            "==",
            "dGhlIHNhbXBsZSBub25j",
            "dGhlIHNhbXBsZSBub25jZQ",
            "dGhlIHNhbXBsZSBub25jZWU=",
            "dGhlIHNhbXBsZSBub25j-Q==",
        ] {
            refused(&REQUEST.replace("dGhlIHNhbXBsZSBub25jZQ==", key), Refusal::WebsocketKey);
        }
        for list in ["\u{e9}", "a b", "a;b", "\"a\""] {
            refused(&format!("{REQUEST}Sec-WebSocket-Protocol: {list}\r\n"), Refusal::WebsocketSubprotocols);
        }
        assert_eq!(Error::new(Refusal::WebsocketProtocolVersion).status(), 426);
        assert!(hints(426).contains(&("sec-websocket-version", "13")) && hints(405) == [("allow", "GET")]);
        assert!(hints(400).is_empty());
    }

    #[test]
    fn what_the_answer_says_itself_is_not_said_twice() {
        let fields: [(&[u8], &[u8]); 8] = [
            (b"X-A", b" 1 "),
            (b"Upgrade", b"h2c"),
            (b"Connection", b"close"),
            (b"Sec-WebSocket-Accept", b"x"),
            (b"Sec-WebSocket-Extensions", b"x"),
            (b"Content-Length", b"5"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Sec-WebSocket-Protocol", b"theirs"),
        ];
        let common = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nserver: x\r\nx-a: 1\r\n";
        let (plain, chosen) = (answer(REQUEST, None, &fields).unwrap(), answer(REQUEST, Some("b"), &fields).unwrap());
        assert!(plain.ends_with(&format!("{common}sec-websocket-protocol: theirs\r\n\r\n")), "{plain}");
        assert!(chosen.ends_with(&format!("{common}Sec-WebSocket-Protocol: b\r\n\r\n")), "{chosen}");
        assert_eq!(answer(REQUEST, Some(""), &fields), answer(REQUEST, None, &fields));
    }

    #[test]
    fn what_may_not_be_sent_is_not() {
        assert_eq!(answer(REQUEST, Some("a b"), &[]), Err(AppError::Subprotocol));
        assert_eq!(answer(REQUEST, None, &[(b"a b", b"")]), Err(AppError::FieldName));
        assert_eq!(answer(REQUEST, None, &[(b"a", b"\n")]), Err(AppError::FieldValue));
        assert_eq!(answer(REQUEST, None, &[(b"content-length", b"x")]), Err(AppError::ContentLength));
    }

    #[test]
    fn compression_is_agreed_on_if_both_sides_like_it() {
        let request = format!("{REQUEST}Sec-WebSocket-Extensions: permessage-deflate\r\n");
        let answer = answer(&request, None, &[]).unwrap();
        assert!(answer.contains("\r\nSec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=12\r\n"));
        let mut head = Head::default();
        let request = format!("{request}\r\n");
        head.parse(request.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(Handshake::read(&head, request.as_bytes(), false).unwrap().answer.deflate, None);
    }
}
