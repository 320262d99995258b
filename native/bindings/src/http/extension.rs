//! What few responses have: early hints, trailers, files. Nothing here is on the way of a plain response.
//!
//! The states and the words of the exceptions are those of `uvicorn/protocols/http/cycle.py`. Files are sent by its
//! neighbour `files.py`, for every implementation; what it asks of a connection is [`FileSink`].

use std::rc::Rc;

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use wire::error::AppError;
use wire::h1::response::Trailers;
use wire::headers::has_member;
use wire::texts;

use crate::error::{exception, guard};
use crate::ffi::ThreadBound;
use crate::http::connection::{Connection, HIGH_WATER, with_pair};
use crate::http::cycle::{Exchange, State};

/// Take a message of type `kind` that not every response has, or refuse one that is out of order or not offered. What it
/// gives, if it gives anything, must be awaited.
#[cold]
pub(crate) fn send(
    exchange: &Rc<Exchange>,
    message: &Bound<'_, PyAny>,
    kind: &Bound<'_, PyAny>,
) -> PyResult<Option<Py<PyAny>>> {
    let offered = exchange.connection().core.settings.offers(text_of(kind));
    match (exchange.state(), text_of(kind)) {
        _ if !offered => Err(out_of_order(exchange.state(), kind)),
        (State::Idle | State::Started, "http.response.early_hint") => {
            send_early_hint(exchange, kind, &message.get_item("links")?).map(|()| None)
        }
        (State::Started, "http.response.pathsend" | "http.response.zerocopysend") => {
            send_file(exchange, message).map(Some)
        }
        (State::Trailers, "http.response.trailers") => send_trailers(exchange, kind, message).map(|()| None),
        _ => Err(out_of_order(exchange.state(), kind)),
    }
}

fn text_of<'a>(kind: &'a Bound<'_, PyAny>) -> &'a str {
    kind.cast::<PyString>().ok().and_then(|kind| kind.to_str().ok()).unwrap_or_default()
}

fn send_file(exchange: &Rc<Exchange>, message: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let sink = FileSink { exchange: ThreadBound::new(exchange.clone()) };
    exchange.connection().core.send_file.bind(message.py()).call1((sink, message)).map(Bound::unbind)
}

/// The exception for a message that does not come next.
pub(crate) fn out_of_order(state: State, kind: &Bound<'_, PyAny>) -> PyErr {
    let expected = match state {
        State::Idle => "start",
        State::Started => "body",
        State::Trailers => "trailers",
        State::Sending => {
            return PyRuntimeError::new_err(texts::sending_file(kind));
        }
        State::Complete => {
            return PyRuntimeError::new_err(texts::already_complete(kind));
        }
    };
    PyRuntimeError::new_err(texts::out_of_order(expected, kind))
}

/// Write an interim response, in front of the final one: dropped if that has left, or the client is of 1.0.
fn send_early_hint(exchange: &Exchange, kind: &Bound<'_, PyAny>, links: &Bound<'_, PyAny>) -> PyResult<()> {
    let mut values = Vec::new();
    for link in links.try_iter()? {
        let link = link?;
        match link.cast::<PyBytes>() {
            Ok(link) => values.push(link.clone()),
            Err(_) => return Err(PyTypeError::new_err(texts::link_type(link.repr()?))),
        }
    }
    // Reading them may have run code of the application that has sent something.
    if !matches!(exchange.state(), State::Idle | State::Started) {
        return Err(out_of_order(exchange.state(), kind));
    }
    let fields = values.iter().map(|link| (&b"link"[..], link.as_bytes()));
    exchange.connection().insert_interim(fields).map_err(exception)?;
    exchange.connection().flush_unless_consuming(links.py())
}

/// Take trailers, which are checked at once, and sent when they are complete.
fn send_trailers(exchange: &Exchange, kind: &Bound<'_, PyAny>, message: &Bound<'_, PyAny>) -> PyResult<()> {
    let mut lines = Trailers::default();
    if message.contains("headers")? {
        for header in message.get_item("headers")?.try_iter()? {
            with_pair(&header?, |name, value| add_trailer(&mut lines, name, value))?;
        }
    }
    let more_trailers = message.contains("more_trailers")? && message.get_item("more_trailers")?.is_truthy()?;
    let wanted = !more_trailers && accepts_trailers(exchange, message.py())?;
    // All this may have run code of the application that has sent the last ones.
    let Some(mut trailers) = exchange.trailers.take() else {
        return Err(out_of_order(exchange.state(), kind));
    };
    trailers.append(lines);
    if more_trailers {
        exchange.trailers.set(Some(trailers));
        return Ok(());
    }
    exchange.connection().finish_with_trailers(message.py(), wanted.then_some(&trailers))?;
    exchange.complete(message.py())
}

fn add_trailer(trailers: &mut Trailers, name: &[u8], value: &[u8]) -> PyResult<()> {
    trailers.add(name, value).map_err(|error| match error {
        AppError::Trailer => {
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            PyRuntimeError::new_err(texts::trailer(name))
        }
        _ => exception(error),
    })
}

/// Whether the request says `TE: trailers` (RFC 9110 section 10.1.4). Whoever does not may not keep them (section 6.5.1).
fn accepts_trailers(exchange: &Exchange, py: Python<'_>) -> PyResult<bool> {
    for header in exchange.scope.bind(py).as_any().get_item("headers")?.try_iter()? {
        if with_pair(&header?, |name, value| Ok(name == b"te" && has_member(value, b"trailers")))? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Connection {
    /// Put a 103 in front of a head that waits for its body, if the client knows what that is, and the head is here.
    fn insert_interim<'a>(&self, fields: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>) -> Result<(), AppError> {
        let state = &mut *self.state.borrow_mut();
        let empty = fields.len() == 0;
        let mut interim = Vec::new();
        let known = state.wire.send_interim(&mut interim, 103, fields)?;
        let too_late = state.wire.body().is_ok() && state.held.is_none();
        if empty || !known || too_late {
            return Ok(());
        }
        self.core.buffers.supply(&mut state.out);
        let at = state.held.unwrap_or(state.out.len());
        state.held = state.held.map(|held| held + interim.len());
        state.out.splice(at..at, interim);
        Ok(())
    }

    /// The body is complete, and trailers are to follow.
    pub(crate) fn await_trailers(&self, py: Python<'_>) -> PyResult<()> {
        self.put(|wire, _| wire.body()?.check_end(0))?;
        self.state.borrow_mut().held = None;
        self.flush_unless_consuming(py)
    }

    /// Write the end of the body, with trailers if there are any and the framing can carry them.
    fn finish_with_trailers(&self, py: Python<'_>, trailers: Option<&Trailers>) -> PyResult<()> {
        let limits = &self.core.settings.limits;
        self.put(|wire, out| match trailers {
            Some(trailers) => wire.finish_with_trailers(out, limits, trailers),
            None => wire.finish(out, limits),
        })?;
        self.flush_unless_consuming(py)
    }
}

/// The response that a file becomes a part of, as `uvicorn.protocols.http.files` wants it.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct FileSink {
    exchange: ThreadBound<Rc<Exchange>>,
}

impl FileSink {
    fn guard<R: Default>(
        &self,
        py: Python<'_>,
        entry: &str,
        body: impl FnOnce(&Rc<Exchange>, &Rc<Connection>) -> PyResult<R>,
    ) -> PyResult<R> {
        let exchange = self.exchange.here()?;
        guard(py, exchange.connection(), entry, |connection| body(exchange, connection))
    }
}

#[pymethods]
impl FileSink {
    /// The transport of the connection, `None` once that is lost.
    #[getter]
    fn transport(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.exchange.here()?.connection().transport(py)
    }

    /// Nothing can be sent any more.
    #[getter]
    fn disconnected(&self) -> PyResult<bool> {
        Ok(self.exchange.here()?.is_disconnected())
    }

    /// The transport has enough to write.
    #[getter]
    fn write_paused(&self) -> PyResult<bool> {
        Ok(self.exchange.here()?.connection().is_write_paused())
    }

    /// Return a future that is done when the transport takes more, or the connection ends.
    fn waiter(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.exchange.here()?.connection().watcher(py)
    }

    /// What is sent past the transport waits for the client.
    fn await_reader(&self, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "await_reader", |_, connection| connection.await_reader(py))
    }

    /// It does not any more.
    fn stop_awaiting_reader(&self) -> PyResult<()> {
        self.exchange.here()?.connection().stop_awaiting_reader();
        Ok(())
    }

    /// Prepare for `length` bytes of the body, and refuse other messages until `complete`; whether they are wanted.
    fn announce(&self, kind: &Bound<'_, PyAny>, length: u64, more_body: bool) -> PyResult<bool> {
        self.guard(kind.py(), "announce", |exchange, connection| {
            if exchange.state() != State::Started {
                return Err(out_of_order(exchange.state(), kind));
            }
            let wanted = connection.put(|wire, out| {
                let body = wire.body()?;
                if !more_body {
                    body.check_end(length)?;
                }
                body.begin_part(out, usize::try_from(length).map_err(|_| AppError::TooLong)?)
            })?;
            connection.state.borrow_mut().held = None;
            exchange.set_state(State::Sending);
            Ok(wanted)
        })
    }

    /// Write some of these bytes to the transport, now, behind all that is in front of them.
    #[pyo3(signature = (data, /))]
    fn write(&self, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        let py = data.py();
        self.sent(data.as_bytes().len())?;
        self.guard(py, "write_file", |_, connection| {
            if data.as_bytes().len() > HIGH_WATER {
                return connection.write_object(py, data);
            }
            connection.put(|_, out| {
                out.extend_from_slice(data.as_bytes());
                Ok(())
            })?;
            connection.flush(py)
        })
    }

    /// So many of these bytes were sent past the transport.
    fn sent(&self, size: usize) -> PyResult<()> {
        if let Some(entry) = self.exchange.here()?.entry.get() {
            entry.count(size);
        }
        Ok(())
    }

    /// All were written, if they were wanted: go on with the response, or complete it.
    fn complete(&self, py: Python<'_>, begun: bool, more_body: bool) -> PyResult<()> {
        self.guard(py, "complete", |exchange, connection| {
            exchange.set_state(State::Started);
            if begun {
                connection.put(|wire, out| {
                    wire.body()?.end_part(out);
                    Ok(())
                })?;
            }
            if more_body { connection.flush_unless_consuming(py) } else { exchange.end_body(py) }
        })
    }

    /// Break the response off: not all that was announced can be sent.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "abandon", |exchange, connection| connection.abort_response(py, exchange))
    }
}
