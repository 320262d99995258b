//! The codes of HTTP/3 and QPACK (RFC 9114 section 8.1, RFC 9204 section 6).

/// Why a connection or a stream ends, as an error code of the application in QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ErrorCode {
    /// `H3_NO_ERROR`
    NoError = 0x100,
    /// `H3_GENERAL_PROTOCOL_ERROR`
    GeneralProtocol = 0x101,
    /// `H3_INTERNAL_ERROR`
    Internal = 0x102,
    /// `H3_STREAM_CREATION_ERROR`
    StreamCreation = 0x103,
    /// `H3_CLOSED_CRITICAL_STREAM`
    ClosedCriticalStream = 0x104,
    /// `H3_FRAME_UNEXPECTED`
    FrameUnexpected = 0x105,
    /// `H3_FRAME_ERROR`
    Frame = 0x106,
    /// `H3_EXCESSIVE_LOAD`
    ExcessiveLoad = 0x107,
    /// `H3_ID_ERROR`
    Id = 0x108,
    /// `H3_SETTINGS_ERROR`
    Settings = 0x109,
    /// `H3_MISSING_SETTINGS`
    MissingSettings = 0x10a,
    /// `H3_REQUEST_REJECTED`: the request was not processed, and can be sent again.
    RequestRejected = 0x10b,
    /// `H3_REQUEST_CANCELLED`
    RequestCancelled = 0x10c,
    /// `H3_REQUEST_INCOMPLETE`
    RequestIncomplete = 0x10d,
    /// `H3_MESSAGE_ERROR`
    Message = 0x10e,
    /// `H3_CONNECT_ERROR`
    Connect = 0x10f,
    /// `H3_VERSION_FALLBACK`
    VersionFallback = 0x110,
    /// `QPACK_DECOMPRESSION_FAILED`
    Decompression = 0x200,
    /// `QPACK_ENCODER_STREAM_ERROR`
    EncoderStream = 0x201,
    /// `QPACK_DECODER_STREAM_ERROR`
    DecoderStream = 0x202,
}

impl ErrorCode {
    /// The number in QUIC.
    pub const fn number(self) -> u64 {
        self as u64
    }

    /// Its name in the RFCs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoError => "H3_NO_ERROR",
            Self::GeneralProtocol => "H3_GENERAL_PROTOCOL_ERROR",
            Self::Internal => "H3_INTERNAL_ERROR",
            Self::StreamCreation => "H3_STREAM_CREATION_ERROR",
            Self::ClosedCriticalStream => "H3_CLOSED_CRITICAL_STREAM",
            Self::FrameUnexpected => "H3_FRAME_UNEXPECTED",
            Self::Frame => "H3_FRAME_ERROR",
            Self::ExcessiveLoad => "H3_EXCESSIVE_LOAD",
            Self::Id => "H3_ID_ERROR",
            Self::Settings => "H3_SETTINGS_ERROR",
            Self::MissingSettings => "H3_MISSING_SETTINGS",
            Self::RequestRejected => "H3_REQUEST_REJECTED",
            Self::RequestCancelled => "H3_REQUEST_CANCELLED",
            Self::RequestIncomplete => "H3_REQUEST_INCOMPLETE",
            Self::Message => "H3_MESSAGE_ERROR",
            Self::Connect => "H3_CONNECT_ERROR",
            Self::VersionFallback => "H3_VERSION_FALLBACK",
            Self::Decompression => "QPACK_DECOMPRESSION_FAILED",
            Self::EncoderStream => "QPACK_ENCODER_STREAM_ERROR",
            Self::DecoderStream => "QPACK_DECODER_STREAM_ERROR",
        }
    }
}
