//! WebSocket (RFC 6455) with permessage-deflate (RFC 7692), from the side of a server.
//!
//! One [`Handshake`], then one [`Connection`] per peer, driven as [`h1::Connection`](crate::h1::Connection) is:
//!
//! - **Read**: [`poll`](Connection::poll) with all bytes that have arrived and are not consumed. A message of one frame
//!   that has arrived as a whole is not copied; a part of one is kept here, unmasked, inflated and checked.
//! - **Write**: [`message`](Connection::message), [`ping`](Connection::ping), [`pong`](Connection::pong),
//!   [`close`](Connection::close) append to a buffer of the caller's; several appended frames can be one write.
//! - **End**: [`Event::Close`] and [`Event::Failed`] come behind the messages before them. The server says `close` when it
//!   has answered those.
//!
//! Deadlines, and answering pings, are the caller's. A [`StreamPool`] serves all connections of a thread; between two messages a
//! connection has nothing of it, but for the stream that compresses ([`Connection::release`] takes that as well).
//!
//! ```
//! use wire::ws::{Connection, Event, Kind, Limits, StreamPool};
//!
//! let (limits, mut pool, mut connection) = (Limits::default(), StreamPool::default(), Connection::new(None));
//! let mut input = *b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
//! let progress = connection.poll(&mut input, &mut pool, &limits);
//! let Event::Message { kind: Kind::Text, payload } = progress.event else { panic!() };
//! assert_eq!(payload.of(&input), b"Hello");
//!
//! let mut out = Vec::new();
//! connection.message(&mut out, Kind::Text, payload.of(&input), &mut pool)?;
//! connection.close(&mut out, 1000, "")?;
//! assert_eq!(out, b"\x81\x05Hello\x88\x02\x03\xe8");
//! # Ok::<(), wire::ws::SendError>(())
//! ```

pub mod close;
pub mod connection;
pub mod deflate;
pub mod event;
pub mod failure;
pub mod frame;
pub mod handshake;
pub mod limits;
pub mod mask;
mod message;
mod offer;
mod utf8;

pub use close::{NO_CODE, is_close_code, truncate_reason};
pub use connection::{Connection, Prepared, SendError};
pub use deflate::{Agreement, Settings, StreamPool};
pub use event::{Event, Kind, Payload, Progress};
pub use failure::Failure;
pub use frame::FrameHead;
pub use handshake::{Answer, Handshake};
pub use limits::Limits;
