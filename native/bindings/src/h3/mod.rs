//! One HTTP/3 connection, between `wire`, a QUIC connection and the exchanges on it.

mod carrier;
pub(crate) mod connection;
pub(crate) mod core;
mod deadline;
mod events;
mod input;
mod output;
mod queue;
mod refusal;
mod response;
mod sent;
mod states;
mod stream;
mod tunnel;
