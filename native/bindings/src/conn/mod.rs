//! One socket: bytes in, bytes out, time. Which protocol is spoken on it is known by its [`Handler`](handler::Handler) alone.
//!
//! ```text
//! event loop ──watches one descriptor──▶ Reactor ──turn──▶ Listening ──accept──▶ Socket ──▶ Handler
//!                                                  └─────▶ Socket (ready, first come first served)
//! ```
//!
//! TCP and Unix sockets of Linux are accepted, read and written here, encrypted or not; the loop runs tasks and timers. Elsewhere,
//! and wherever somebody else has made a connection, its transport serves: a [`Carrier`](carrier::Carrier) is either.

pub(crate) mod acceptor;
pub(crate) mod buffers;
pub(crate) mod carried;
pub(crate) mod carrier;
pub(crate) mod deadline;
pub(crate) mod ends;
pub(crate) mod grace;
pub(crate) mod handler;
pub(crate) mod hub;
mod output;
mod preface;
pub(crate) mod reactor;
pub(crate) mod reader;
mod registry;
mod share;
pub(crate) mod socket;
mod sys;
mod tls;
pub(crate) mod transport;
pub(crate) mod tunnel;
mod visit;
