//! A stream that becomes a WebSocket (RFC 8441).

use std::rc::{Rc, Weak};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::h2::{ErrorCode, Head, StreamId};

use super::connection::{Connection, State, Stream};
use crate::asgi::peer::Peer;
use crate::asgi::refused::Refused;
use crate::asgi::write_capacity::WriteCapacity;
use crate::conn::carried::Carried;
use crate::conn::grace::Pending;
use crate::streams::open::OpenStream;
use crate::streams::starting::{Asked, Opening, Starts, Wanted};
use crate::streams::tunnel::{Channel, Tunnel, open, read_opening};

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
        self.state.borrow_mut().streams.keep(OpenStream { stream: stream.clone(), exchange: None });
        let opening = match read_opening(py, &**self, head, end, self.core.deflate)? {
            Ok(opening) => opening,
            Err(error) => return self.refuse(py, id, &Refused::from(error).of(head.verb)),
        };
        let _ = stream.channel.set(Box::default());
        self.state.borrow_mut().streams.ask(Asked { id, what: Wanted::WebSocket(Box::new(opening)) });
        Ok(())
    }

    pub(super) fn open_tunnel(&self, py: Python<'_>, id: StreamId, opening: &Opening) -> PyResult<()> {
        let Some(stream) = self.stream(id) else { return Ok(()) };
        let class = self.core.ws_protocol_class.bind(py);
        let Some(protocol) = open(class, &self.core.config, &stream, opening)? else { return Ok(()) };
        // Data that came meanwhile was not handed on.
        self.due.to_serve.borrow_mut().push(id);
        if self.stops.get() { protocol.call_method0("shutdown").map(drop) } else { Ok(()) }
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
}

impl Stream {
    /// Keep data for the tunnel's handler: it gets them when all of the input was processed.
    pub(super) fn keep_input(&self, channel: &Channel, piece: &[u8], end: bool) {
        channel.keep(piece, end);
        self.pieces.set(self.pieces.get() + 1);
        self.connection.due.to_serve.borrow_mut().push(self.id);
    }

    /// Have the connection serve its streams in a later turn.
    fn serve_later(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.own.get().and_then(Weak::upgrade).map_or(Ok(()), |connection| connection.serve_later(py))
    }
}

impl Tunnel for Stream {
    const VERSION: &'static str = "2";

    fn channel(&self) -> Option<&Channel> {
        self.channel.get().map(|channel| &**channel)
    }

    fn peer(&self) -> &Peer {
        &self.connection.peer
    }

    fn capacity(&self) -> &WriteCapacity {
        &self.capacity
    }

    fn waiting(&self) -> usize {
        self.queue.borrow().len()
    }

    fn is_live(&self) -> bool {
        self.connection.state.borrow().wire.is_live(self.id)
    }

    fn put_data(&self, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        let length = data.as_bytes().len();
        if length > 0 && self.connection.put(|wire, out| wire.body(out, self.id, length, false))? {
            self.push(data);
        }
        Ok(())
    }

    fn put_end(&self) -> PyResult<()> {
        self.connection.put(
            |wire, out| {
                if wire.takes_body(self.id) { wire.body(out, self.id, 0, true).map(drop) } else { Ok(()) }
            },
        )
    }

    fn note_taken(&self, _py: Python<'_>, length: usize) -> PyResult<()> {
        let State { wire, out, .. } = &mut *self.connection.state.borrow_mut();
        self.connection.core.hub.buffers.supply(out);
        wire.consume_pieces(out, self.id, length, self.pieces.take());
        Ok(())
    }

    fn cut_off(&self, _py: Python<'_>) -> PyResult<()> {
        let State { wire, out, .. } = &mut *self.connection.state.borrow_mut();
        self.connection.core.hub.buffers.supply(out);
        wire.reset(out, self.id, ErrorCode::Cancel);
        Ok(())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.flush_unless_consuming(py)
    }

    fn settle_later(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.flush_unless_consuming(py)?;
        self.connection.due.ended.borrow_mut().push(self.id);
        self.serve_later(py)
    }

    fn deliver_later(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.due.to_serve.borrow_mut().push(self.id);
        self.serve_later(py)
    }

    fn look_for_peer(&self, py: Python<'_>) -> PyResult<Pending> {
        self.connection.look_for_peer(py)
    }
}
