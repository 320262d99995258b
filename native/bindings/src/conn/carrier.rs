//! What carries a protocol's bytes: a socket of ours, or a transport of the loop's, in the same words.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::ends::Ends;
use super::grace::Pending;
use super::hub::Hub;
use super::socket::Socket;
use super::tunnel::{StreamTransport, Tunnel};
use crate::base::names::Names;

/// The lower side of a protocol.
#[derive(Clone)]
pub(crate) enum Carrier {
    Socket(Rc<Socket>),
    /// An `asyncio.Transport`.
    Transport(Rc<Py<PyAny>>),
    /// A stream of HTTP/2.
    Stream(Rc<dyn Tunnel>),
}

impl Carrier {
    /// Ask who is at its ends; `hub` knows the server's from connections before this one.
    pub(crate) fn ends(&self, py: Python<'_>, hub: &Hub) -> PyResult<Ends> {
        match self {
            Self::Socket(socket) => Ok(Ends {
                client: socket.peer(py)?.into_pyobject(py)?.into_any().unbind(),
                server: hub.server_address(&socket.local(py)?.into_pyobject(py)?)?,
                secure: socket.is_secure(),
                ssl_object: socket.tls_of_client(py),
            }),
            Self::Stream(stream) => Ok(stream.ends(py)),
            Self::Transport(transport) => {
                let utils = py.import("uvicorn.protocols.utils")?;
                let secure = utils.call_method1("is_secure", (&**transport,))?.is_truthy()?;
                let object = || utils.call_method1("tls_of", (&**transport,)).map(Bound::unbind);
                Ok(Ends {
                    client: utils.call_method1("get_remote_addr", (&**transport,))?.unbind(),
                    server: hub.server_address(&utils.call_method1("get_local_addr", (&**transport,))?)?,
                    secure,
                    ssl_object: if secure { Some(object()?).filter(|object| !object.is_none(py)) } else { None },
                })
            }
        }
    }

    /// Whether the bytes that come here are encrypted.
    pub(crate) fn is_encrypted(&self, py: Python<'_>) -> PyResult<bool> {
        match self {
            Self::Socket(socket) => Ok(socket.is_encrypted()),
            Self::Stream(_) => Ok(false),
            Self::Transport(transport) => {
                py.import("uvicorn.protocols.utils")?.call_method1("is_ssl", (&**transport,))?.is_truthy()
            }
        }
    }

    /// What was agreed on by ALPN (RFC 7301), if the connection is encrypted, and anything was.
    pub(crate) fn application_protocol(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let object = match self {
            Self::Socket(socket) => socket.ssl_object().map(|object| object.clone_ref(py)),
            Self::Stream(_) => None,
            Self::Transport(transport) => {
                transport.bind(py).call_method1("get_extra_info", ("ssl_object",))?.extract()?
            }
        };
        object.map_or(Ok(None), |object| object.bind(py).call_method0("selected_alpn_protocol")?.extract())
    }

    /// The transport that it is to Python.
    pub(crate) fn transport(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Socket(socket) => socket.transport(py),
            Self::Stream(stream) => Ok(Py::new(py, StreamTransport::new(stream.clone()))?.into_any()),
            Self::Transport(transport) => Ok(transport.clone_ref(py)),
        }
    }

    /// The end has begun.
    #[inline]
    pub(crate) fn is_closing(&self, py: Python<'_>, names: &Names) -> PyResult<bool> {
        match self {
            Self::Socket(socket) => Ok(socket.is_closing()),
            Self::Stream(stream) => Ok(stream.is_closing()),
            Self::Transport(transport) => transport.bind(py).call_method0(&names.is_closing)?.is_truthy(),
        }
    }

    /// Write `data`, or keep a copy of what cannot be written yet.
    #[inline]
    pub(crate) fn write(&self, py: Python<'_>, names: &Names, data: &[u8]) -> PyResult<()> {
        match self {
            Self::Socket(socket) => socket.write(py, data),
            Self::Stream(stream) => stream.write(&PyBytes::new(py, data)),
            Self::Transport(transport) => {
                transport.bind(py).call_method1(&names.write, (PyBytes::new(py, data),)).map(drop)
            }
        }
    }

    /// Write `head` and `body`, which is not copied if it has to wait.
    pub(crate) fn write_with(
        &self,
        py: Python<'_>,
        names: &Names,
        head: &[u8],
        body: &Bound<'_, PyBytes>,
    ) -> PyResult<()> {
        match self {
            Self::Socket(socket) => socket.write_with(py, head, body),
            Self::Stream(stream) => {
                if !head.is_empty() {
                    stream.write(&PyBytes::new(py, head))?;
                }
                stream.write(body)
            }
            Self::Transport(transport) => {
                if !head.is_empty() {
                    self.write(py, names, head)?;
                }
                transport.bind(py).call_method1(&names.write, (body,)).map(drop)
            }
        }
    }

    /// Write `head` and `body`, or keep a copy of what cannot be written yet.
    pub(crate) fn write_both(&self, py: Python<'_>, names: &Names, head: &[u8], body: &[u8]) -> PyResult<()> {
        match self {
            Self::Socket(socket) => socket.write_both(py, head, body),
            _ => self.write(py, names, &[head, body].concat()),
        }
    }

    /// Bytes that wait on this side of the kernel.
    pub(crate) fn waiting(&self, py: Python<'_>) -> PyResult<usize> {
        match self {
            Self::Socket(socket) => Ok(socket.waiting()),
            Self::Stream(stream) => Ok(stream.waiting()),
            Self::Transport(transport) => {
                let readers = py.import("uvicorn.protocols.http.readers")?;
                readers.call_method1("waiting", (&**transport,))?.extract()
            }
        }
    }

    /// Bytes that the peer has yet to take.
    pub(crate) fn unsent(&self, py: Python<'_>) -> PyResult<usize> {
        match self {
            Self::Socket(socket) => Ok(socket.unsent()),
            Self::Stream(stream) => Ok(stream.waiting()),
            Self::Transport(transport) => {
                let readers = py.import("uvicorn.protocols.http.readers")?;
                readers.call_method1("unsent", (&**transport,))?.extract()
            }
        }
    }

    /// What is there of the peer that nobody has dealt with; it is dealt with in the next turn.
    pub(crate) fn look(&self, py: Python<'_>) -> PyResult<Pending> {
        match self {
            Self::Socket(socket) => socket.look(py),
            Self::Stream(stream) => stream.look(py),
            Self::Transport(transport) => {
                let grace = py.import("uvicorn.grace")?;
                let found = grace.call_method1("has_pending_io", (&**transport,))?.is_truthy()?;
                Ok(if found { Pending::Something } else { Pending::Nothing })
            }
        }
    }

    /// Keep little of what waits where it cannot be overtaken: in the kernel `most` bytes that are not on their way, and say at
    /// once that it takes no more.
    pub(crate) fn keep_little(&self, py: Python<'_>, most: i32) -> PyResult<()> {
        match self {
            Self::Socket(socket) => socket.keep_little(py, most),
            Self::Stream(_) => Ok(()),
            Self::Transport(transport) => {
                let protocol = py.import("uvicorn.protocols.http.carrier")?;
                protocol.call_method1("keep_little", (&**transport, most)).map(drop)
            }
        }
    }

    /// Take no input.
    pub(crate) fn pause_reading(&self, py: Python<'_>, names: &Names) -> PyResult<()> {
        match self {
            Self::Socket(socket) => socket.pause_reading(py),
            Self::Stream(stream) => stream.set_reading(py, false),
            Self::Transport(transport) => transport.bind(py).call_method0(&names.pause_reading).map(drop),
        }
    }

    /// Take input again. A loop reads on in the context of whoever says so, and that of a request would live as long as
    /// the connection: so it is `context` in which its transport is told.
    pub(crate) fn resume_reading(&self, py: Python<'_>, names: &Names, context: &Py<PyAny>) -> PyResult<()> {
        match self {
            Self::Socket(socket) => socket.resume_reading(py),
            Self::Stream(stream) => stream.set_reading(py, true),
            Self::Transport(transport) => {
                let resume = transport.bind(py).getattr(&names.resume_reading)?;
                context.bind(py).call_method1(&names.run, (resume,)).map(drop)
            }
        }
    }

    /// Whether one direction can be ended without the other.
    pub(crate) fn can_write_eof(&self, py: Python<'_>, names: &Names) -> PyResult<bool> {
        match self {
            Self::Socket(_) | Self::Stream(_) => Ok(true),
            Self::Transport(transport) => transport.bind(py).call_method0(&names.can_write_eof)?.is_truthy(),
        }
    }

    /// Tell the peer that nothing more will come, once everything is written.
    pub(crate) fn write_eof(&self, py: Python<'_>, names: &Names) -> PyResult<()> {
        match self {
            Self::Socket(socket) => socket.write_eof(py),
            // Whoever has nothing more to say has done with it.
            Self::Stream(stream) => stream.close(py),
            Self::Transport(transport) => transport.bind(py).call_method0(&names.write_eof).map(drop),
        }
    }

    /// Close once everything is written.
    pub(crate) fn close(&self, py: Python<'_>, names: &Names) -> PyResult<()> {
        match self {
            Self::Socket(socket) => socket.close(py),
            Self::Stream(stream) => stream.close(py),
            Self::Transport(transport) => transport.bind(py).call_method0(&names.close).map(drop),
        }
    }

    /// Close at once.
    pub(crate) fn abort(&self, py: Python<'_>, names: &Names) -> PyResult<()> {
        match self {
            Self::Socket(socket) => socket.abort(py),
            Self::Stream(stream) => stream.abort(py),
            Self::Transport(transport) => transport.bind(py).call_method0(&names.abort).map(drop),
        }
    }

    /// Have the close that follows tell the peer that the connection was cut off.
    pub(crate) fn reset_on_close(&self, py: Python<'_>) -> PyResult<()> {
        match self {
            Self::Socket(socket) => {
                socket.reset_on_close();
                Ok(())
            }
            Self::Stream(_) => Ok(()),
            Self::Transport(transport) => {
                py.import("uvicorn.protocols.http.carrier")?.call_method1("reset_on_close", (&**transport,)).map(drop)
            }
        }
    }
}
