//! HTTP/3 (RFC 9114), from the side of a server. QUIC is the caller's: its streams, their order and their flow control.
//!
//! ```text
//!   bytes of a stream ──▶ Connection ── receive ──▶ Event     Request, Data, Reset …: each about a StreamId
//!                           │   ▲
//!                           │   └── start_response, body, trailers ─ append to the output of a stream
//!                           ├── turn, sent ──▶ whose output is written next
//!                           └── output, written ──▶ bytes of the server's own three streams
//! ```
//!
//! The caller reports each event of QUIC to its [`Connection`], which answers with the next actions:
//!
//! | QUIC | call |
//! |---|---|
//! | the connection is made | [`Connection::new`]; open three unidirectional streams, one for each [`Channel`] |
//! | the client opens a bidirectional stream | [`open`](Connection::open), which gives its [`StreamId`]; keep that with the stream |
//! | bytes of it, or its end | [`receive`](Connection::receive), until it says [`Event::NeedMore`] |
//! | the client resets it, or stops its response | [`reset_by_client`](Connection::reset_by_client), [`stopped_by_client`](Connection::stopped_by_client) |
//! | the client opens a unidirectional stream | [`UniStream::default`]; keep that with the stream |
//! | bytes of it, or its end; it is reset | [`receive_uni`](Connection::receive_uni), [`reset_uni`](Connection::reset_uni) |
//! | the client stops one of the server's three | [`stopped_own`](Connection::stopped_own) |
//! | there may be room in the server's three | [`output`](Connection::output) and [`written`](Connection::written), after each group of calls |
//! | there may be room in others | [`turn`](Connection::turn) and [`sent`](Connection::sent), for the streams that are [`ready`](Connection::ready) |
//! | all output of a response is written | end the stream of QUIC, then [`complete`](Connection::complete) |
//!
//! All bytes that the server sends on a stream, heads, frames of bodies and trailers, are one sequence, which the caller
//! keeps per stream: the methods of a response append the head of a frame, or a whole one, and the caller appends the pieces
//! of a body behind their heads.
//!
//! ```text
//!   stream:  open ──▶ Head ── HEADERS ──▶ Open ── HEADERS ──▶ Trailers ── end ──▶ Ended      the client's half
//!                       │                  └── end ─────────────────────────────────▲
//!                       └── refused, reset, or no longer wanted ──▶ Dropped
//!
//!            Awaiting ── finish_head ──▶ Body ── the last piece, or trailers ──▶ Ended       the server's half
//!
//!            live ── Event::Reset, reset, complete on both halves ──▶ gone ── release ──▶ free
//! ```
//!
//! Where no stream waits for a turn, output can be written at once; `sent` says so as well.
//!
//! A field section that refers to entries which have not come yet is blocked: [`Event::Blocked`] says that the rest of the
//! input must be kept and given again after [`Event::Unblocked`], which comes from the client's QPACK encoder stream.
//!
//! ```
//! use wire::{Limits, h3};
//!
//! let (limits, mut scratch, mut out) = (Limits::default(), h3::Scratch::default(), Vec::new());
//! let mut connection = h3::Connection::<()>::new(h3::Settings::default());
//! let stream = connection.open(0).unwrap().unwrap();
//! // HEADERS: GET https://a/
//! let input = b"\x01\x08\0\0\xd1\xd7\x50\x01a\xc1";
//! let progress = connection.receive(stream, input, true, &mut scratch, &limits);
//! assert_eq!(progress.event, h3::Event::Request { stream, end: true });
//! assert_eq!(scratch.head().path(), b"/");
//!
//! let mut head = connection.start_response(&mut scratch, stream, 200)?;
//! head.field(b"content-type", b"text/plain")?;
//! connection.finish_head(&mut out, &mut scratch, head, false)?;
//! assert!(connection.body(&mut out, stream, 2, true)?);
//! out.extend_from_slice(b"hi");
//! assert!(out.ends_with(b"\0\x02hi"));
//! assert_eq!(connection.complete(stream), None);
//! connection.release(stream);
//! # Ok::<(), wire::AppError>(())
//! ```

mod close;
mod connection;
mod control;
mod error;
mod event;
mod frame;
mod receive;
mod response;
mod settings;
mod streams;
mod uni;

pub use crate::fields::{Defaults, Head, Item, Key, Scratch};
pub use crate::priority::Priority;
pub use connection::{Channel, Connection};
pub use error::ErrorCode;
pub use event::{Event, Failure, Progress};
pub use response::Turn;
pub use settings::Settings;
pub use streams::{ResponseHead, StreamId};
pub use uni::UniStream;
