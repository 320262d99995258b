//! HTTP/1.1 and 1.0, as RFC 9110 and 9112 describe them, from the side of a server.
//!
//! ```text
//!                 request                                     response
//!
//!              ┌─▶ Head ──────────┐                    ┌─▶ Idle
//!              │    │ a body      │ none               │    │ a request is in hand
//!              │    ▼             ▼                    │    ▼
//!              │   Body ─────▶ Complete                │  Awaiting ──▶ refuse ──▶ (closed)
//!              │    │ response     │                   │    │ head
//!              │    ▼ ended first  │                   │    ▼
//!              │  Discard ──┐      │                   │  Body(framing)
//!              │            ▼      ▼                   │    │ last byte
//!              └──────── both sides done ──────────────┴─ Complete
//!                           │ not persistent, or too much left to discard
//!                           ▼
//!                        Closed
//! ```
//!
//! One request at a time: bytes of the next one stay with the caller until the response before it is complete.

pub mod body;
pub mod connection;
pub mod framing;
pub mod request;
pub mod response;
pub mod sections;
pub mod target;

pub use body::{Chunked, Decoded, Decoder};
pub use connection::{Awaits, Connection, Event, Progress};
pub use framing::BodyLength;
pub use request::{Head, Status, Version};
pub use response::{BodyWriter, Framing, HeadWriter, Trailers};
pub use sections::Sections;
pub use target::{Authority, Form, Target};

/// The buffer into which connections of one thread parse their heads, one after the other.
pub type Scratch = crate::scratch::Scratch<Head>;
