//! One socket: bytes in, bytes out, time. Which protocol is spoken on it is known by its [`Handler`] alone.
//!
//! ```text
//! event loop ──watches one descriptor──▶ Reactor ──turn──▶ Listening ──accept──▶ Socket ──▶ Handler
//!                                                  └─────▶ Socket (ready, first come first served)
//! ```
//!
//! TCP and Unix sockets of Linux are accepted, read and written here, encrypted or not; the loop runs tasks and timers. Elsewhere,
//! and wherever somebody else has made a connection, its transport serves: a [`Carrier`] is either.

pub(crate) mod acceptor;
pub(crate) mod carrier;
pub(crate) mod handler;
mod output;
pub(crate) mod reactor;
mod registry;
mod share;
pub(crate) mod socket;
mod sys;
mod tls;
pub(crate) mod transport;

pub(crate) use carrier::Carrier;
pub(crate) use handler::Handler;
pub(crate) use reactor::Reactor;
pub(crate) use socket::Socket;
