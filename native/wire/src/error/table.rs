//! Why a request is refused.
//!
//! Written by scripts/sync-settings from uvicorn/rules/refusals.py. Do not edit.

#![allow(clippy::doc_markdown, reason = "these texts are for people")]

/// A reason not to serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// 400: more than n empty lines in front of a request line.
    EmptyLines,
    /// 400: bare CR or LF in front of a request line.
    LineBegin,
    /// 400: malformed method.
    Method,
    /// 501: method longer than n bytes.
    MethodTooLong,
    /// 400: malformed request target.
    Target,
    /// 400: fragment in the request target.
    TargetFragment,
    /// 400: malformed percent-encoding in the request target.
    TargetPercent,
    /// 414: request target longer than limit_request_target (n).
    TargetTooLong,
    /// 414: request line longer than limit_request_head (n bytes).
    LineTooLong,
    /// 400: invalid host or port in the request target.
    TargetAuthority,
    /// 400: malformed HTTP version.
    Version,
    /// 400: HTTP version below 1.0.
    VersionTooOld,
    /// 505: HTTP version above 1.
    VersionUnsupported,
    /// 400: CONNECT without host and port.
    ConnectTarget,
    /// 501: CONNECT is not implemented.
    Connect,
    /// 421: https requested in clear text by a peer outside forwarded_allow_ips.
    Misdirected,
    /// 431: request head larger than limit_request_head (n bytes).
    HeadTooLarge,
    /// 408: head not complete within timeout_request_head (n s).
    HeadTimeout,
    /// 400: bare CR at the end of the header section.
    HeadEnd,
    /// 431: more header fields than limit_request_fields (n).
    TooManyFields,
    /// 400: malformed field name.
    FieldName,
    /// 400: control character in a field value.
    FieldValue,
    /// 400: bare CR in a field value.
    FieldEnd,
    /// 400: missing Host.
    HostMissing,
    /// 400: more than one Host.
    HostRepeated,
    /// 400: malformed Host.
    Host,
    /// 417: unknown expectation.
    Expectation,
    /// 425: early data, which may be a replay (http3_early_data, safe methods).
    EarlyData,
    /// 400: malformed Content-Length.
    Length,
    /// 400: more than one Content-Length.
    LengthRepeated,
    /// 400: Content-Length beside Transfer-Encoding.
    LengthBesideCoding,
    /// 400: Transfer-Encoding in an HTTP/1.0 request.
    CodingTooEarly,
    /// 400: malformed Transfer-Encoding.
    Coding,
    /// 400: chunked must be the last transfer coding, once.
    CodingOrder,
    /// 501: unsupported transfer coding.
    CodingUnsupported,
    /// 413: request body larger than limit_request_body (n bytes).
    BodyTooLarge,
    /// 408: body not complete within timeout_request_body (n s).
    BodyTimeout,
    /// 400: malformed chunk size.
    ChunkSize,
    /// 400: chunk size of more than n digits.
    ChunkSizeTooLong,
    /// 400: chunks add up to more than 64 bits hold.
    ChunkSizeSum,
    /// 400: malformed chunk extension.
    ChunkExtension,
    /// 400: too many chunk extensions.
    ChunkWaste,
    /// 400: chunk size not followed by CR LF.
    ChunkLineEnd,
    /// 400: chunk data not followed by CR LF.
    ChunkEnd,
    /// 400: malformed trailer.
    Trailer,
    /// 431: more trailer fields than limit_request_fields (n).
    TooManyTrailers,
    /// 431: trailer section larger than n bytes.
    TrailersTooLarge,
    /// 405: WebSocket requested with a method other than GET.
    WebsocketMethod,
    /// 505: WebSocket requested with HTTP/1.0.
    WebsocketVersion,
    /// 426: this needs a WebSocket client.
    WebsocketUpgrade,
    /// 400: a WebSocket handshake has no body.
    WebsocketBody,
    /// 400: missing Sec-WebSocket-Version header.
    WebsocketNoProtocolVersion,
    /// 426: unsupported Sec-WebSocket-Version.
    WebsocketProtocolVersion,
    /// 400: missing Sec-WebSocket-Key header.
    WebsocketNoKey,
    /// 400: invalid Sec-WebSocket-Key header.
    WebsocketKey,
    /// 400: invalid Sec-WebSocket-Protocol header.
    WebsocketSubprotocols,
    /// 400: invalid Sec-WebSocket-Extensions header.
    WebsocketExtensions,
}

impl Refusal {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::EmptyLines,
        Self::LineBegin,
        Self::Method,
        Self::MethodTooLong,
        Self::Target,
        Self::TargetFragment,
        Self::TargetPercent,
        Self::TargetTooLong,
        Self::LineTooLong,
        Self::TargetAuthority,
        Self::Version,
        Self::VersionTooOld,
        Self::VersionUnsupported,
        Self::ConnectTarget,
        Self::Connect,
        Self::Misdirected,
        Self::HeadTooLarge,
        Self::HeadTimeout,
        Self::HeadEnd,
        Self::TooManyFields,
        Self::FieldName,
        Self::FieldValue,
        Self::FieldEnd,
        Self::HostMissing,
        Self::HostRepeated,
        Self::Host,
        Self::Expectation,
        Self::EarlyData,
        Self::Length,
        Self::LengthRepeated,
        Self::LengthBesideCoding,
        Self::CodingTooEarly,
        Self::Coding,
        Self::CodingOrder,
        Self::CodingUnsupported,
        Self::BodyTooLarge,
        Self::BodyTimeout,
        Self::ChunkSize,
        Self::ChunkSizeTooLong,
        Self::ChunkSizeSum,
        Self::ChunkExtension,
        Self::ChunkWaste,
        Self::ChunkLineEnd,
        Self::ChunkEnd,
        Self::Trailer,
        Self::TooManyTrailers,
        Self::TrailersTooLarge,
        Self::WebsocketMethod,
        Self::WebsocketVersion,
        Self::WebsocketUpgrade,
        Self::WebsocketBody,
        Self::WebsocketNoProtocolVersion,
        Self::WebsocketProtocolVersion,
        Self::WebsocketNoKey,
        Self::WebsocketKey,
        Self::WebsocketSubprotocols,
        Self::WebsocketExtensions,
    ];

    /// The status to answer with.
    pub const fn status(self) -> u16 {
        match self {
            Self::EmptyLines
            | Self::LineBegin
            | Self::Method
            | Self::Target
            | Self::TargetFragment
            | Self::TargetPercent
            | Self::TargetAuthority
            | Self::Version
            | Self::VersionTooOld
            | Self::ConnectTarget
            | Self::HeadEnd
            | Self::FieldName
            | Self::FieldValue
            | Self::FieldEnd
            | Self::HostMissing
            | Self::HostRepeated
            | Self::Host
            | Self::Length
            | Self::LengthRepeated
            | Self::LengthBesideCoding
            | Self::CodingTooEarly
            | Self::Coding
            | Self::CodingOrder
            | Self::ChunkSize
            | Self::ChunkSizeTooLong
            | Self::ChunkSizeSum
            | Self::ChunkExtension
            | Self::ChunkWaste
            | Self::ChunkLineEnd
            | Self::ChunkEnd
            | Self::Trailer
            | Self::WebsocketBody
            | Self::WebsocketNoProtocolVersion
            | Self::WebsocketNoKey
            | Self::WebsocketKey
            | Self::WebsocketSubprotocols
            | Self::WebsocketExtensions => 400,
            Self::WebsocketMethod => 405,
            Self::HeadTimeout
            | Self::BodyTimeout => 408,
            Self::BodyTooLarge => 413,
            Self::TargetTooLong
            | Self::LineTooLong => 414,
            Self::Expectation => 417,
            Self::Misdirected => 421,
            Self::EarlyData => 425,
            Self::WebsocketUpgrade
            | Self::WebsocketProtocolVersion => 426,
            Self::HeadTooLarge
            | Self::TooManyFields
            | Self::TooManyTrailers
            | Self::TrailersTooLarge => 431,
            Self::MethodTooLong
            | Self::Connect
            | Self::CodingUnsupported => 501,
            Self::VersionUnsupported
            | Self::WebsocketVersion => 505,
        }
    }

    /// Its text, in which `{limit}` stands for a number.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::EmptyLines => "more than {limit} empty lines in front of a request line",
            Self::LineBegin => "bare CR or LF in front of a request line",
            Self::Method => "malformed method",
            Self::MethodTooLong => "method longer than {limit} bytes",
            Self::Target => "malformed request target",
            Self::TargetFragment => "fragment in the request target",
            Self::TargetPercent => "malformed percent-encoding in the request target",
            Self::TargetTooLong => "request target longer than limit_request_target ({limit})",
            Self::LineTooLong => "request line longer than limit_request_head ({limit} bytes)",
            Self::TargetAuthority => "invalid host or port in the request target",
            Self::Version => "malformed HTTP version",
            Self::VersionTooOld => "HTTP version below 1.0",
            Self::VersionUnsupported => "HTTP version above 1",
            Self::ConnectTarget => "CONNECT without host and port",
            Self::Connect => "CONNECT is not implemented",
            Self::Misdirected => "https requested in clear text by a peer outside forwarded_allow_ips",
            Self::HeadTooLarge => "request head larger than limit_request_head ({limit} bytes)",
            Self::HeadTimeout => "head not complete within timeout_request_head ({limit} s)",
            Self::HeadEnd => "bare CR at the end of the header section",
            Self::TooManyFields => "more header fields than limit_request_fields ({limit})",
            Self::FieldName => "malformed field name",
            Self::FieldValue => "control character in a field value",
            Self::FieldEnd => "bare CR in a field value",
            Self::HostMissing => "missing Host",
            Self::HostRepeated => "more than one Host",
            Self::Host => "malformed Host",
            Self::Expectation => "unknown expectation",
            Self::EarlyData => "early data, which may be a replay (http3_early_data, safe methods)",
            Self::Length => "malformed Content-Length",
            Self::LengthRepeated => "more than one Content-Length",
            Self::LengthBesideCoding => "Content-Length beside Transfer-Encoding",
            Self::CodingTooEarly => "Transfer-Encoding in an HTTP/1.0 request",
            Self::Coding => "malformed Transfer-Encoding",
            Self::CodingOrder => "chunked must be the last transfer coding, once",
            Self::CodingUnsupported => "unsupported transfer coding",
            Self::BodyTooLarge => "request body larger than limit_request_body ({limit} bytes)",
            Self::BodyTimeout => "body not complete within timeout_request_body ({limit} s)",
            Self::ChunkSize => "malformed chunk size",
            Self::ChunkSizeTooLong => "chunk size of more than {limit} digits",
            Self::ChunkSizeSum => "chunks add up to more than 64 bits hold",
            Self::ChunkExtension => "malformed chunk extension",
            Self::ChunkWaste => "too many chunk extensions",
            Self::ChunkLineEnd => "chunk size not followed by CR LF",
            Self::ChunkEnd => "chunk data not followed by CR LF",
            Self::Trailer => "malformed trailer",
            Self::TooManyTrailers => "more trailer fields than limit_request_fields ({limit})",
            Self::TrailersTooLarge => "trailer section larger than {limit} bytes",
            Self::WebsocketMethod => "WebSocket requested with a method other than GET",
            Self::WebsocketVersion => "WebSocket requested with HTTP/1.0",
            Self::WebsocketUpgrade => "this needs a WebSocket client",
            Self::WebsocketBody => "a WebSocket handshake has no body",
            Self::WebsocketNoProtocolVersion => "missing Sec-WebSocket-Version header",
            Self::WebsocketProtocolVersion => "unsupported Sec-WebSocket-Version",
            Self::WebsocketNoKey => "missing Sec-WebSocket-Key header",
            Self::WebsocketKey => "invalid Sec-WebSocket-Key header",
            Self::WebsocketSubprotocols => "invalid Sec-WebSocket-Protocol header",
            Self::WebsocketExtensions => "invalid Sec-WebSocket-Extensions header",
        }
    }
}
