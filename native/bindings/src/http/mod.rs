//! One HTTP/1.1 connection (`connection`, known to the loop as `protocol`), one request (`cycle`), its scope, the messages
//! of its response, those of extensions, and the deadlines of all connections (`idle`).

pub(crate) mod connection;
pub(crate) mod cycle;
pub(crate) mod extension;
mod headers;
pub(crate) mod idle;
mod loan;
pub(crate) mod message;
pub(crate) mod protocol;
pub(crate) mod scope;
