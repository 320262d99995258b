//! The Python module `uvicorn._native`: asyncio protocols over the sans-IO crate `wire`.
//!
//! Table of contents, nothing else. `server` is what the connections of one event loop share, `conn` is one socket, `http`
//! one connection and one request, `awaitable` is what `receive()` and `send()` return; `ffi` is the only file that may be
//! unsafe.

mod access;
mod awaitable;
mod clock;
mod conn;
mod connections;
mod error;
mod ffi;
mod http;
mod level;
mod line;
mod names;
mod orphan;
mod pool;
mod server;
mod settings;
mod task;

/// Native HTTP/1.1 for uvicorn. Protocol objects belong to the thread of their event loop.
#[pyo3::pymodule(gil_used = false)]
#[pyo3(name = "_native")]
mod native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::awaitable::{Call, Callable};
    #[pymodule_export]
    use crate::conn::acceptor::Listener;
    #[pymodule_export]
    use crate::conn::reactor::Poller;
    #[pymodule_export]
    use crate::conn::transport::{Transport, TransportSocket};
    #[pymodule_export]
    use crate::http::cycle::RequestResponseCycle;
    #[pymodule_export]
    use crate::http::extension::FileSink;
    #[pymodule_export]
    use crate::http::protocol::{Factory, HTTPProtocol};
    #[pymodule_export]
    use crate::orphan::end_with_pipe;
    #[pymodule_export]
    use crate::server::Server;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::error::keep_panics();
        crate::ffi::install_slots(module.py())
    }
}
