//! HTTP/2 (RFC 9113), from the side of a server: so far its frames, and the compression of header fields.

pub mod frame;
pub mod hpack;
