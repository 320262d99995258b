//! The Huffman code of strings (RFC 7541 section 5.2 and appendix B).

use crate::fields::Malformed;

/// The end of a string, which is never in one; its first bits fill the last byte.
const END: u16 = 256;
/// Codes of up to this many bits are found by one lookup.
const SHORT: u8 = 8;
const LONGEST: usize = 30;

/// How many bits each symbol has. The code is canonical: the shorter before the longer, and among those of one length by
/// value; so nothing else need be written down.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The symbols in the order of their codes.
const SYMBOLS: [u16; 257] = symbols();
/// The code of each symbol.
const CODES: [u32; 257] = codes();
/// Maps the first byte of the input to a symbol and its length, if that is short; else length 0.
static FIRST: [(u8, u8); 256] = first();
/// For each length above `SHORT`: the codes of that length.
static LONG: [Row; LONGEST - SHORT as usize] = long();

/// The codes of one length.
#[derive(Clone, Copy)]
struct Row {
    /// The first one, and the place of its symbol.
    first: u32,
    place: usize,
    /// How many there are.
    count: u32,
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn symbols() -> [u16; 257] {
    let (mut symbols, mut count, mut length) = ([0; 257], 0, 0);
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                symbols[count] = symbol as u16;
                count += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    symbols
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn codes() -> [u32; 257] {
    let (mut codes, mut place, mut code) = ([0; 257], 1, 0);
    while place < 257 {
        let (before, symbol) = (SYMBOLS[place - 1] as usize, SYMBOLS[place] as usize);
        code = (code + 1) << (LENGTHS[symbol] - LENGTHS[before]);
        codes[symbol] = code;
        place += 1;
    }
    codes
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn first() -> [(u8, u8); 256] {
    let (mut table, mut symbol) = ([(0, 0); 256], 0);
    while symbol < 256 {
        let length = LENGTHS[symbol];
        if length <= SHORT {
            let start = (CODES[symbol] as usize) << (SHORT - length);
            let mut at = start;
            while at < start + (1 << (SHORT - length)) {
                table[at] = (symbol as u8, length);
                at += 1;
            }
        }
        symbol += 1;
    }
    table
}

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const fn long() -> [Row; LONGEST - SHORT as usize] {
    let mut rows = [Row { first: 0, place: 0, count: 0 }; LONGEST - SHORT as usize];
    let mut place = 0;
    while place < 257 {
        let symbol = SYMBOLS[place] as usize;
        if LENGTHS[symbol] > SHORT {
            let row = &mut rows[(LENGTHS[symbol] - SHORT - 1) as usize];
            if row.count == 0 {
                row.first = CODES[symbol];
                row.place = place;
            }
            row.count += 1;
        }
        place += 1;
    }
    rows
}

/// The symbol whose code `window` begins with, and the length of that.
#[inline]
#[expect(clippy::indexing_slicing, reason = "a byte is always inside a table of 256")]
fn look_up(window: u32) -> (u16, u32) {
    let (symbol, length) = FIRST[(window >> 24) as usize];
    if length > 0 {
        return (u16::from(symbol), u32::from(length));
    }
    for (length, row) in (u32::from(SHORT) + 1..).zip(&LONG) {
        let distance = (window >> (32 - length)).wrapping_sub(row.first);
        if distance < row.count {
            return (SYMBOLS.get(row.place + distance as usize).copied().unwrap_or(END), length);
        }
    }
    (END, u32::MAX)
}

/// Append the decoded `input`.
pub(crate) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    // The last `count` bits of `bits` are still to be read.
    let (mut bits, mut count, mut rest) = (0_u64, 0_u32, input);
    loop {
        while count <= 56
            && let Some((&byte, behind)) = rest.split_first()
        {
            bits = bits << 8 | u64::from(byte);
            count += 8;
            rest = behind;
        }
        let window = match count.checked_sub(32) {
            Some(more) => (bits >> more) as u32,
            None => (bits << (32 - count)) as u32 | u32::MAX.checked_shr(count).unwrap_or_default(),
        };
        let (symbol, length) = look_up(window);
        if length > count {
            // Less than a byte of padding, of the bits that the end begins with.
            return if count < 8 && window == u32::MAX { Ok(()) } else { Err(Malformed::Huffman) };
        }
        out.push(u8::try_from(symbol).map_err(|_| Malformed::Huffman)?);
        count -= length;
    }
}

/// Bytes that `text` takes when it is coded.
#[expect(clippy::indexing_slicing, reason = "a byte is always inside a table of 257")]
pub(crate) fn length(text: &[u8]) -> usize {
    text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum::<usize>().div_ceil(8)
}

/// Append `text`, coded.
#[expect(clippy::indexing_slicing, reason = "a byte is always inside a table of 257")]
pub(crate) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0_u32);
    for &byte in text {
        let symbol = usize::from(byte);
        bits = bits << LENGTHS[symbol] | u64::from(CODES[symbol]);
        count += u32::from(LENGTHS[symbol]);
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        out.push((bits << (8 - count)) as u8 | 0xFF >> count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = b"before".to_vec();
        decode(input, &mut out).map(|()| out.split_off("before".len()))
    }

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        encode(text, &mut out);
        out.split_off("before".len())
    }

    /// RFC 7541 appendix B: some of each length.
    #[test]
    fn the_code_is_that_of_the_rfc() {
        for (symbol, code, length) in [
            (48, 0x0, 5),
            (116, 0x9, 5),
            (32, 0x14, 6),
            (58, 0x5c, 7),
            (122, 0x7b, 7),
            (38, 0xf8, 8),
            (63, 0x3fc, 10),
            (39, 0x7fa, 11),
            (35, 0xffa, 12),
            (0, 0x1ff8, 13),
            (94, 0x3ffc, 14),
            (123, 0x7ffe, 15),
            (92, 0x7fff0, 19),
            (128, 0xfffe6, 20),
            (9, 0x00ff_ffea, 24),
            (1, 0x007f_ffd8, 23),
            (192, 0x03ff_ffe0, 26),
            (249, 0x0fff_fffe, 28),
            (10, 0x3fff_fffc, 30),
            (256, 0x3fff_ffff, 30),
        ] {
            assert_eq!((CODES[symbol], LENGTHS[symbol]), (code, length), "symbol {symbol}");
        }
    }

    #[test]
    fn every_pair_of_bytes_comes_back() {
        for first in 0..=255 {
            for second in 0..=255 {
                let text = [first, second];
                let code = encoded(&text);
                assert_eq!(code.len(), length(&text));
                assert_eq!(decoded(&code).as_deref(), Ok(&text[..]));
            }
        }
        assert_eq!((encoded(b""), decoded(b"")), (vec![], Ok(vec![])));
    }

    /// RFC 7541 section 5.2
    #[test]
    fn padding_is_short_and_of_ones() {
        assert_eq!(decoded(b"\x07"), Ok(b"0".to_vec()));
        // Zeros; a whole byte; the end itself; a code cut off.
        for input in
            [&b"\x00\x00"[..], b"\x06", b"\x07\xff", b"\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfc", b"\xfe"]
        {
            assert_eq!(decoded(input), Err(Malformed::Huffman), "{input:x?}");
        }
    }
}
