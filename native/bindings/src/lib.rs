//! The Python module `uvicorn._native`: asyncio protocols over the sans-IO crate `wire`.
//!
//! Table of contents, nothing else. Rooms, each of which knows those below it only:
//!
//! ```text
//! http3 · protocol · version · websocket · cores · heads    the objects that Python sees
//! h3                  HTTP/3: between `wire`, `udp` and `asgi`
//! udp                 QUIC connections over UDP sockets
//! h1 · h2 · ws        HTTP/1.1 · HTTP/2 · WebSocket: between `wire`, `conn` and `asgi`
//! tcp                 sockets, which carry connections
//! streams             what connections of several streams share
//! asgi · conn         one request · one connection; neither knows of the other
//! base                Python objects, the event loop, buffers; `base::ffi` alone may be unsafe
//! ```

mod asgi;
mod base;
mod conn;
mod cores;
mod h1;
mod h2;
#[cfg(target_os = "linux")]
mod h3;
mod heads;
#[cfg(target_os = "linux")]
mod http3;
mod protocol;
mod streams;
mod tcp;
#[cfg(target_os = "linux")]
mod udp;
mod version;
mod websocket;
mod ws;

/// Native HTTP/1.1 and HTTP/2 for uvicorn. Protocol objects belong to the thread of their event loop.
#[pyo3::pymodule(gil_used = false)]
#[pyo3(name = "_native")]
mod native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::asgi::awaitable::{Call, Callable};
    #[pymodule_export]
    use crate::asgi::cycle::RequestResponseCycle;
    #[pymodule_export]
    use crate::asgi::extension::FileSink;
    #[pymodule_export]
    use crate::asgi::tracing::encode_span;
    #[pymodule_export]
    use crate::base::allocations::AllocationSampler;
    #[pymodule_export]
    use crate::base::current_span::SpanFields;
    #[pymodule_export]
    use crate::base::end_timer::{end_after_signals, end_in};
    #[pymodule_export]
    use crate::base::memory::keep_freed_memory;
    #[pymodule_export]
    use crate::base::orphan::end_with_pipe;
    #[pymodule_export]
    use crate::base::probe::ProbeResponder;
    #[pymodule_export]
    use crate::base::pulse::beat;
    #[pymodule_export]
    use crate::base::queued_bytes::{held_bytes, limit_held_bytes};
    #[pymodule_export]
    use crate::base::waiter::Waiter;
    #[pymodule_export]
    use crate::base::watchdog::Watchdog;
    #[pymodule_export]
    use crate::cores::Cores;
    #[pymodule_export]
    use crate::heads::{FieldList, HeadReader};
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::http3::HTTP3Listener;
    #[pymodule_export]
    use crate::protocol::{Factory, HTTPProtocol};
    #[pymodule_export]
    use crate::tcp::acceptor::Listener;
    #[pymodule_export]
    use crate::tcp::reactor::Poller;
    #[pymodule_export]
    use crate::tcp::tls::config::TLSConfig;
    #[pymodule_export]
    use crate::tcp::transport::{Transport, TransportSocket};
    #[pymodule_export]
    use crate::websocket::WebSocketProtocol;

    /// The hash of its sources (`native/fingerprint.py`); empty if cargo was not called by `setup.py`.
    #[pymodule_export]
    const SOURCES: &str = match option_env!("UVICORN_NATIVE_SOURCES") {
        Some(sources) => sources,
        None => "",
    };

    /// What encrypts for rustls; empty where there is no rustls.
    #[pymodule_export]
    #[cfg(target_os = "linux")]
    const TLS_PROVIDER: &str = tls::PROVIDER;
    #[pymodule_export]
    #[cfg(not(target_os = "linux"))]
    const TLS_PROVIDER: &str = "";

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::base::panic::keep_panics();
        crate::tcp::acceptor::recognise_by(crate::protocol::recognise);
        crate::conn::handler::recognise_successors_by(crate::websocket::recognise);
        crate::streams::tunnel::open_websockets_by(crate::websocket::open_on_stream);
        // The server reports unknown names of shortcuts.
        let _ = crate::base::shortcuts::Shortcuts::chosen(module.py());
        crate::asgi::awaitable::install_slots(module.py())
    }
}
