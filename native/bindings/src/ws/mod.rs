//! One WebSocket, between `wire`, a carrier of bytes and the application that it is opened for.

mod application;
mod broadcast;
mod closing;
pub(crate) mod core;
mod events;
mod handshake;
mod input;
mod log;
mod output;
pub(crate) mod session;
mod states;
mod times;
mod waits;
