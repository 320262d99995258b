//! A stream that becomes a WebSocket (RFC 9220).

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::h3::{ErrorCode, StreamId};

use super::connection::{Connection, Stream};
use crate::asgi::peer::Peer;
use crate::asgi::write_capacity::WriteCapacity;
use crate::conn::carried::Carried;
use crate::conn::grace::Pending;
use crate::streams::starting::Opening;
use crate::streams::tunnel::{Channel, Tunnel, open};

impl Connection {
    pub(super) fn open_tunnel(&self, py: Python<'_>, id: StreamId, opening: &Opening) -> PyResult<()> {
        let Some(stream) = self.stream(id) else { return Ok(()) };
        let class = self.core.ws_protocol_class.bind(py);
        let Some(protocol) = open(class, &self.core.config, &stream, opening)? else { return Ok(()) };
        // Data that came meanwhile was not handed on.
        self.due.to_serve.borrow_mut().push(id);
        if self.stops.get() { protocol.call_method0("shutdown").map(drop) } else { Ok(()) }
    }
}

impl Tunnel for Stream {
    const VERSION: &'static str = "3";

    fn channel(&self) -> Option<&Channel> {
        self.channel.get().map(|channel| &**channel)
    }

    fn peer(&self) -> &Peer {
        &self.peer
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
        if self.put(|wire, out| wire.body(out, self.id, data.as_bytes().len(), false))? {
            self.push(data);
        }
        Ok(())
    }

    fn put_end(&self) -> PyResult<()> {
        self.put(|wire, out| if wire.takes_body(self.id) { wire.body(out, self.id, 0, true).map(drop) } else { Ok(()) })
    }

    fn note_taken(&self, _py: Python<'_>, _length: usize) -> PyResult<()> {
        self.consume(0);
        Ok(())
    }

    fn cut_off(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.cut(py, self.id.number(), ErrorCode::RequestCancelled.number())?;
        self.connection.state.borrow_mut().wire.reset(self.id);
        Ok(())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.flush_unless_consuming(py)
    }

    fn settle_later(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.flush_unless_consuming(py)?;
        self.connection.due.ended.borrow_mut().push(self.id);
        self.connection.serve_soon(py)
    }

    fn deliver_later(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.due.to_serve.borrow_mut().push(self.id);
        self.connection.serve_soon(py)
    }

    fn look_for_peer(&self, py: Python<'_>) -> PyResult<Pending> {
        self.connection.look_for_peer(py)
    }
}
