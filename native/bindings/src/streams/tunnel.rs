//! A stream that becomes a WebSocket (RFC 8441, RFC 9220): its handler uses it like a socket.
//!
//! ```text
//! DATA ──▶ unread ── while it reads ──▶ Handler ── write ──▶ output of the stream ──▶ DATA
//!                                          └─ its first words: the head of a response, as HTTP/1.1 has it ──▶ HEADERS
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use wire::error::{AppError, Error, Refusal};
use wire::fields::Head;
use wire::ws::Handshake;

use super::headers::{HeadFields, Remembers};
use super::response::Responds;
use super::starting::Opening;
use crate::asgi::peer::Peer;
use crate::asgi::scope::Fields;
use crate::asgi::write_capacity::WriteCapacity;
use crate::base::error::exception;
use crate::conn::carrier::Carrier;
use crate::conn::ends::Ends;
use crate::conn::grace::Pending;
use crate::conn::handler::Handler;
use crate::conn::stream_transport::StreamTransport;

/// Opens a WebSocket on a stream: the protocol object, the stream, the version of HTTP, path and query, the headers, and the subprotocols.
type OpenWebSocket = fn(
    &Bound<'_, PyAny>,
    Rc<dyn Carrier>,
    &'static str,
    (&[u8], &[u8]),
    &Bound<'_, PyList>,
    &Handshake<'_>,
) -> PyResult<Rc<dyn Handler>>;

static OPEN_WEBSOCKET: OnceLock<OpenWebSocket> = OnceLock::new();

/// Have every WebSocket opened by this function.
pub(crate) fn open_websockets_by(open: OpenWebSocket) {
    let _ = OPEN_WEBSOCKET.set(open);
}

/// The input of a stream that is a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Open,
    /// Nothing more comes.
    Ended,
    /// And its handler was notified.
    Told,
}

/// The output of a stream that is a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    /// The head of the response.
    Head,
    /// All there is to say.
    All,
}

/// The handler that uses a stream as a socket, and its progress.
pub(crate) struct Channel {
    pub(crate) handler: RefCell<Option<Rc<dyn Handler>>>,
    reading: Cell<bool>,
    /// Data that has come, and was not taken yet.
    unread: RefCell<Vec<u8>>,
    input: Cell<Input>,
    pub(crate) said: Cell<Said>,
    /// It waits for the client to read, and its handler was asked to pause.
    pub(crate) pause_told: Cell<bool>,
}

impl Channel {
    /// The input has ended.
    pub(crate) fn end(&self) {
        if self.input.get() == Input::Open {
            self.input.set(Input::Ended);
        }
    }

    /// Bytes that were not taken yet.
    pub(crate) fn unread(&self) -> usize {
        self.unread.borrow().len()
    }

    /// Keep data for the handler: it gets them when all of the input was processed.
    pub(crate) fn keep(&self, piece: &[u8], end: bool) {
        self.unread.borrow_mut().extend_from_slice(piece);
        if end {
            self.end();
        }
    }
}

impl Default for Channel {
    fn default() -> Self {
        Self {
            handler: RefCell::default(),
            reading: Cell::new(true),
            unread: RefCell::default(),
            input: Cell::new(Input::Open),
            said: Cell::new(Said::Nothing),
            pause_told: Cell::new(false),
        }
    }
}

/// What a request for a tunnel asks for; an error if it cannot have it. `end`: nothing follows the request.
pub(crate) fn read_opening(
    py: Python<'_>,
    connection: &impl Remembers,
    head: &Head,
    end: bool,
    deflate: bool,
) -> PyResult<Result<Opening, Error>> {
    let is_websocket = head.protocol().is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
    let handshake = match Handshake::of_stream(head, deflate) {
        _ if !is_websocket || end => return Ok(Err(Error::new(Refusal::Connect))),
        Ok(handshake) => handshake,
        Err(error) => return Ok(Err(error)),
    };
    let (headers, _) = HeadFields { connection, head, is_early: false }.list(py)?;
    Ok(Ok(Opening {
        path: head.path().to_vec(),
        query: head.query().to_vec(),
        headers: headers.unbind(),
        subprotocols: handshake.subprotocols.iter().map(ToString::to_string).collect(),
        answer: handshake.answer,
    }))
}

/// Open a WebSocket on a stream, whose protocol object `class` makes; returns that object.
pub(crate) fn open<'py, S: Tunnel>(
    class: &Bound<'py, PyAny>,
    config: &Py<PyAny>,
    stream: &Rc<S>,
    opening: &Opening,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = class.py();
    let Some(open) = OPEN_WEBSOCKET.get() else { return Ok(None) };
    let keywords = PyDict::new(py);
    keywords.set_item("config", config)?;
    keywords.set_item("server_state", &stream.host().state)?;
    keywords.set_item("app_state", &stream.peer().app_state)?;
    let protocol = class.call((), Some(&keywords))?;
    let subprotocols = opening.subprotocols.iter().map(String::as_str).collect();
    let handshake = Handshake { subprotocols, answer: opening.answer };
    let parts = (opening.path.as_slice(), opening.query.as_slice());
    let handler = open(&protocol, stream.clone(), S::VERSION, parts, opening.headers.bind(py), &handshake)?;
    if let Some(channel) = stream.channel() {
        channel.handler.replace(Some(handler));
    }
    Ok(Some(protocol))
}

/// A stream that can become a tunnel.
pub(crate) trait Tunnel: Responds + Sized + 'static {
    /// The version of HTTP, as scopes have it.
    const VERSION: &'static str;

    /// The handler that uses it, if it has become one.
    fn channel(&self) -> Option<&Channel>;
    fn peer(&self) -> &Peer;
    fn capacity(&self) -> &WriteCapacity;
    /// Bytes of output that wait.
    fn waiting(&self) -> usize;
    /// Whether something can be sent or can come.
    fn is_live(&self) -> bool;
    /// Append data to the output.
    fn put_data(&self, data: &Bound<'_, PyBytes>) -> PyResult<()>;
    /// Nothing follows the output, if there was any.
    fn put_end(&self) -> PyResult<()>;
    /// The handler has taken this much.
    fn note_taken(&self, py: Python<'_>, length: usize) -> PyResult<()>;
    /// Reset the stream.
    fn cut_off(&self, py: Python<'_>) -> PyResult<()>;
    /// Write the output, unless it leaves with more anyway.
    fn flush(&self, py: Python<'_>) -> PyResult<()>;
    /// Let go of it in a later turn, if it is over by then.
    fn settle_later(&self, py: Python<'_>) -> PyResult<()>;
    /// Hand on its input in a later turn.
    fn deliver_later(&self, py: Python<'_>) -> PyResult<()>;
    /// Whether anything from the client is yet to be processed.
    fn look_for_peer(&self, py: Python<'_>) -> PyResult<Pending>;

    /// Hand the data that has come to the handler.
    fn deliver(&self, py: Python<'_>) -> PyResult<()> {
        let Some(channel) = self.channel() else { return Ok(()) };
        let Some(handler) = channel.handler.borrow().clone() else { return Ok(()) };
        if channel.reading.get() {
            let data = channel.unread.take();
            if !data.is_empty() {
                self.note_taken(py, data.len())?;
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
    fn lose_channel(&self, py: Python<'_>) -> PyResult<()> {
        let handler = self.channel().and_then(|channel| channel.handler.take());
        handler.map_or(Ok(()), |handler| handler.on_lost(py, None))
    }

    /// Little of the output waits again: the handler may go on.
    fn relieve_channel(&self, py: Python<'_>) -> PyResult<()> {
        let Some(channel) = self.channel() else { return Ok(()) };
        let handler = channel.handler.borrow().clone().filter(|_| channel.pause_told.replace(false));
        handler.map_or(Ok(()), |handler| handler.on_resume(py))
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

    /// Whether nothing can be written any more.
    fn is_ending(&self) -> bool {
        let is_closing = self.channel().is_none_or(|channel| channel.said.get() == Said::All);
        is_closing || !self.is_live()
    }

    /// Write `data`. First of all that is the head of a response, as HTTP/1.1 has it.
    fn write_object(&self, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        let py = data.py();
        let Some(channel) = self.channel().filter(|_| !self.is_ending()) else { return Ok(()) };
        if channel.said.replace(Said::Head) == Said::Head {
            self.put_data(data)?;
        } else {
            let rest = self.put_head_of(data.as_bytes())?;
            self.put_data(&PyBytes::new(py, rest))?;
        }
        self.flush(py)?;
        let handler = channel.handler.borrow().clone();
        match handler {
            Some(handler) if self.capacity().is_paused() && !channel.pause_told.replace(true) => handler.on_pause(py),
            _ => Ok(()),
        }
    }

    /// End the stream once everything is written.
    fn end_tunnel(&self, py: Python<'_>) -> PyResult<()> {
        let Some(channel) = self.channel() else { return Ok(()) };
        if channel.said.replace(Said::All) == Said::All {
            return Ok(());
        }
        let ended = self.put_end();
        self.settle_later(py)?;
        ended
    }
}

impl<S: Tunnel> Carrier for S {
    fn ends(&self, py: Python<'_>) -> PyResult<Ends> {
        let peer = self.peer();
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

    fn omitted_field(&self) -> Option<&'static [u8]> {
        self.sections().without()
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
        Ok(Tunnel::waiting(self))
    }

    fn look(self: Rc<Self>, py: Python<'_>) -> PyResult<Pending> {
        self.look_for_peer(py)
    }

    fn pause_reading(self: Rc<Self>, _py: Python<'_>) -> PyResult<()> {
        if let Some(channel) = self.channel() {
            channel.reading.set(false);
        }
        Ok(())
    }

    fn resume_reading(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        let Some(channel) = self.channel() else { return Ok(()) };
        channel.reading.set(true);
        if channel.unread.borrow().is_empty() && channel.input.get() == Input::Open {
            return Ok(());
        }
        self.deliver_later(py)
    }

    /// A handler that has finished its output is done with the stream.
    fn write_eof(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.end_tunnel(py)
    }

    fn close(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        self.end_tunnel(py)
    }

    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let Some(channel) = self.channel() else { return Ok(()) };
        channel.said.set(Said::All);
        self.cut_off(py)?;
        self.settle_later(py)
    }
}
