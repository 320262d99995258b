//! A look at a `ClientHello` before rustls has it: which name the client asks for, and which protocols it offers.
//!
//! A malformed one is left to rustls, which rejects it with the right alert.

/// The longest hello that is waited for; rustls rejects longer ones.
const MOST: usize = 64 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const PROTOCOLS: u16 = 16;
const TLS12: u16 = 0x0303;

/// The parts of a hello that select the settings of a connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    /// In lower case (RFC 6066 section 3).
    pub(crate) server_name: Option<String>,
    /// Empty if the client offers none (RFC 7301 section 3.1).
    pub(crate) protocols: Vec<Vec<u8>>,
    /// The highest version is below TLS 1.2.
    pub(crate) is_old: bool,
}

/// The records of a hello so far.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Bytes of records that were read: each once, however finely a client cuts them.
    at: usize,
    /// The content of these records.
    message: Vec<u8>,
}

impl Reading {
    /// Look at `records`, all that a client has sent so far; `None` if more have to come.
    pub(crate) fn look(&mut self, records: &[u8]) -> Option<Hello> {
        while let Some((header, behind)) = records.get(self.at..)?.split_first_chunk::<5>() {
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            if header[0] != HANDSHAKE || header[1] != 3 || length == 0 || self.message.len() > MOST {
                return Some(Hello::default());
            }
            let fragment = behind.get(..length)?;
            self.at += header.len() + length;
            // Nearly always the whole message.
            if self.message.is_empty()
                && let Some(hello) = within(fragment)
            {
                return Some(hello);
            }
            self.message.extend_from_slice(fragment);
            if let Some(hello) = within(&self.message) {
                return Some(hello);
            }
        }
        None
    }
}

/// The hello at the beginning of `message`; `None` if more of it has to come.
fn within(message: &[u8]) -> Option<Hello> {
    let (header, rest) = message.split_first_chunk::<4>()?;
    if header[0] != CLIENT_HELLO {
        return Some(Hello::default());
    }
    let length = usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
    if length > MOST {
        return Some(Hello::default());
    }
    Some(parse(rest.get(..length)?).unwrap_or_default())
}

/// RFC 8446 section 4.1.2.
fn parse(body: &[u8]) -> Option<Hello> {
    let mut body = Reader(body);
    let version = body.number()?;
    body.take(32)?; // random
    body.vector8()?; // session id
    body.vector16()?; // cipher suites
    body.vector8()?; // compression methods
    let mut hello = Hello { is_old: version < TLS12, ..Hello::default() };
    if body.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = body.vector16()?;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let mut content = extensions.vector16()?;
        match kind {
            SERVER_NAME => hello.server_name = server_name(content),
            PROTOCOLS => {
                let mut names = content.vector16()?;
                while !names.0.is_empty() {
                    hello.protocols.push(names.vector8()?.0.to_vec());
                }
            }
            _ => {}
        }
    }
    Some(hello)
}

fn server_name(mut content: Reader<'_>) -> Option<String> {
    let mut names = content.vector16()?;
    let kind = names.take(1)?;
    let name = names.vector16()?.0;
    (kind == [0] && name.is_ascii()).then(|| String::from_utf8_lossy(name).to_ascii_lowercase())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn vector8(&mut self) -> Option<Reader<'a>> {
        let length = *self.take(1)?.first()?;
        self.take(length.into()).map(Reader)
    }

    fn vector16(&mut self) -> Option<Reader<'a>> {
        let length = self.number()?;
        self.take(length.into()).map(Reader)
    }
}
