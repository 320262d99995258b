//! The PROXY protocol, versions 1 and 2 (`proxy-protocol.txt` of `HAProxy`, 2.2): who a proxy in front of us is talking to, said in
//! front of everything else on a connection.
//!
//! [`read`] is asked again with more until it knows: a header is short, comes in one piece as a rule, and is looked at where the
//! kernel keeps it. Nothing is remembered in between, so the outcome cannot depend on how the bytes were cut.
//!
//! ```
//! use wire::proxy;
//!
//! let input = b"PROXY TCP4 192.0.2.1 198.51.100.7 4711 443\r\nGET / HTTP/1.1\r\n";
//! let header = proxy::read(input)?.unwrap();
//! assert_eq!(&input[header.length..], b"GET / HTTP/1.1\r\n");
//! let Some(proxy::Ends::Ip { source, .. }) = header.ends else { panic!() };
//! assert_eq!(source, "192.0.2.1:4711".parse().unwrap());
//! # Ok::<(), proxy::Malformed>(())
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{fmt, str};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes in front of the addresses of version 2.
const FIXED: usize = 16;
/// Section 2.1: the longest line of version 1, its end included.
const MAX_LINE: usize = 107;
/// Longest header of version 2. Section 2 has a sender keep to what fits in one segment, 536 bytes at least, but names of hosts
/// and certificates may take more than that; nginx has this limit, too.
pub const MAX_LENGTH: usize = 4096;
/// Section 2.2.5.
const MAX_UNIQUE_ID: usize = 128;
/// What each path of a Unix socket takes (section 2.2).
const UNIX_PATH: usize = 108;

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// It begins neither with `PROXY ` nor with the signature of version 2.
    NoHeader,
    /// The line of version 1.
    Line,
    /// Version or command of version 2.
    Command,
    /// Its family, or addresses that are shorter than that says.
    Addresses,
    /// Something behind the addresses.
    Extension,
    /// The header does not have the checksum that it says (section 2.2.4).
    Checksum,
    /// It is longer than [`MAX_LENGTH`].
    TooLong,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoHeader => "there is no PROXY header",
            Self::Line => "the line of the PROXY header is malformed",
            Self::Command => "version or command of the PROXY header is unknown",
            Self::Addresses => "the addresses of the PROXY header are malformed",
            Self::Extension => "an extension of the PROXY header is malformed",
            Self::Checksum => "the checksum of the PROXY header is wrong",
            Self::TooLong => "the PROXY header is too long",
        })
    }
}

impl std::error::Error for Malformed {}

/// Both ends of a connection, as the proxy sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends<'a> {
    /// IPv4 or IPv6.
    Ip {
        /// The client.
        source: SocketAddr,
        /// Where it has connected to.
        destination: SocketAddr,
    },
    /// Unix sockets, by their paths; that of a client is empty as a rule.
    Unix {
        /// The client.
        source: &'a [u8],
        /// Where it has connected to.
        destination: &'a [u8],
    },
}

/// What is said about the client's encryption, which ended at the proxy (`PP2_TYPE_SSL`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tls<'a> {
    /// The client has shown a certificate, on this connection or in the session that it resumes.
    pub has_certificate: bool,
    /// That certificate was verified.
    pub verified: bool,
    /// Such as `TLSv1.3`.
    pub version: &'a str,
    /// Name of the cipher.
    pub cipher: &'a str,
    /// Common name of the client's certificate.
    pub common_name: &'a str,
}

/// A header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// How many bytes it is.
    pub length: usize,
    /// `None` where the proxy speaks for itself (`LOCAL`, a probe), or does not know (`UNKNOWN`): then those of the connection
    /// hold.
    pub ends: Option<Ends<'a>>,
    /// The name that the client has asked for: SNI of its handshake.
    pub authority: &'a str,
    /// What its handshake has agreed on.
    pub alpn: &'a [u8],
    /// Names the connection, in logs of several programs.
    pub unique_id: &'a [u8],
    /// `None`: it did not encrypt, or that is not said.
    pub tls: Option<Tls<'a>>,
}

/// Read the header in front of `input`; `None` if more has to come.
///
/// # Errors
///
/// There is none, or none that can be believed. The first byte that is wrong decides.
pub fn read(input: &[u8]) -> Result<Option<Header<'_>>, Malformed> {
    let begun = |of: &[u8]| input.iter().zip(of).all(|(byte, expected)| byte == expected);
    if begun(b"PROXY ") {
        return read_line(input);
    }
    if begun(&SIGNATURE) { read_binary(input) } else { Err(Malformed::NoHeader) }
}

/// Section 2.1.
fn read_line(input: &[u8]) -> Result<Option<Header<'_>>, Malformed> {
    let window = input.get(..MAX_LINE).unwrap_or(input);
    let Some(end) = window.iter().position(|byte| !matches!(byte, b' '..=b'~')) else {
        return if window.len() == MAX_LINE { Err(Malformed::Line) } else { Ok(None) };
    };
    match window.get(end..) {
        Some(b"\r") if window.len() < MAX_LINE => return Ok(None),
        Some([b'\r', b'\n', ..]) => {}
        _ => return Err(Malformed::Line),
    }
    let text = window.get(..end).and_then(|line| str::from_utf8(line).ok()).ok_or(Malformed::Line)?;
    let length = end + 2;
    let mut words = text.split(' ').skip(1);
    let family = words.next().unwrap_or_default();
    if family == "UNKNOWN" {
        return Ok(Some(Header { length, ..Header::default() }));
    }
    let mut address = || words.next().and_then(|word| address_of(family, word)).ok_or(Malformed::Line);
    let (source, destination) = (address()?, address()?);
    let mut port = || words.next().and_then(port_of).ok_or(Malformed::Line);
    let (from, to) = (port()?, port()?);
    if words.next().is_some() {
        return Err(Malformed::Line);
    }
    let ends = Ends::Ip { source: SocketAddr::new(source, from), destination: SocketAddr::new(destination, to) };
    Ok(Some(Header { length, ends: Some(ends), ..Header::default() }))
}

fn address_of(family: &str, word: &str) -> Option<IpAddr> {
    match family {
        "TCP4" => word.parse().ok().map(IpAddr::V4),
        "TCP6" => word.parse().ok().map(IpAddr::V6),
        _ => None,
    }
}

/// Decimal, without leading zeros (section 2.1).
fn port_of(word: &str) -> Option<u16> {
    let plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    if plain { word.parse().ok() } else { None }
}

/// Section 2.2.
fn read_binary(input: &[u8]) -> Result<Option<Header<'_>>, Malformed> {
    let Some(&command) = input.get(12) else { return Ok(None) };
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(Malformed::Command),
    };
    let Some(&family) = input.get(13) else { return Ok(None) };
    // IPv4, IPv6, Unix; streams and datagrams: whichever it was, the addresses are those of the client. What a proxy says of
    // itself may be of any.
    let taken = match family {
        _ if is_local => 0,
        0x00 => 0,
        0x11 | 0x12 => 12,
        0x21 | 0x22 => 36,
        0x31 | 0x32 => 2 * UNIX_PATH,
        _ => return Err(Malformed::Addresses),
    };
    let Some(&[high, low]) = input.get(14..FIXED) else { return Ok(None) };
    let rest = usize::from(u16::from_be_bytes([high, low]));
    let length = FIXED + rest;
    if length > MAX_LENGTH {
        return Err(Malformed::TooLong);
    }
    if rest < taken {
        return Err(Malformed::Addresses);
    }
    let Some(whole) = input.get(..length) else { return Ok(None) };
    let mut header = Header { length, ..Header::default() };
    // Section 2.2: what a proxy says when it speaks for itself is skipped, whatever it is.
    if !is_local {
        let rest = whole.get(FIXED..).unwrap_or_default();
        let (addresses, extensions) = rest.split_at_checked(taken).ok_or(Malformed::Addresses)?;
        header.ends = ends_of(addresses);
        read_extensions(&mut header, whole, extensions)?;
    }
    Ok(Some(header))
}

/// Both addresses, and behind those of IP both ports: how long they are says which they are.
fn ends_of(addresses: &[u8]) -> Option<Ends<'_>> {
    let (source, destination) = match addresses.len() {
        12 => two::<4>(addresses).map(|(one, other)| (Ipv4Addr::from(one).into(), Ipv4Addr::from(other).into()))?,
        36 => two::<16>(addresses).map(|(one, other)| (Ipv6Addr::from(one).into(), Ipv6Addr::from(other).into()))?,
        length if length == 2 * UNIX_PATH => {
            let (source, destination) = addresses.split_at(UNIX_PATH);
            return Some(Ends::Unix { source: path(source), destination: path(destination) });
        }
        _ => return None,
    };
    let &[a, b, c, d] = addresses.last_chunk::<4>()?;
    let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Some(Ends::Ip { source: SocketAddr::new(source, from), destination: SocketAddr::new(destination, to) })
}

fn two<const N: usize>(addresses: &[u8]) -> Option<([u8; N], [u8; N])> {
    let (source, rest) = addresses.split_first_chunk::<N>()?;
    Some((*source, *rest.first_chunk::<N>()?))
}

/// What stands in front of the first NUL.
fn path(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Section 2.2.1 and following. What is not known is skipped.
fn read_extensions<'a>(header: &mut Header<'a>, whole: &[u8], mut rest: &'a [u8]) -> Result<(), Malformed> {
    while !rest.is_empty() {
        let (kind, value, behind) = extension(rest)?;
        match kind {
            0x01 => header.alpn = value,
            0x02 => header.authority = text(value)?,
            0x03 => {
                let told = <[u8; 4]>::try_from(value).map_err(|_| Malformed::Extension)?;
                let at = whole.len() - behind.len() - told.len();
                if checksum(whole, at) != u32::from_be_bytes(told) {
                    return Err(Malformed::Checksum);
                }
            }
            0x05 if value.len() > MAX_UNIQUE_ID => return Err(Malformed::Extension),
            0x05 => header.unique_id = value,
            0x20 => header.tls = read_tls(value)?,
            _ => {}
        }
        rest = behind;
    }
    Ok(())
}

/// Kind and value of the first, and what is behind it.
fn extension(input: &[u8]) -> Result<(u8, &[u8], &[u8]), Malformed> {
    let (&[kind, high, low], rest) = input.split_first_chunk().ok_or(Malformed::Extension)?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let (value, behind) = rest.split_at_checked(length).ok_or(Malformed::Extension)?;
    Ok((kind, value, behind))
}

fn text(value: &[u8]) -> Result<&str, Malformed> {
    let text = str::from_utf8(value).map_err(|_| Malformed::Extension)?;
    if text.chars().any(char::is_control) { Err(Malformed::Extension) } else { Ok(text) }
}

/// Section 2.2.6.
fn read_tls(value: &[u8]) -> Result<Option<Tls<'_>>, Malformed> {
    let (&[client, verify @ ..], mut rest) = value.split_first_chunk::<5>().ok_or(Malformed::Extension)?;
    let has_certificate = client & 0b110 != 0;
    let mut tls = Tls { has_certificate, verified: has_certificate && verify == [0; 4], ..Tls::default() };
    while !rest.is_empty() {
        let (kind, value, behind) = extension(rest)?;
        match kind {
            0x21 => tls.version = text(value)?,
            0x22 => tls.common_name = text(value)?,
            0x23 => tls.cipher = text(value)?,
            _ => {}
        }
        rest = behind;
    }
    Ok((client & 1 != 0).then_some(tls))
}

/// CRC-32C (RFC 3720 appendix B.4) of a header, in which the four bytes of the checksum itself, from `at` on, are zero.
fn checksum(whole: &[u8], at: usize) -> u32 {
    let mut crc = !0;
    for (index, &byte) in whole.iter().enumerate() {
        crc ^= u32::from(if (at..at + 4).contains(&index) { 0 } else { byte });
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(command: u8, family: u8, addresses: &[u8], extensions: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([command, family]);
        let length = u16::try_from(addresses.len() + extensions.len()).unwrap();
        header.extend(length.to_be_bytes());
        header.extend(addresses);
        header.extend(extensions);
        header
    }

    fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
        let mut whole = vec![kind];
        whole.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        whole.extend(value);
        whole
    }

    const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 7, 0x12, 0x67, 0x01, 0xbb];

    /// Both addresses of IP, as text.
    fn ip(ends: Option<Ends<'_>>) -> Option<(String, String)> {
        match ends {
            Some(Ends::Ip { source, destination }) => Some((source.to_string(), destination.to_string())),
            _ => None,
        }
    }

    /// However much of it has come, what is known of it is the same in the end, and never known too early.
    fn read_at_every_cut(input: &[u8]) -> Result<Option<Header<'_>>, Malformed> {
        let whole = read(input);
        let mut known = false;
        for end in 0..=input.len() {
            match read(&input[..end]) {
                Ok(None) => assert!(!known),
                Ok(Some(header)) => {
                    assert_eq!(Ok(Some(header)), whole);
                    assert!(header.length <= end);
                    known = true;
                }
                Err(error) => {
                    assert_eq!(Err(error), whole);
                    known = true;
                }
            }
        }
        whole
    }

    #[test]
    fn lines_of_version_1() {
        for (line, source) in [
            ("PROXY TCP4 192.0.2.1 198.51.100.7 4711 443\r\n", Some("192.0.2.1:4711")),
            ("PROXY TCP6 2001:db8::1 ::1 65535 0\r\n", Some("[2001:db8::1]:65535")),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
        ] {
            let header = read_at_every_cut(line.as_bytes()).unwrap().unwrap();
            assert_eq!(header.length, line.len());
            assert_eq!(ip(header.ends).map(|(source, _)| source).as_deref(), source);
        }
    }

    #[test]
    fn lines_that_are_none() {
        for line in [
            "PROXY TCP4 192.0.2.1 198.51.100.7 4711\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.7 4711 443 1\r\n",
            "PROXY TCP4  192.0.2.1 198.51.100.7 4711 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.7 04711 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.7 +711 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.7 65536 443\r\n",
            "PROXY TCP4 192.0.02.1 198.51.100.7 1 443\r\n",
            "PROXY TCP4 ::1 ::1 1 443\r\n",
            "PROXY TCP6 192.0.2.1 198.51.100.7 1 443\r\n",
            "PROXY UDP4 192.0.2.1 198.51.100.7 1 443\r\n",
            "PROXY tcp4 192.0.2.1 198.51.100.7 1 443\r\n",
            "PROXY \r\n",
        ] {
            assert_eq!(read(line.as_bytes()), Err(Malformed::Line), "{line}");
        }
        assert_eq!(read(b"PROXY TCP4 1.2.3.4\n"), Err(Malformed::Line));
        assert_eq!(read(&[b"PROXY ".as_slice(), &[b'x'; 200]].concat()), Err(Malformed::Line));
        for other in [b"GET / HTTP/1.1\r\n".as_slice(), b"PROXX", b"\r\n\r\nX", b"\x16\x03\x01", b"proxy "] {
            assert_eq!(read_at_every_cut(other), Err(Malformed::NoHeader));
        }
        assert_eq!(read(b""), Ok(None));
    }

    #[test]
    fn headers_of_version_2() {
        let header = binary(0x21, 0x11, &V4, &[]);
        let read = read_at_every_cut(&header).unwrap().unwrap();
        assert_eq!(read.length, 28);
        assert_eq!(ip(read.ends), Some(("192.0.2.1:4711".into(), "198.51.100.7:443".into())));
        let mut v6 = [0; 36];
        (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 3, 4);
        let header = binary(0x21, 0x21, &v6, &[]);
        let ends = read_at_every_cut(&header).unwrap().unwrap().ends;
        assert_eq!(ip(ends), Some(("[::1]:3".into(), "[::2]:4".into())));
        for (command, family, addresses) in [
            (0x20, 0x00, &[][..]),
            (0x20, 0x11, &V4[..]),
            (0x20, 0x11, &V4[..3]),
            (0x20, 0xff, &V4[..]),
            (0x21, 0x00, &[]),
        ] {
            let header = binary(command, family, addresses, &[]);
            let read = read_at_every_cut(&header).unwrap().unwrap();
            assert_eq!((read.length, read.ends), (header.len(), None));
        }
        // Whose connection is one of datagrams (HTTP/3) has an address, too.
        let datagram = binary(0x21, 0x12, &V4, &[]);
        assert_eq!(ip(super::read(&datagram).unwrap().unwrap().ends).unwrap().0, "192.0.2.1:4711");
        let mut paths = [0; 216];
        paths[108..115].copy_from_slice(b"/socket");
        let header = binary(0x21, 0x31, &paths, &[]);
        let ends = read_at_every_cut(&header).unwrap().unwrap().ends;
        assert_eq!(ends, Some(Ends::Unix { source: b"", destination: b"/socket" }));
    }

    #[test]
    fn headers_of_version_2_that_are_none() {
        for (header, error) in [
            (binary(0x11, 0x11, &V4, &[]), Malformed::Command),
            (binary(0x22, 0x11, &V4, &[]), Malformed::Command),
            (binary(0x21, 0x41, &V4, &[]), Malformed::Addresses),
            (binary(0x21, 0x13, &V4, &[]), Malformed::Addresses),
            (binary(0x21, 0x10, &V4, &[]), Malformed::Addresses),
            (binary(0x21, 0x11, &V4[..11], &[]), Malformed::Addresses),
            (binary(0x21, 0x31, &[0; 215], &[]), Malformed::Addresses),
            (binary(0x21, 0x11, &V4, &tlv(5, &[b'x'; 129])), Malformed::Extension),
            (binary(0x21, 0x21, &V4, &[]), Malformed::Addresses),
            (binary(0x21, 0x11, &V4, &[1, 0]), Malformed::Extension),
            (binary(0x21, 0x11, &V4, &[1, 0, 2, 0]), Malformed::Extension),
            (binary(0x21, 0x11, &V4, &tlv(2, b"a\nb")), Malformed::Extension),
            (binary(0x21, 0x11, &V4, &tlv(2, b"\xff")), Malformed::Extension),
            (binary(0x21, 0x11, &V4, &tlv(0x20, &[0; 4])), Malformed::Extension),
            (binary(0x21, 0x11, &V4, &tlv(3, &[0; 3])), Malformed::Extension),
            (binary(0x21, 0x11, &V4, &tlv(3, &[0; 4])), Malformed::Checksum),
        ] {
            assert_eq!(read_at_every_cut(&header), Err(error));
        }
        let mut long = binary(0x21, 0x11, &V4, &[]);
        long[14..16].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(read(&long), Err(Malformed::TooLong));
    }

    #[test]
    fn extensions_of_version_2() {
        let inner =
            [tlv(0x21, b"TLSv1.3"), tlv(0x22, b"a client"), tlv(0x23, b"TLS_AES_128_GCM_SHA256"), tlv(0x24, b"x")]
                .concat();
        let tls = tlv(0x20, &[&[0b11, 0, 0, 0, 0][..], &inner].concat());
        let extensions =
            [tlv(4, &[0; 9]), tlv(1, b"h2"), tlv(2, b"a.example"), tlv(5, b"id"), tls, tlv(0xe0, b"own")].concat();
        let header = binary(0x21, 0x11, &V4, &extensions);
        let read = read_at_every_cut(&header).unwrap().unwrap();
        assert_eq!((read.alpn, read.authority, read.unique_id), (b"h2".as_slice(), "a.example", b"id".as_slice()));
        let tls = read.tls.unwrap();
        assert!(tls.has_certificate && tls.verified);
        assert_eq!((tls.version, tls.common_name, tls.cipher), ("TLSv1.3", "a client", "TLS_AES_128_GCM_SHA256"));
        let refused = tlv(0x20, &[0b101, 0, 0, 0, 1]);
        let header = binary(0x21, 0x11, &V4, &refused);
        let tls = super::read(&header).unwrap().unwrap().tls.unwrap();
        assert!(tls.has_certificate && !tls.verified);
        assert_eq!(super::read(&binary(0x21, 0x11, &V4, &tlv(0x20, &[0; 5]))).unwrap().unwrap().tls, None);
    }

    #[test]
    fn a_checksum_is_of_the_header_without_it() {
        // The check value of CRC-32C.
        assert_eq!(checksum(b"123456789", 100), 0xe306_9283);
        let mut header = binary(0x21, 0x11, &V4, &[tlv(3, &[0; 4]), tlv(2, b"a")].concat());
        let sum = checksum(&header, 31);
        header[31..35].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(read(&header).unwrap().unwrap().authority, "a");
        header[20] ^= 1;
        assert_eq!(read(&header), Err(Malformed::Checksum));
    }
}
