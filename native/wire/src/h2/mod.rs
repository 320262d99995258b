//! HTTP/2 (RFC 9113), from the side of a server.
//!
//! ```text
//!   bytes ──▶ Connection ── poll ──▶ Event     Request, Data, Reset …: each about a StreamId of the caller's
//!               │   ▲
//!               │   └── start_response, body, trailers, reset, consume, release
//!               └── fill ──▶ bytes             frames of bodies, from the streams whose turn it is
//! ```
//!
//! A [`Connection`] is driven like that of HTTP/1.1: poll with the input, write the appended output, close on request.
//! Unlike there, many requests are in hand at a time, so events and calls name a stream, and the caller keeps the
//! bodies of responses until [`Connection::fill`] asks for a part of one.
//!
//! ```
//! use wire::{Limits, h2};
//!
//! let (limits, mut scratch, mut out) = (Limits::default(), h2::Scratch::default(), Vec::new());
//! let mut connection = h2::Connection::<()>::new(h2::Settings::default(), &mut out);
//! let input = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\
//!     \0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a";
//! let h2::Event::Request { stream, end: true } = connection.poll(input, &mut out, &mut scratch, &limits).event else {
//!     panic!("a request")
//! };
//! assert_eq!(scratch.head().path(), b"/");
//!
//! let mut head = connection.start_response(&mut scratch, stream, 200)?;
//! head.field(b"content-type", b"text/plain")?;
//! connection.finish_head(&mut out, &mut scratch, head, false)?;
//! connection.body(&mut out, stream, 2, true)?;
//! connection.fill(&mut out, 65_536, |part, out| out.extend_from_slice(&b"hi"[..part.length]));
//! assert!(out.ends_with(b"\0\0\x02\0\x01\0\0\0\x01hi"));
//! connection.release(&mut out, stream);
//! # Ok::<(), wire::AppError>(())
//! ```

mod body;
mod close;
mod connection;
mod event;
mod flow;
pub mod frame;
pub mod hpack;
mod receive;
mod request;
mod send;
mod settings;
mod streams;

pub use crate::fields::{Defaults, Head, Item, Scratch};
pub use crate::priority::Priority;
pub use connection::Connection;
pub use event::{Event, Failure, Progress};
pub use frame::ErrorCode;
pub use send::Part;
pub use settings::Settings;
pub use streams::{ResponseHead, StreamId};
