//! Why a WebSocket fails.
//!
//! Written by scripts/sync-settings from uvicorn/rules/failures.py. Do not edit.

#![allow(clippy::doc_markdown, reason = "these texts are for people")]

/// A mistake of a client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// 1002: invalid opcode.
    Opcode,
    /// 1002: incorrect masking.
    Masking,
    /// 1002: control frame too long.
    ControlTooLong,
    /// 1002: fragmented control frame.
    ControlFragmented,
    /// 1002: reserved bits must be 0.
    ReservedBits,
    /// 1002: invalid payload length.
    Length,
    /// 1002: unexpected continuation frame.
    ContinuationUnexpected,
    /// 1002: expected a continuation frame.
    ContinuationMissing,
    /// 1008: message in too many small fragments.
    TooManyFragments,
    /// 1009: Message exceeds the maximum size (n bytes).
    TooBig,
    /// 1007: invalid UTF-8 in a text message.
    Text,
    /// 1002: decompression failed.
    Deflate,
    /// 1002: close frame too short.
    CloseTooShort,
    /// 1002: invalid status code.
    CloseCode,
    /// 1007: invalid UTF-8 in the close reason.
    CloseReason,
}

impl Failure {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Opcode,
        Self::Masking,
        Self::ControlTooLong,
        Self::ControlFragmented,
        Self::ReservedBits,
        Self::Length,
        Self::ContinuationUnexpected,
        Self::ContinuationMissing,
        Self::TooManyFragments,
        Self::TooBig,
        Self::Text,
        Self::Deflate,
        Self::CloseTooShort,
        Self::CloseCode,
        Self::CloseReason,
    ];

    /// The code to answer with.
    pub const fn code(self) -> u16 {
        match self {
            Self::Opcode
            | Self::Masking
            | Self::ControlTooLong
            | Self::ControlFragmented
            | Self::ReservedBits
            | Self::Length
            | Self::ContinuationUnexpected
            | Self::ContinuationMissing
            | Self::Deflate
            | Self::CloseTooShort
            | Self::CloseCode => 1002,
            Self::Text
            | Self::CloseReason => 1007,
            Self::TooManyFragments => 1008,
            Self::TooBig => 1009,
        }
    }

    /// Its text, in which `{limit}` stands for a number.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Opcode => "invalid opcode",
            Self::Masking => "incorrect masking",
            Self::ControlTooLong => "control frame too long",
            Self::ControlFragmented => "fragmented control frame",
            Self::ReservedBits => "reserved bits must be 0",
            Self::Length => "invalid payload length",
            Self::ContinuationUnexpected => "unexpected continuation frame",
            Self::ContinuationMissing => "expected a continuation frame",
            Self::TooManyFragments => "message in too many small fragments",
            Self::TooBig => "Message exceeds the maximum size ({limit} bytes)",
            Self::Text => "invalid UTF-8 in a text message",
            Self::Deflate => "decompression failed",
            Self::CloseTooShort => "close frame too short",
            Self::CloseCode => "invalid status code",
            Self::CloseReason => "invalid UTF-8 in the close reason",
        }
    }
}
