//! W3C Trace Context: the fields by which a request names the trace that it belongs to.

/// Bytes of a `tracestate` that is passed on (section 3.3.1.5); a longer one is dropped.
pub const MAX_TRACESTATE: usize = 512;

/// The flag of a trace that is recorded (section 3.2.2.5.1).
pub const SAMPLED: u8 = 1;
/// The flag of a trace id whose last 7 bytes are random (Level 2).
pub const RANDOM: u8 = 2;

/// Bytes of a `traceparent` of version 00.
pub const LENGTH: usize = 55;

/// The span that has caused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The id of the trace.
    pub trace: [u8; 16],
    /// The id of the span.
    pub span: [u8; 8],
    /// [`SAMPLED`] and [`RANDOM`]; others are unknown, and not passed on.
    pub flags: u8,
}

/// The parent in a `traceparent`; `None` if that is invalid (section 3.2). Of a later version than 00, the known part is
/// read, as the standard demands.
pub fn parse(value: &[u8]) -> Option<TraceParent> {
    let (known, more) = value.split_at_checked(LENGTH)?;
    let (version, rest) = known.split_first_chunk::<2>()?;
    let [version] = digits(version)?;
    let fits = match version {
        0xff => false,
        0 => more.is_empty(),
        _ => matches!(more, [] | [b'-', ..]),
    };
    let trace = digits(rest.get(1..33)?)?;
    let span = digits(rest.get(34..50)?)?;
    let [flags] = digits(rest.get(51..53)?)?;
    let are_cut = [0, 33, 50].iter().all(|&place| rest.get(place) == Some(&b'-'));
    let are_ids = trace != [0; 16] && span != [0; 8];
    (fits && are_cut && are_ids).then_some(TraceParent { trace, span, flags: flags & (SAMPLED | RANDOM) })
}

/// Lower-case hexadecimal digits, two for each of `N` bytes.
pub fn digits<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// The `traceparent` of a span.
#[inline]
pub fn format(trace: &[u8; 16], span: &[u8; 8], flags: u8) -> [u8; LENGTH] {
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    let (high, low) = (digits_of(trace), digits_of(span));
    for (place, digits) in text.get_mut(3..35).into_iter().flat_map(|place| place.as_chunks_mut().0).zip(high) {
        *place = digits;
    }
    for (place, digits) in text.get_mut(36..52).into_iter().flat_map(|place| place.as_chunks_mut().0).zip(low) {
        *place = digits;
    }
    let [.., first, second] = &mut text;
    (*first, *second) = (hex(flags >> 4), hex(flags & 15));
    text
}

/// Hexadecimal digits, eight at a time.
#[inline]
fn digits_of(bytes: &[u8]) -> impl Iterator<Item = [u8; 8]> {
    bytes.as_chunks().0.iter().map(|four| {
        // One digit to a byte.
        let mut digits = u64::from(u32::from_be_bytes(*four));
        digits = (digits | digits << 16) & 0x0000_ffff_0000_ffff;
        digits = (digits | digits << 8) & 0x00ff_00ff_00ff_00ff;
        digits = (digits | digits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
        let letters = (digits + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
        let letter_offset = u64::from(b'a' - 10 - b'0');
        (digits + 0x3030_3030_3030_3030 + letters * letter_offset).to_be_bytes()
    })
}

const fn hex(half: u8) -> u8 {
    half + if half < 10 { b'0' } else { b'a' - 10 }
}

/// Whether a `tracestate`, of all fields of this name, can be passed on.
pub fn is_passed_on(state: &[u8]) -> bool {
    state.len() <= MAX_TRACESTATE && state.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
}

#[cfg(test)]
mod tests {
    use super::{LENGTH, RANDOM, SAMPLED, TraceParent, format, is_passed_on, parse};

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_written_as_it_was_read() {
        let TraceParent { trace, span, flags } = parse(TEXT.as_bytes()).unwrap();
        assert_eq!((trace[0], span[7], flags), (0x0a, 0x31, SAMPLED));
        assert_eq!(format(&trace, &span, flags), TEXT.as_bytes());
        for later in [format!("01{}", &TEXT[2..]), format!("fe{}-more", &TEXT[2..]), format!("cc{}-", &TEXT[2..])] {
            assert_eq!(parse(later.as_bytes()).unwrap(), parse(TEXT.as_bytes()).unwrap(), "{later}");
        }
        let flags = TEXT.replace("-01", "-ff");
        assert_eq!(parse(flags.as_bytes()).unwrap().flags, SAMPLED | RANDOM);
    }

    #[test]
    fn malformed_parents_are_none() {
        for length in 0..LENGTH {
            assert_eq!(parse(&TEXT.as_bytes()[..length]), None);
        }
        for place in 0..LENGTH {
            for byte in [b'g', b'A', b' ', 0xff, b'-'] {
                let mut text = TEXT.as_bytes().to_vec();
                if text[place] != byte {
                    text[place] = byte;
                    assert_eq!(parse(&text), None, "{}", String::from_utf8_lossy(&text));
                }
            }
        }
        let more = format!("{TEXT}-");
        let zero_trace = format!("00-{}{}", "0".repeat(32), &TEXT[35..]);
        let zero_span = format!("{}{}-01", &TEXT[..36], "0".repeat(16));
        let unknown = format!("ff{}", &TEXT[2..]);
        let glued = format!("01{}0", &TEXT[2..]);
        for text in [more, zero_trace, zero_span, unknown, glued] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_state_is_bounded_and_ascii() {
        assert!(is_passed_on(b"rojo=00f067aa0ba902b7, congo=t61rcWkgMzE\t"));
        assert!(is_passed_on(&[b'a'; 512]) && !is_passed_on(&[b'a'; 513]));
        assert!(!is_passed_on(b"a=\xe9") && !is_passed_on(b"a=\x01"));
    }
}
