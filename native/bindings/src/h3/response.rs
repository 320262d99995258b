//! Heads of responses, and whole responses of the server's own.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::error::AppError;
use wire::h3::{ResponseHead, StreamId};

use super::connection::Stream;
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
        let encoded = self.connection.core.sections.with_scratch(|scratch| {
            let wire = &mut self.connection.state.borrow_mut().wire;
            let mut head = wire.start_response(scratch, self.id, status)?;
            let plain = fields(&mut head)?;
            if plain {
                self.queue.borrow_mut().put(|out| wire.finish_head(out, scratch, head, false))?;
                wire.ready(self.id);
            }
            Ok(plain)
        });
        encoded.map_err(exception)
    }

    fn put_whole(&self, body: &Bound<'_, PyBytes>) -> PyResult<bool> {
        let has_body = self.put(|wire, out| wire.body(out, self.id, body.as_bytes().len(), true))?;
        if has_body {
            self.push(body);
        }
        Ok(has_body)
    }
}
