//! One HTTP/1.1 connection (`protocol`), one request (`cycle`), its scope, and the deadlines of all connections (`idle`).

pub(crate) mod cycle;
pub(crate) mod idle;
pub(crate) mod protocol;
pub(crate) mod scope;
