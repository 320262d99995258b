//! HTTP/2 (RFC 9113), from the side of a server: so far its compression of header fields.

pub mod hpack;
