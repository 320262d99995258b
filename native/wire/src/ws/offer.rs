//! The client's offers in Sec-WebSocket-Extensions, and the choice among them (RFC 7692 section 7.1).

use std::fmt;
use std::mem::replace;

use crate::error::{Error, Refusal};
use crate::headers::token_byte;
use crate::ws::deflate::{Agreement, MAX_WINDOW_BITS, MIN_WINDOW_BITS, OWN_WINDOW_BITS};

const NAME: &[u8] = b"permessage-deflate";

impl fmt::Display for Agreement {
    /// The value of the field that tells the client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("permessage-deflate")?;
        if self.server_reset {
            f.write_str("; server_no_context_takeover")?;
        }
        if self.client_reset {
            f.write_str("; client_no_context_takeover")?;
        }
        write!(f, "; server_max_window_bits={}", self.server_bits)?;
        if self.client_is_told { write!(f, "; client_max_window_bits={}", self.client_bits) } else { Ok(()) }
    }
}

/// The first offer that can be met; `None` if there is none. Those that cannot are declined, but a field that is not a
/// list of extensions at all (RFC 6455 section 9.1) is an error.
pub(crate) fn choose<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<Option<Agreement>, Error> {
    let joined = values.collect::<Vec<_>>().join(&b","[..]);
    let mut text = Text { rest: &joined };
    while !text.rest.is_empty() {
        if let Some(agreement) = text.offer()? {
            return Ok(Some(agreement));
        }
    }
    Ok(None)
}

/// One offer of permessage-deflate, as far as it is read. A parameter that comes twice, is unknown or cannot be met
/// declines it.
#[derive(Default)]
struct Offer {
    client_bits: Option<u8>,
    server_bits: Option<u8>,
    client_reset: bool,
    server_reset: bool,
}

impl Offer {
    /// Take a parameter; `None` declines the offer.
    fn take(mut self, name: &[u8], value: &[u8]) -> Option<Self> {
        let repeated = match name {
            b"client_no_context_takeover" if value.is_empty() => replace(&mut self.client_reset, true),
            b"server_no_context_takeover" if value.is_empty() => replace(&mut self.server_reset, true),
            // Compressors cannot do 8.
            b"server_max_window_bits" => {
                let bits = window_bits(value).filter(|&bits| bits >= MIN_WINDOW_BITS)?;
                self.server_bits.replace(bits).is_some()
            }
            // Without a value the client only declares that it understands this parameter.
            b"client_max_window_bits" => {
                let bits = if value.is_empty() { MAX_WINDOW_BITS } else { window_bits(value)? };
                self.client_bits.replace(bits).is_some()
            }
            _ => return None,
        };
        (!repeated).then_some(self)
    }

    fn accept(&self) -> Agreement {
        Agreement {
            client_bits: self.client_bits.map_or(MAX_WINDOW_BITS, |bits| bits.min(OWN_WINDOW_BITS)),
            client_is_told: self.client_bits.is_some(),
            server_bits: self.server_bits.unwrap_or(MAX_WINDOW_BITS).min(OWN_WINDOW_BITS),
            client_reset: self.client_reset,
            server_reset: self.server_reset,
        }
    }
}

/// A window of 8 to 15, in plain decimal.
fn window_bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

/// The rest of a list of extensions.
struct Text<'a> {
    rest: &'a [u8],
}

impl<'a> Text<'a> {
    /// Read a member of the list and the comma behind it; `None` if it is empty or declined.
    fn offer(&mut self) -> Result<Option<Agreement>, Error> {
        const MALFORMED: Error = Error::new(Refusal::WebsocketExtensions);
        self.skip_blanks();
        let mut good = None;
        if let Some(extension) = self.token() {
            good = (extension == NAME).then(Offer::default);
            self.skip_blanks();
            while self.skip(b';') {
                self.skip_blanks();
                let name = self.token().ok_or(MALFORMED)?;
                let value = self.value().ok_or(MALFORMED)?;
                good = good.and_then(|offer| offer.take(name, value));
                self.skip_blanks();
            }
        }
        let end = self.skip(b',') || self.rest.is_empty();
        if end { Ok(good.map(|offer| offer.accept())) } else { Err(MALFORMED) }
    }

    /// The value of a parameter, without quotes; empty if there is none.
    fn value(&mut self) -> Option<&'a [u8]> {
        let before = self.rest;
        self.skip_blanks();
        if !self.skip(b'=') {
            self.rest = before;
            return Some(b"");
        }
        self.skip_blanks();
        if self.rest.first() == Some(&b'"') { self.quoted() } else { self.token() }
    }

    /// A quoted string (RFC 9110 section 5.6.4), as it is between the quotes, less outer white space. No value that means
    /// something has an escape.
    fn quoted(&mut self) -> Option<&'a [u8]> {
        let inner = self.rest.get(1..)?;
        let mut escaped = false;
        for (at, &byte) in inner.iter().enumerate() {
            match byte {
                b'\t' | b' '..=b'~' | 0x80.. if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    self.rest = inner.get(at + 1..)?;
                    return Some(strip(inner.get(..at)?));
                }
                b'\t' | b' '..=b'~' | 0x80.. => {}
                _ => return None,
            }
        }
        None
    }

    fn token(&mut self) -> Option<&'a [u8]> {
        let length = self.rest.iter().take_while(|&&byte| token_byte(byte) != 0).count();
        let (token, rest) = self.rest.split_at_checked(length).filter(|(token, _)| !token.is_empty())?;
        self.rest = rest;
        Some(token)
    }

    fn skip(&mut self, byte: u8) -> bool {
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_blanks(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }
}

/// The white space that both languages strip from a value.
fn strip(mut value: &[u8]) -> &[u8] {
    while let [b'=' | b'"' | b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b'=' | b'"' | b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to an offer; empty if it is declined, `None` if it is malformed.
    fn answer(offers: &[&str]) -> Option<String> {
        let chosen = choose(offers.iter().map(|offer| offer.as_bytes())).ok()?;
        Some(chosen.map_or(String::new(), |agreement| agreement.to_string()))
    }

    #[track_caller]
    fn accepted(offer: &str, rest: &str) {
        assert_eq!(answer(&[offer]), Some(format!("permessage-deflate{rest}")), "{offer}");
    }

    #[test]
    fn an_offer_is_met_as_it_asks() {
        accepted("permessage-deflate", "; server_max_window_bits=12");
        accepted(
            " permessage-deflate ; client_max_window_bits",
            "; server_max_window_bits=12; client_max_window_bits=12",
        );
        accepted(
            "permessage-deflate;client_max_window_bits=8",
            "; server_max_window_bits=12; client_max_window_bits=8",
        );
        accepted(
            "permessage-deflate; client_max_window_bits = \"10\"",
            "; server_max_window_bits=12; client_max_window_bits=10",
        );
        accepted("permessage-deflate; server_max_window_bits=9", "; server_max_window_bits=9");
        accepted("permessage-deflate; server_max_window_bits=15", "; server_max_window_bits=12");
        accepted(
            "permessage-deflate; server_no_context_takeover",
            "; server_no_context_takeover; server_max_window_bits=12",
        );
        accepted(
            "permessage-deflate; client_no_context_takeover; server_no_context_takeover",
            "; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=12",
        );
    }

    #[test]
    fn what_cannot_be_met_is_declined_and_the_next_offer_taken() {
        for parameter in [
            "server_max_window_bits",
            "server_max_window_bits=8",
            "server_max_window_bits=16",
            "server_max_window_bits=09",
            "client_max_window_bits=7",
            "client_max_window_bits=010",
            "client_max_window_bits=\"1\\0\"",
            "client_no_context_takeover=1",
            "server_no_context_takeover; server_no_context_takeover",
            "client_max_window_bits; client_max_window_bits=10",
            "server_max_window_bits=10; server_max_window_bits=10",
            "unknown",
            "Client_max_window_bits",
        ] {
            let offer = format!("permessage-deflate; {parameter}");
            assert_eq!(answer(&[&offer]).as_deref(), Some(""), "{offer}");
            let second = Some("permessage-deflate; server_max_window_bits=10".to_owned());
            assert_eq!(answer(&[&format!("{offer}, permessage-deflate; server_max_window_bits=10")]), second);
            assert_eq!(
                answer(&["", &offer, "x-other; a=\"b\\\"c\"", "permessage-deflate; server_max_window_bits=10"]),
                second
            );
        }
        assert_eq!(answer(&[]).as_deref(), Some(""));
        assert_eq!(answer(&["PERMESSAGE-DEFLATE, , x"]).as_deref(), Some(""));
    }

    /// D8
    #[test]
    fn what_is_no_list_of_extensions_is_an_error() {
        for offer in [";", "a b", "a;", "a; b=", "a; b=\"", "a; b=\"\u{0}\"", "\u{80}", "a,,;", "a; =b", "a=b"] {
            assert_eq!(answer(&[offer]), None, "{offer}");
        }
        assert!(answer(&["permessage-deflate", ";"]).is_some(), "offers after the chosen one are not parsed");
    }

    /// D7
    #[test]
    fn long_offers_are_linear_work() {
        for offer in [" ".repeat(60_000) + "x\u{80}", "a;".repeat(30_000), format!("a; b=\"{}", "\\".repeat(60_000))] {
            assert_eq!(answer(&[&offer]), None);
        }
        assert_eq!(answer(&[&"a; b=c,".repeat(9_000)]).as_deref(), Some(""));
    }
}
