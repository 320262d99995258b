//! One connection, whatever carries it: its ends, its deadlines, and its waiting output. Only its
//! [`Handler`](handler::Handler) knows the protocol, and only its [`Carrier`](carrier::Carrier) knows the means: a
//! socket of ours (`tcp`), a stream of another connection, or a transport of the event loop, if that has made the
//! connection.

pub(crate) mod buffers;
pub(crate) mod carried;
pub(crate) mod carrier;
pub(crate) mod deadline;
pub(crate) mod ends;
pub(crate) mod grace;
pub(crate) mod handler;
pub(crate) mod hub;
pub(crate) mod loop_transport;
pub(crate) mod output;
pub(crate) mod reader;
pub(crate) mod stream_transport;
