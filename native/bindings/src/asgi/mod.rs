//! One request and its response: what an application is called with, gets and sends. No transport, no version of HTTP: the
//! other side is a [`Stream`](stream::Stream).

pub(crate) mod access;
pub(crate) mod awaitable;
pub(crate) mod conversation;
pub(crate) mod cycle;
pub(crate) mod exchange;
pub(crate) mod extension;
pub(crate) mod fields;
pub(crate) mod gate;
pub(crate) mod host;
pub(crate) mod identity;
pub(crate) mod loan;
pub(crate) mod message;
mod mounts;
mod parking;
pub(crate) mod peer;
pub(crate) mod refused;
mod request;
pub(crate) mod runner;
pub(crate) mod scope;
pub(crate) mod send;
pub(crate) mod stream;
pub(crate) mod tracing;
pub(crate) mod write_capacity;
