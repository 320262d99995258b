//! A stream that becomes a WebSocket (RFC 8441): its handler uses it like a socket.
//!
//! ```text
//! DATA ──▶ unread ── while it reads ──▶ Handler ── write ──▶ Queue ── fill ──▶ DATA
//!                                          └─ its first words: the head of a response, as HTTP/1.1 has it ──▶ HEADERS
//! ```

use std::rc::Rc;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use wire::error::{AppError, Error, Refusal};
use wire::h2::{ErrorCode, Head, StreamId};
use wire::ws::Handshake;

use super::connection::{Asked, Channel, Connection, OpenStream, Opening, State, Stream, Wanted};
use super::headers::HeadFields;
use super::states::{Ending, Input, Said};
use crate::asgi::scope::Fields;
use crate::base::error::exception;
use crate::base::ffi::thread_bound::ThreadBound;
use crate::conn::carried::Carried;
use crate::conn::carrier::Carrier;
use crate::conn::ends::Ends;
use crate::conn::grace::Pending;
use crate::conn::handler::Handler;
use crate::conn::stream_transport::StreamTransport;

/// Opens a WebSocket on a stream: the protocol object, the stream, path and query, the headers, and the subprotocols.
type OpenWebSocket = fn(
    &Bound<'_, PyAny>,
    Rc<dyn Carrier>,
    (&[u8], &[u8]),
    &Bound<'_, PyList>,
    &Handshake<'_>,
) -> PyResult<Rc<dyn Handler>>;

static OPEN_WEBSOCKET: OnceLock<OpenWebSocket> = OnceLock::new();

/// Have every WebSocket opened by this function.
pub(crate) fn open_websockets_by(open: OpenWebSocket) {
    let _ = OPEN_WEBSOCKET.set(open);
}

impl Connection {
    /// A request that wants the stream to become something else.
    pub(super) fn ask_for_tunnel(
        self: &Rc<Self>,
        py: Python<'_>,
        id: StreamId,
        end: bool,
        head: &Head,
    ) -> PyResult<()> {
        let stream = Rc::new(Stream::new(self.clone(), id));
        self.state.borrow_mut().keep(OpenStream { stream: stream.clone(), exchange: None });
        let is_websocket = head.protocol().is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
        let handshake = match Handshake::of_stream(head, self.core.deflate) {
            _ if !is_websocket || end => return self.refuse(py, id, &Error::new(Refusal::Connect).into()),
            Ok(handshake) => handshake,
            Err(error) => return self.refuse(py, id, &error.into()),
        };
        let (headers, _) = HeadFields { connection: self, head }.list(py)?;
        let opening = Opening {
            path: head.path().to_vec(),
            query: head.query().to_vec(),
            headers: headers.unbind(),
            subprotocols: handshake.subprotocols.iter().map(ToString::to_string).collect(),
            answer: handshake.answer,
        };
        let _ = stream.channel.set(Box::default());
        self.state.borrow_mut().asked.push_back(Asked { id, what: Wanted::WebSocket(Box::new(opening)) });
        Ok(())
    }

    /// Open a WebSocket on the stream that requested one.
    pub(super) fn open_websocket(&self, py: Python<'_>, id: StreamId, opening: &Opening) -> PyResult<()> {
        let (Some(open), Some(stream)) = (OPEN_WEBSOCKET.get(), self.stream(id)) else { return Ok(()) };
        let keywords = PyDict::new(py);
        keywords.set_item("config", &self.core.config)?;
        keywords.set_item("server_state", &self.core.host.state)?;
        keywords.set_item("app_state", &self.peer.app_state)?;
        let protocol = self.core.ws_protocol_class.bind(py).call((), Some(&keywords))?;
        let subprotocols = opening.subprotocols.iter().map(String::as_str).collect();
        let handshake = Handshake { subprotocols, answer: opening.answer };
        let parts = (opening.path.as_slice(), opening.query.as_slice());
        let handler = open(&protocol, stream.clone(), parts, opening.headers.bind(py), &handshake)?;
        if let Some(channel) = stream.channel.get() {
            channel.handler.replace(Some(handler));
        }
        // Data that came meanwhile was not handed on.
        self.due.to_serve.borrow_mut().push(id);
        match self.ending.get() {
            Ending::LastCall | Ending::Last | Ending::Now => protocol.call_method0("shutdown").map(drop),
            Ending::None | Ending::Due | Ending::Announced | Ending::Heard => Ok(()),
        }
    }

    /// Hand on the data that has come for tunnels.
    pub(super) fn serve_tunnels(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let Some(id) = self.due.to_serve.borrow_mut().pop() else { return Ok(()) };
            if let Some(stream) = self.stream(id) {
                stream.deliver(py)?;
            }
        }
    }

    /// Serve a stream in a later turn of the loop.
    fn serve_later(self: &Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let serve = Py::new(py, Serve { connection: ThreadBound::new(self.clone()) })?;
        self.core.event_loop.bind(py).call_method1(&self.core.names.call_soon, (serve,)).map(drop)
    }
}

impl Stream {
    /// Keep data for the tunnel's handler: it gets them when all of the input was processed.
    pub(super) fn keep_input(&self, channel: &Channel, piece: &[u8], end: bool) {
        channel.unread.borrow_mut().extend_from_slice(piece);
        self.pieces.set(self.pieces.get() + 1);
        if end {
            channel.end();
        }
        self.connection.due.to_serve.borrow_mut().push(self.id);
    }

    fn deliver(&self, py: Python<'_>) -> PyResult<()> {
        let Some(channel) = self.channel.get() else { return Ok(()) };
        let Some(handler) = channel.handler.borrow().clone() else { return Ok(()) };
        if channel.reading.get() {
            let data = channel.unread.take();
            if !data.is_empty() {
                {
                    let State { wire, out, .. } = &mut *self.connection.state.borrow_mut();
                    self.connection.core.hub.buffers.supply(out);
                    wire.consume_pieces(out, self.id, data.len(), self.pieces.take());
                }
                handler.clone().on_data(py, &data)?;
            }
        }
        if channel.input.get() != Input::Ended || !channel.unread.borrow().is_empty() {
            return Ok(());
        }
        channel.input.set(Input::Told);
        if handler.on_eof(py)? { Ok(()) } else { self.end_tunnel(py) }
    }

    /// Notify the tunnel's handler that its stream is lost.
    pub(super) fn lose_channel(&self, py: Python<'_>) -> PyResult<()> {
        let handler = self.channel.get().and_then(|channel| channel.handler.take());
        handler.map_or(Ok(()), |handler| handler.on_lost(py, None))
    }

    /// A response head as HTTP/1.1 has it, at the beginning of `data`: the rest of that is what follows it.
    fn put_head_of<'a>(&self, data: &'a [u8]) -> PyResult<&'a [u8]> {
        let end = data.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(data.len(), |at| at + 4);
        let (head, rest) = data.split_at(end);
        let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
        let line = lines.next().unwrap_or_default();
        let status = line.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let status = status.ok_or_else(|| exception(AppError::Status))?;
        self.encode(status, |head| {
            for line in lines.filter(|line| !line.is_empty()) {
                let colon = line.iter().position(|&byte| byte == b':').ok_or(AppError::FieldName)?;
                let (name, value) = line.split_at(colon);
                head.field(&name.to_ascii_lowercase(), value.get(1..).unwrap_or_default())?;
            }
            Ok(true)
        })?;
        Ok(rest)
    }

    fn put_data(&self, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        let length = data.as_bytes().len();
        if length > 0 && self.connection.put(|wire, out| wire.body(out, self.id, length, false))? {
            self.push(data);
        }
        Ok(())
    }
}

impl Carrier for Stream {
    fn ends(&self, py: Python<'_>) -> PyResult<Ends> {
        let peer = &self.connection.peer;
        Ok(Ends {
            client: peer.client.clone_ref(py),
            server: peer.server.clone_ref(py),
            secure: peer.secure,
            ssl_object: peer.ssl_object.as_ref().map(|object| object.clone_ref(py)),
        })
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn transport(self: Rc<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, StreamTransport::new(self))?.into_any())
    }

    fn is_closing(&self, _py: Python<'_>) -> PyResult<bool> {
        Ok(self.is_ending())
    }

    fn write(self: Rc<Self>, py: Python<'_>, data: &[u8]) -> PyResult<()> {
        self.write_object(&PyBytes::new(py, data))
    }

    fn write_with(self: Rc<Self>, py: Python<'_>, head: &[u8], body: &Bound<'_, PyBytes>) -> PyResult<()> {
        if !head.is_empty() {
            self.write_object(&PyBytes::new(py, head))?;
        }
        self.write_object(body)
    }

    fn waiting(&self, _py: Python<'_>) -> PyResult<usize> {
        Ok(self.queue.borrow().len())
    }

    fn look(self: Rc<Self>, py: Python<'_>) -> PyResult<Pending> {
        self.connection.look_for_peer(py)
    }

    fn pause_reading(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        if let Some(channel) = self.channel.get() {
            channel.reading.set(false);
        }
        Ok(())
    }

    fn resume_reading(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let Some(channel) = self.channel.get() else { return Ok(()) };
        channel.reading.set(true);
        if channel.unread.borrow().is_empty() && channel.input.get() == Input::Open {
            return Ok(());
        }
        self.connection.due.to_serve.borrow_mut().push(self.id);
        self.connection.serve_later(py)
    }

    /// A handler that has finished its output is done with the stream.
    fn write_eof(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.end_tunnel(py)
    }

    fn close(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.end_tunnel(py)
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let Some(channel) = self.channel.get() else { return Ok(()) };
        channel.said.set(Said::All);
        {
            let State { wire, out, .. } = &mut *self.connection.state.borrow_mut();
            self.connection.core.hub.buffers.supply(out);
            wire.reset(out, self.id, ErrorCode::Cancel);
        }
        self.settle_later(py)
    }
}

impl Stream {
    fn is_ending(&self) -> bool {
        let is_closing = self.channel.get().is_none_or(|channel| channel.said.get() == Said::All);
        is_closing || !self.connection.state.borrow().wire.is_live(self.id)
    }

    /// Write `data`. First of all that is the head of a response, as HTTP/1.1 has it.
    fn write_object(&self, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        let py = data.py();
        let Some(channel) = self.channel.get().filter(|_| !self.is_ending()) else { return Ok(()) };
        if channel.said.replace(Said::Head) == Said::Head {
            self.put_data(data)?;
        } else {
            let rest = self.put_head_of(data.as_bytes())?;
            self.put_data(&PyBytes::new(py, rest))?;
        }
        self.connection.flush_unless_consuming(py)?;
        let handler = channel.handler.borrow().clone();
        match handler {
            Some(handler) if self.capacity.is_paused() && !channel.pause_told.replace(true) => handler.on_pause(py),
            _ => Ok(()),
        }
    }

    /// End the stream once everything is written.
    fn end_tunnel(&self, py: Python<'_>) -> PyResult<()> {
        let Some(channel) = self.channel.get() else { return Ok(()) };
        if channel.said.replace(Said::All) == Said::All {
            return Ok(());
        }
        let ended = self.connection.put(|wire, out| {
            if wire.takes_body(self.id) { wire.body(out, self.id, 0, true).map(drop) } else { Ok(()) }
        });
        self.settle_later(py)?;
        ended
    }

    /// Write the remaining output, and let go of the stream in a later turn of the loop.
    fn settle_later(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.flush_unless_consuming(py)?;
        self.connection.due.ended.borrow_mut().push(self.id);
        self.connection.serve_later(py)
    }
}

/// Serves tunnels, in a turn of the loop.
#[pyclass(module = "uvicorn._native", frozen)]
struct Serve {
    connection: ThreadBound<Rc<Connection>>,
}

#[pymethods]
impl Serve {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.here()?.guard(py, "resume", |connection| connection.serve(py))
    }
}
