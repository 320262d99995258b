//! One HTTP/2 connection, between `wire`, a carrier of bytes and the exchanges on it.

pub(crate) mod connection;
pub(crate) mod core;
mod deadline;
mod events;
mod input;
mod output;
mod queue;
mod refusal;
mod response;
mod states;
mod stream;
mod tunnel;
