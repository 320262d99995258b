//! Rare parts of responses: early hints, trailers, files. Nothing here is on the way of a plain response.
//!
//! The states and the words of the exceptions are those of `uvicorn/protocols/http/cycle.py`. Files are sent by its
//! neighbour `files/sending.py`, for every implementation; what it asks of a connection is [`FileSink`].

use std::rc::Rc;

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use wire::Trailers;
use wire::error::AppError;
use wire::headers::has_member;
use wire::texts;

use super::conversation::Function;
use super::exchange::{Exchange, State};
use super::message::with_pair;
use super::stream::Stream;
use crate::base::error::exception;
use crate::base::ffi::thread_bound::ThreadBound;
use crate::base::places;

/// A message of the server's own, of a file that it answers with itself: see `uvicorn/files/sending.py`.
const MOUNTED: &str = "uvicorn.response.file";

/// Take a message of type `kind` that not every response has, or refuse one that is out of order or not offered. What
/// it gives, if it gives anything, must be awaited.
#[cold]
pub(crate) fn send(
    exchange: &Rc<Exchange>,
    message: &Bound<'_, PyAny>,
    kind: &Bound<'_, PyAny>,
) -> PyResult<Option<Py<PyAny>>> {
    let offered = text_of(kind) == MOUNTED || exchange.host.settings.offers(text_of(kind));
    match (exchange.state(), text_of(kind)) {
        _ if !offered => Err(out_of_order(exchange.state(), kind)),
        (State::Idle | State::Started, "http.response.early_hint") => {
            send_early_hint(exchange, kind, &message.get_item("links")?).map(|()| None)
        }
        (State::Started, "http.response.pathsend" | "http.response.zerocopysend" | MOUNTED) => {
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
    exchange.host.send_file.bind(message.py()).call1((sink, message)).map(Bound::unbind)
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
    let fields: Vec<_> = values.iter().map(|link| (&b"link"[..], link.as_bytes())).collect();
    exchange.stream.interim(links.py(), 103, &fields)
}

/// Take trailers, which are checked at once, and sent when they are complete.
fn send_trailers(exchange: &Exchange, kind: &Bound<'_, PyAny>, message: &Bound<'_, PyAny>) -> PyResult<()> {
    let mut lines = Trailers::default();
    for header in message.call_method1("get", ("headers", PyTuple::empty(message.py())))?.try_iter()? {
        with_pair(&header?, |name, value| add_trailer(&mut lines, name, value))?;
    }
    let more_trailers = message.call_method1("get", ("more_trailers", false))?.is_truthy()?;
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
    exchange.stream.trailers(message.py(), wanted.then_some(&*trailers))?;
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

/// Whether the request says `TE: trailers` (RFC 9110 section 10.1.4). Other recipients may drop trailers (section
/// 6.5.1).
fn accepts_trailers(exchange: &Exchange, py: Python<'_>) -> PyResult<bool> {
    for header in exchange.scope.bind(py).as_any().get_item("headers")?.try_iter()? {
        if with_pair(&header?, |name, value| Ok(name == b"te" && has_member(value, b"trailers")))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The response that a file becomes a part of, as `uvicorn.files.sending` wants it.
#[pyclass(module = "uvicorn._native", frozen)]
pub struct FileSink {
    exchange: ThreadBound<Rc<Exchange>>,
}

impl FileSink {
    #[inline]
    fn stream(&self) -> PyResult<&Rc<dyn Stream>> {
        Ok(&self.exchange.here()?.stream)
    }

    fn guard<R: Default>(
        &self,
        py: Python<'_>,
        entry: &str,
        body: impl FnOnce(&Rc<Exchange>) -> PyResult<R>,
    ) -> PyResult<R> {
        let exchange = self.exchange.here()?;
        exchange.guard(py, entry, || body(exchange))
    }
}

#[pymethods]
impl FileSink {
    /// By which the kernel can send it, if by anything.
    #[getter]
    fn file_route(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.stream()?.file_route(py)
    }

    /// Whether nothing can be sent any longer.
    #[getter]
    fn unreachable(&self) -> PyResult<bool> {
        Ok(self.exchange.here()?.is_disconnected())
    }

    /// The stream has enough to write.
    #[getter]
    fn write_paused(&self) -> PyResult<bool> {
        Ok(self.stream()?.capacity().is_paused())
    }

    /// Return a future that is done when the stream takes more, or the connection ends.
    fn waiter(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let exchange = self.exchange.here()?;
        exchange.stream.capacity().watcher(py, &exchange.host)
    }

    /// The application waits until the client has read some of a file: its place is free meanwhile.
    fn park(&self, py: Python<'_>) -> PyResult<()> {
        self.exchange.here()?.park(py, Function::Send)
    }

    /// All of it is written. Returns the object to await if there is no place to go on, before this is called again.
    fn resume<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.exchange.here()?.await_place(py)
    }

    /// The application goes on, whether or not there is a place.
    fn force(&self, py: Python<'_>) -> PyResult<()> {
        self.exchange.here()?.unpark(py, false)
    }

    /// Start the deadline for the client to read data sent by the file route.
    fn await_reader(&self, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "await_reader", |exchange| exchange.stream.await_reader(py))
    }

    /// Cancel that deadline.
    fn stop_awaiting_reader(&self) -> PyResult<()> {
        self.stream()?.stop_awaiting_reader();
        Ok(())
    }

    /// Prepare for `length` bytes of the body, and refuse other messages until `complete`; whether they are wanted.
    fn declare(&self, kind: &Bound<'_, PyAny>, length: u64, more_body: bool) -> PyResult<bool> {
        self.guard(kind.py(), "declare", |exchange| {
            if exchange.state() != State::Started {
                return Err(out_of_order(exchange.state(), kind));
            }
            let wanted = exchange.stream.begin_file(length, !more_body)?;
            exchange.set_state(State::Sending);
            Ok(wanted)
        })
    }

    /// Write some of these bytes to the stream, now, behind all that is in front of them.
    #[pyo3(signature = (data, /))]
    fn write(&self, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        let py = data.py();
        let exchange = self.exchange.here()?;
        exchange.log_sent(data.as_bytes().len());
        exchange.note_part();
        self.guard(py, "write_file", |exchange| exchange.stream.file(py, data))
    }

    /// Count bytes that were sent by the file route.
    fn sent(&self, size: usize) -> PyResult<()> {
        let exchange = self.exchange.here()?;
        exchange.log_sent(size);
        exchange.note_part();
        if let Some(metrics) = &exchange.host.metrics {
            metrics.add(places::BYTES_SENT, size);
        }
        Ok(())
    }

    /// All were written, if they were wanted: go on with the response, or complete it.
    fn complete(&self, py: Python<'_>, begun: bool, more_body: bool) -> PyResult<()> {
        self.guard(py, "complete", |exchange| {
            exchange.set_state(State::Started);
            exchange.stream.end_file(py, begun, more_body)?;
            if more_body { Ok(()) } else { exchange.end_body(py) }
        })
    }

    /// Break the response off: not all that was declared can be sent.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.guard(py, "abandon", |exchange| exchange.break_off(py))
    }
}
