//! One HTTP/1.1 connection, between `wire`, a carrier of bytes and the exchanges on it.

pub(crate) mod connection;
pub(crate) mod core;
mod deadline;
mod events;
mod headers;
mod input;
mod output;
mod refusal;
mod request;
mod response;
mod scratch;
mod states;
mod stream;
