//! The connection as a [`Stream`]: HTTP/1.1 has one at a time.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::error::AppError;
use wire::h1::response::{Framing, Trailers};

use super::connection::{Connection, HIGH_WATER, State};
use crate::asgi::access::entry::Head;
use crate::asgi::identity::OwnField;
use crate::asgi::stream::{Follows, Stream};
use crate::asgi::write_capacity::WriteCapacity;
use crate::base::error::exception;
use crate::conn::carried::Carried;

impl Stream for Connection {
    fn send_continue(&self, py: Python<'_>) -> PyResult<()> {
        Connection::send_continue(self, py)
    }

    fn want_body(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_read_paused() { self.regulate(py) } else { Ok(()) }
    }

    fn start(
        &self,
        py: Python<'_>,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
        own: Option<&OwnField<'_>>,
    ) -> PyResult<bool> {
        let core = &self.core;
        core.default_head.refresh(core.host.state.bind(py), &core.names)?;
        self.encode_head(status, headers, own)
    }

    fn head(&self, lines: bool) -> Head {
        let State { wire, out, held, .. } = &mut *self.state.borrow_mut();
        let head = held.and_then(|held| out.get(held..)).unwrap_or_default();
        Head {
            lines: if lines { head.to_vec() } else { Vec::new() },
            bodiless: wire.body().is_ok_and(|body| body.framing() == Framing::None),
        }
    }

    fn body(&self, py: Python<'_>, data: Option<&Bound<'_, PyBytes>>, follows: Follows) -> PyResult<()> {
        self.send_body(py, data, follows)
    }

    fn interim(&self, py: Python<'_>, status: u16, fields: &[(&[u8], &[u8])]) -> PyResult<()> {
        self.insert_interim(status, fields).map_err(exception)?;
        self.flush_unless_consuming(py)
    }

    fn end_body(&self, py: Python<'_>) -> PyResult<()> {
        self.put(|wire, _| wire.body()?.check_end(0))?;
        self.state.borrow_mut().held = None;
        self.flush_unless_consuming(py)
    }

    fn trailers(&self, py: Python<'_>, trailers: Option<&Trailers>) -> PyResult<()> {
        let limits = &self.core.settings.limits;
        self.put(|wire, out| match trailers {
            Some(trailers) => wire.finish_with_trailers(out, limits, trailers),
            None => wire.finish(out, limits),
        })?;
        self.flush_unless_consuming(py)
    }

    fn finish(self: Rc<Self>, py: Python<'_>) -> PyResult<()> {
        Connection::finish(&self, py)
    }

    fn begin_file(&self, length: u64, is_last: bool) -> PyResult<bool> {
        let wanted = self.put(|wire, out| {
            let body = wire.body()?;
            if is_last {
                body.check_end(length)?;
            }
            body.begin_part(out, usize::try_from(length).map_err(|_| AppError::TooLong)?)
        })?;
        self.state.borrow_mut().held = None;
        Ok(wanted)
    }

    fn file(&self, py: Python<'_>, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        if data.as_bytes().len() > HIGH_WATER {
            return self.write_object(py, data);
        }
        self.put(|_, out| {
            out.extend_from_slice(data.as_bytes());
            Ok(())
        })?;
        self.flush(py)
    }

    fn end_file(&self, py: Python<'_>, wanted: bool, more: bool) -> PyResult<()> {
        if wanted {
            self.put(|wire, out| {
                wire.body()?.end_part(out);
                Ok(())
            })?;
        }
        if more { self.flush_unless_consuming(py) } else { Ok(()) }
    }

    fn file_route(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some(transport) = self.transport(py)? else { return Ok(None) };
        let route = py.import("uvicorn.files.sending")?.call_method1("route_past", (transport,))?;
        Ok((!route.is_none()).then(|| route.unbind()))
    }

    fn await_reader(&self, py: Python<'_>) -> PyResult<()> {
        self.reader.wait(py, self)
    }

    fn stop_awaiting_reader(&self) {
        self.reader.stop();
    }

    #[inline]
    fn capacity(&self) -> &WriteCapacity {
        &self.capacity
    }

    fn own_connection(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.transport(py)
    }

    fn answer(
        &self,
        py: Python<'_>,
        status: u16,
        text: &str,
        own: Option<&OwnField<'_>>,
        lines: bool,
    ) -> PyResult<(Head, usize)> {
        self.put_answer(py, status, text, own, lines)
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.close(py, self.behind_response())
    }

    fn abort(&self, py: Python<'_>, in_body: bool) -> PyResult<()> {
        self.abort_response(py, in_body)
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        Carried::abandon(self, py)
    }
}

impl Connection {
    /// Put an interim response in front of a head that waits for its body, if the client knows what that is, and the
    /// head is here.
    fn insert_interim(&self, status: u16, fields: &[(&[u8], &[u8])]) -> Result<(), AppError> {
        let state = &mut *self.state.borrow_mut();
        let mut interim = Vec::new();
        let known = state.wire.send_interim(&mut interim, status, fields.iter().copied())?;
        let too_late = state.wire.body().is_ok() && state.held.is_none();
        if fields.is_empty() || !known || too_late {
            return Ok(());
        }
        self.core.hub.buffers.supply(&mut state.out);
        let at = state.held.unwrap_or(state.out.len());
        state.held = state.held.map(|held| held + interim.len());
        state.out.splice(at..at, interim);
        Ok(())
    }
}
