//! Heads of responses, and whole responses of the server's own.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::error::AppError;
use wire::h2::{ResponseHead, StreamId};

use super::connection::{State, Stream};
use crate::asgi::host::Host;
use crate::base::error::exception;
use crate::streams::response::Responds;
use crate::streams::sections::Sections;

impl Responds for Stream {
    type Id = StreamId;

    #[inline]
    fn host(&self) -> &Host {
        &self.connection.core.host
    }

    #[inline]
    fn sections(&self) -> &Sections {
        &self.connection.core.sections
    }

    fn lines(&self) -> &RefCell<Vec<u8>> {
        &self.lines
    }

    #[inline]
    fn encode(&self, status: u16, fields: impl FnOnce(&mut ResponseHead) -> Result<bool, AppError>) -> PyResult<bool> {
        let core = &self.connection.core;
        let encoded = core.sections.with_scratch(|scratch| {
            let State { wire, out, .. } = &mut *self.connection.state.borrow_mut();
            core.hub.buffers.supply(out);
            let mut head = wire.start_response(scratch, self.id, status)?;
            let plain = fields(&mut head)?;
            if plain {
                wire.finish_head(out, scratch, head, false)?;
            }
            Ok(plain)
        });
        encoded.map_err(exception)
    }

    fn put_whole(&self, body: &Bound<'_, PyBytes>) -> PyResult<bool> {
        let waits = self.connection.put(|wire, out| wire.body(out, self.id, body.as_bytes().len(), true))?;
        if waits {
            self.push(body);
        } else {
            self.connection.due.ended.borrow_mut().push(self.id);
        }
        Ok(waits)
    }
}
