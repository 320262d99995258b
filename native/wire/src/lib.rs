//! Sans-IO HTTP and WebSocket for servers: bytes in, events out, bytes out.
//!
//! No socket, clock, thread, Python object or unsafe block is in here. The owner of those drives one [`h1::Connection`]
//! per peer with four kinds of calls (and a [`h2::Connection`], a [`h3::Connection`] or a [`ws::Connection`] in the same way):
//!
//! - **Read**: [`poll`](h1::Connection::poll) with all bytes that have arrived and are not consumed. It gives one
//!   [`h1::Event`] and how many bytes to drop. Go on until it says `NeedMore`, `Busy`, `Switched` or `Closed`. A complete
//!   request without a body takes one call.
//! - **Write**: [`start_response`](h1::Connection::start_response), fields, [`finish_head`](h1::Connection::finish_head), parts
//!   through [`body`](h1::Connection::body), [`finish`](h1::Connection::finish). All append to a buffer of the caller's and write
//!   nothing themselves. Between two requests nothing is allocated.
//! - **Time**: [`awaits`](h1::Connection::awaits) says what the peer is waited for. When that took too long,
//!   [`refuse`](h1::Connection::refuse) with 408, or just close an idle connection.
//! - **End**: [`receive_eof`](h1::Connection::receive_eof) when the peer has nothing more to send,
//!   [`shutdown`](h1::Connection::shutdown) when the server wants to stop. After `Closed`, close the transport.
//!
//! Events hold ranges, not copies: the [`Span`]s of a [`h1::Head`] are offsets into the input of the poll that said
//! `Request`, and become slices with [`Span::of`]. Copy what must outlive that input.
//!
//! ```
//! use wire::{Limits, h1};
//!
//! let input = b"GET /hello HTTP/1.1\r\nHost: example.com\r\n\r\n";
//! let (limits, mut connection, mut scratch, mut out) =
//!     (Limits::default(), h1::Connection::new(), h1::Scratch::default(), Vec::new());
//! let progress = connection.poll(input, &mut scratch, &limits)?;
//! assert_eq!(progress, h1::Progress { consumed: input.len(), event: h1::Event::Request });
//! assert_eq!(scratch.head().target.path.of(input), b"/hello");
//!
//! let mut response = connection.start_response(&mut out, 200, b"server: wire\r\n")?;
//! response.field(&mut out, b"Content-Type", b"text/plain")?;
//! connection.finish_head(response, &mut out, Some(2))?;
//! connection.body()?.write(&mut out, b"hi")?;
//! connection.finish(&mut out, &limits)?;
//! assert_eq!(out, b"HTTP/1.1 200 OK\r\nserver: wire\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nhi");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Errors
//!
//! [`Error`] is the peer's fault. Reading is over for good; answer with [`refuse`](h1::Connection::refuse) and
//! [`Error::status`], which writes nothing if a response has begun: then abort. [`AppError`] is the application's fault and
//! leaves the output as long as it was; raise it there. No input of either makes this crate panic.
//!
//! # Strictness
//!
//! Where RFC 9110 and 9112 let a recipient repair what it got, this crate refuses: one way to read a message means that no
//! two servers in a row can disagree about where it ends. The outcome never depends on how bytes were cut into reads: the
//! first byte that breaks a rule decides. Work is linear in the bytes, one at a time or all at once, and everything a peer
//! can make grow has a bound in [`Limits`].
//!
//! # Why no HTTP parsing library
//!
//! The heads are tokenised here, because strictness and resuming are hard to add behind another tokeniser: httparse
//! takes bare LF, starts over when bytes were missing, and wants a second pass over its result. It serves the tests as
//! an oracle: it must read every accepted request the same way; and so does h2, whose client checks our output. Nor is
//! there a WebSocket library: ranges of the caller's buffer, failures at the first bad byte and a bound on every stream
//! are as hard to add from outside. General tasks are left to libraries: zlib-rs compresses, `sha1_smol` and `base64ct`
//! answer the handshake.

#![forbid(unsafe_code)]

pub mod budget;
pub mod error;
pub mod fields;
pub mod fingerprint;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod headers;
pub mod limits;
pub mod method;
pub mod otlp;
pub mod priority;
pub mod qpack;
mod scan;
mod scratch;
pub mod status;
#[rustfmt::skip]
pub mod texts;
pub mod trace_context;
pub mod ws;

pub use error::{AppError, Error, Refusal};
pub use h1::Trailers;
pub use headers::{Field, Name, Span};
pub use limits::Limits;
pub use method::Method;
