//! Close frames: their codes and reasons (RFC 6455 sections 5.5.1 and 7.4).

use std::ops::Range;
use std::str::from_utf8;

use crate::ws::failure::Failure;
use crate::ws::limits::table::MAX_CLOSE_REASON;

/// Stands for a close frame without a code (RFC 6455 section 7.1.5). It is never in a frame.
pub const NO_CODE: u16 = 1005;
/// Bytes of the longest reason.
pub const MAX_REASON: usize = MAX_CLOSE_REASON;

/// Whether a close frame may carry this code: a registered one, unless it only names how a connection ended, or one of
/// 3000 to 4999. <https://www.iana.org/assignments/websocket/websocket.xhtml>
pub const fn is_close_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// As much of a reason as fits into a close frame, in whole characters.
pub fn truncate_reason(reason: &str) -> &str {
    let end = (0..=MAX_REASON.min(reason.len())).rev().find(|&end| reason.is_char_boundary(end));
    reason.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// The code of a client's close frame, and the range of the reason in its payload.
pub(crate) fn parse(payload: &[u8]) -> Result<(u16, Range<usize>), Failure> {
    let (code, reason) = match payload {
        [] => return Ok((NO_CODE, 0..0)),
        [_] => return Err(Failure::CloseTooShort),
        &[a, b, ref reason @ ..] => (u16::from_be_bytes([a, b]), reason),
    };
    if !is_close_code(code) {
        return Err(Failure::CloseCode);
    }
    from_utf8(reason).map_err(|_| Failure::CloseReason)?;
    Ok((code, 2..payload.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W4
    #[test]
    fn only_codes_that_may_be_sent_are_taken() {
        let sent: Vec<u16> = (0..=u16::MAX).filter(|&code| parse(&code.to_be_bytes()).is_ok()).collect();
        assert!(sent.starts_with(&[1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000]));
        assert_eq!((sent.len(), sent.last()), (12 + 2000, Some(&4999)));
    }

    #[test]
    fn a_close_frame_has_no_code_or_one_with_a_reason() {
        assert_eq!(parse(b""), Ok((NO_CODE, 0..0)));
        assert_eq!(parse(b"\x03"), Err(Failure::CloseTooShort));
        assert_eq!(parse(b"\x03\xe8"), Ok((1000, 2..2)));
        assert_eq!(parse(b"\x03\xe8bye"), Ok((1000, 2..5)));
        assert_eq!(parse(b"\x03\xe8\xff"), Err(Failure::CloseReason));
        assert_eq!(parse(b"\x03\xed\xff"), Err(Failure::CloseCode));
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(truncate_reason("short"), "short");
        assert_eq!(truncate_reason(&"a".repeat(124)), "a".repeat(123));
        assert_eq!(truncate_reason(&"\u{20ac}".repeat(42)), "\u{20ac}".repeat(41));
        assert_eq!(truncate_reason(&format!("a{}", "\u{20ac}".repeat(42))), format!("a{}", "\u{20ac}".repeat(40)));
    }
}
