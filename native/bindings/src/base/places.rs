//! Where metrics have their places.
//!
//! Written by scripts/sync-settings from uvicorn/metrics/page.py. Do not edit.

#![allow(dead_code, reason = "some are Python's")]
#![allow(clippy::doc_markdown, reason = "these texts are for people")]

/// Classes of statuses, which are a row.
pub(crate) const STATUS_CLASSES: usize = 6;
/// The row of methods that have none of their own.
pub(crate) const OTHER_METHOD: usize = 9;
/// Buckets of a histogram, behind which the sum of all that was observed has its place, in nanoseconds.
pub(crate) const BUCKETS: usize = 15;
/// Certificates that have a place; further ones are not exported.
pub(crate) const MOST_CERTIFICATES: usize = 32;
/// Requests that have ended: a row for each method, and in it a place for each class of statuses.
pub(crate) const REQUESTS: usize = 0;
/// The histogram of requests: from the head to the end of the response.
pub(crate) const DURATION: usize = 60;
/// The histogram of the time from noticing a request's bytes to calling its application.
pub(crate) const QUEUE_WAIT: usize = 76;
/// The histogram of the event loop's delay of due callbacks.
pub(crate) const LOOP_LAG: usize = 92;
/// Requests that have begun.
pub(crate) const BEGUN: usize = 108;
/// Requests that have ended.
pub(crate) const ENDED: usize = 109;
/// Connections that a protocol has begun to serve.
pub(crate) const CONNECTIONS_OPENED: usize = 110;
/// Protocols whose connection has closed.
pub(crate) const CONNECTIONS_CLOSED: usize = 111;
/// Connections that were upgraded to WebSocket, which is a second protocol on them.
pub(crate) const UPGRADED: usize = 112;
/// Upgraded connections that have closed.
pub(crate) const SESSIONS_CLOSED: usize = 113;
/// WebSockets that applications have accepted.
pub(crate) const ACCEPTED: usize = 114;
/// Messages that WebSockets have received.
pub(crate) const MESSAGES_RECEIVED: usize = 115;
/// Messages that applications have sent to WebSockets.
pub(crate) const MESSAGES_SENT: usize = 116;
/// Bytes that were received, decrypted.
pub(crate) const BYTES_RECEIVED: usize = 117;
/// Bytes that were given to the network, before encryption.
pub(crate) const BYTES_SENT: usize = 118;
/// Requests that have begun while others of their connection were being answered.
pub(crate) const CONCURRENT: usize = 119;
/// Requests that have ended while others of their connection went on.
pub(crate) const CONCURRENT_ENDED: usize = 120;
/// Connections that were refused, because their address had too many.
pub(crate) const REFUSED: usize = 121;
/// Connections that were refused, because their PROXY header was missing or malformed.
pub(crate) const NO_PROXY_HEADER: usize = 122;
/// Nanoseconds that the connection being served has waited: a note of the native core to itself.
pub(crate) const READ_DELAY: usize = 123;
/// When each certificate in use expires, in seconds since the epoch: no sum; 0 is unknown.
pub(crate) const CERTIFICATES: usize = 124;
/// Requests that `limit_active_requests` has admitted.
pub(crate) const ADMITTED: usize = 156;
/// Admitted requests that have ended.
pub(crate) const RELEASED: usize = 157;
/// Requests that were queued for admission.
pub(crate) const QUEUED: usize = 158;
/// Queued requests that have stopped waiting.
pub(crate) const UNQUEUED: usize = 159;
/// Requests that were refused, by reason: a place for each `ShedReason`.
pub(crate) const SHED: usize = 160;
/// Sum of the increases of the limit, which begins at 0.
pub(crate) const LIMIT_RAISED: usize = 165;
/// Sum of the decreases of the limit.
pub(crate) const LIMIT_LOWERED: usize = 166;
/// Requests that have given their place back, because they waited for their clients.
pub(crate) const PARKED: usize = 167;
/// Parked requests that no longer wait, neither for their clients nor for a place.
pub(crate) const UNPARKED: usize = 168;
/// Bytes by which the data held for clients has grown between samples.
pub(crate) const QUEUED_BYTES: usize = 169;
/// Bytes by which the data held for clients has shrunk between samples.
pub(crate) const TAKEN_BYTES: usize = 170;
/// Calls of the application that were cancelled because their clients had disconnected.
pub(crate) const CANCELLED: usize = 171;
/// Sampled spans of `otel_endpoint` that have ended; written by its thread alone, as the next.
pub(crate) const SPANS: usize = 172;
/// Those of them that the collector has not got.
pub(crate) const SPANS_DROPPED: usize = 173;
/// Connections that were accepted natively and begin with a TLS handshake.
pub(crate) const HANDSHAKES_BEGUN: usize = 174;
/// Handshakes of TLS 1.2, or of an earlier version; of native sockets, as the next.
pub(crate) const TLS12_HANDSHAKES: usize = 175;
/// Those that have resumed a session.
pub(crate) const TLS12_RESUMED: usize = 176;
/// Handshakes of TLS 1.3.
pub(crate) const TLS13_HANDSHAKES: usize = 177;
/// Those that have resumed a session.
pub(crate) const TLS13_RESUMED: usize = 178;
/// Handshakes that have taken too long; the next are other reasons why one has failed.
pub(crate) const HANDSHAKE_TIMEOUTS: usize = 179;
/// The client has closed the connection.
pub(crate) const HANDSHAKES_CLOSED: usize = 180;
/// The client has no version of TLS that is served.
pub(crate) const HANDSHAKES_OF_OTHER_VERSIONS: usize = 181;
/// The client has no cipher suite, group or signature algorithm that is served.
pub(crate) const HANDSHAKES_WITHOUT_PARAMETERS: usize = 182;
/// The certificate of the client is missing, or was not accepted.
pub(crate) const HANDSHAKES_WITHOUT_CERTIFICATE: usize = 183;
/// The client has sent an alert: most do not accept our certificate.
pub(crate) const HANDSHAKE_ALERTS: usize = 184;
/// What the client has sent is not TLS.
pub(crate) const HANDSHAKES_NOT_TLS: usize = 185;
/// The client has sent malformed or unexpected messages, most of the time.
pub(crate) const OTHER_HANDSHAKE_FAILURES: usize = 186;
/// Connections that were served by HTTP/2.
pub(crate) const HTTP2_OPENED: usize = 187;
/// Those of them that have closed.
pub(crate) const HTTP2_CLOSED: usize = 188;
/// Connections that were served by HTTP/3.
pub(crate) const HTTP3_OPENED: usize = 189;
/// Those of them that have closed.
pub(crate) const HTTP3_CLOSED: usize = 190;
/// Datagrams that have come; the numbers from here to `EARLY_REFUSED` are those of QUIC.
pub(crate) const UDP_RECEIVED: usize = 191;
/// Datagrams that the kernel has taken.
pub(crate) const UDP_SENT: usize = 192;
/// Bytes of the datagrams that have come.
pub(crate) const UDP_BYTES_RECEIVED: usize = 193;
/// Bytes of those that the kernel has taken.
pub(crate) const UDP_BYTES_SENT: usize = 194;
/// Handshakes that are complete.
pub(crate) const QUIC_HANDSHAKES: usize = 195;
/// Handshakes that have failed, those of clients that have disappeared included.
pub(crate) const QUIC_HANDSHAKES_FAILED: usize = 196;
/// New clients that had to come again with a token.
pub(crate) const QUIC_RETRIES: usize = 197;
/// New clients that were refused: there are too many, their token is not valid, or the worker ends.
pub(crate) const QUIC_REFUSED: usize = 198;
/// Answers to clients of other versions of QUIC.
pub(crate) const QUIC_VERSIONS_OFFERED: usize = 199;
/// Stateless resets: answers to packets of connections that no longer exist.
pub(crate) const QUIC_RESETS_SENT: usize = 200;
/// Packets that clients have not acknowledged in time.
pub(crate) const QUIC_LOST: usize = 201;
/// Connections that have gone on from another address of the client.
pub(crate) const QUIC_MOVED: usize = 202;
/// Connections whose early data was read.
pub(crate) const EARLY_ACCEPTED: usize = 203;
/// Requests in early data that were refused by 425.
pub(crate) const EARLY_REFUSED: usize = 204;
/// The number of places.
pub(crate) const PLACES: usize = 205;
/// Nanoseconds up to which each bucket of a histogram counts.
pub(crate) const BOUNDS: [u64; 14] = [
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];
