//! Sockets of TCP and Unix, accepted, read and written here, encrypted or not; Linux only. The loop runs tasks and timers.
//!
//! ```text
//! event loop ──watches one descriptor──▶ Reactor ──turn──▶ Listening ──accept──▶ Socket ──▶ Handler
//!                                                  └─────▶ Socket (ready, first come first served)
//! ```

pub(crate) mod acceptor;
mod address;
mod carrier;
mod opening;
mod output;
mod preface;
pub(crate) mod reactor;
mod registry;
mod share;
mod shown;
pub(crate) mod slot;
pub(crate) mod socket;
mod states;
mod sys;
pub(crate) mod tls;
pub(crate) mod transport;
mod who;
