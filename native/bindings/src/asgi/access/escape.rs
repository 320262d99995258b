//! What a client sent, so that it can neither end a line nor the quotation marks around it. The same, byte for byte, as
//! `uvicorn/access/format.py`.

use std::fmt::Write as _;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn push_percent(line: &mut String, byte: u8) {
    line.push('%');
    for digit in [byte >> 4, byte & 15] {
        line.push(HEX.get(usize::from(digit)).copied().map_or('0', char::from));
    }
}

/// Append `bytes`; those that may not stay become `%XX`.
#[inline]
fn push(line: &mut String, bytes: &[u8], stays: impl Fn(u8) -> bool) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = rest.iter().position(|&byte| !stays(byte)).unwrap_or(rest.len());
        let (safe, behind) = rest.split_at(length);
        // The result is ASCII, always.
        line.push_str(std::str::from_utf8(safe).unwrap_or_default());
        let Some((&byte, behind)) = behind.split_first() else { return };
        push_percent(line, byte);
        rest = behind;
    }
}

/// Visible ASCII and the space, but for the quotation mark and the backslash.
#[inline]
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// Append text.
pub(super) fn push_text(line: &mut String, bytes: &[u8]) {
    push(line, bytes, is_plain);
}

/// Append text that has no spaces.
pub(super) fn push_word(line: &mut String, bytes: &[u8]) {
    push(line, bytes, |byte| byte != b' ' && is_plain(byte));
}

/// `urllib.parse.quote`: letters, digits and `_.-~/` stay.
pub(super) fn push_path(line: &mut String, path: &str) {
    push(line, path.as_bytes(), |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'~' | b'/')
    });
}

/// The inside of a JSON string, in ASCII; bytes that are not UTF-8 become `%XX`.
pub(super) fn push_json(line: &mut String, bytes: &[u8]) {
    if bytes.iter().copied().all(is_plain) {
        return push_text(line, bytes);
    }
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            push_json_character(line, character);
        }
        for &byte in chunk.invalid() {
            push_percent(line, byte);
        }
    }
}

#[inline]
fn push_json_character(line: &mut String, character: char) {
    match character {
        '"' => line.push_str("\\\""),
        '\\' => line.push_str("\\\\"),
        ' '..='~' => line.push(character),
        '\n' => line.push_str("\\n"),
        '\r' => line.push_str("\\r"),
        '\t' => line.push_str("\\t"),
        '\u{8}' => line.push_str("\\b"),
        '\u{c}' => line.push_str("\\f"),
        _ => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(line, "\\u{unit:04x}");
            }
        }
    }
}
