//! Heads of responses, and whole responses of the server's own.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::error::AppError;
use wire::h2::ResponseHead;

use super::connection::{State, Stream};
use crate::asgi::access::entry::Head;
use crate::asgi::identity::{OwnField, each_field_beside};
use crate::asgi::message::each_plain_field;
use crate::base::error::exception;

impl Stream {
    /// Encode a head behind the output, with `own` if no field has that name; `false` if a look at the headers would run
    /// code of the application, which may send something itself: nothing was encoded then.
    #[inline]
    pub(super) fn encode_head(
        &self,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
        mut own: Option<&OwnField<'_>>,
    ) -> PyResult<bool> {
        let core = &self.connection.core;
        let plain = self.encode(status, |head| {
            core.add_defaults(head);
            let plain = each_field_beside(&mut own, headers, |name, value| head.field(name, value))?;
            own.filter(|_| plain).map_or(Ok(()), |own| head.field(own.name, own.value))?;
            Ok(plain)
        })?;
        if plain && self.connection.core.host.access.wants_head() {
            self.write_lines(headers, own)?;
        }
        Ok(plain)
    }

    /// Encode a head with the `fields` that are added to it; `false` if they could not be, and nothing was encoded.
    pub(super) fn encode(
        &self,
        status: u16,
        fields: impl FnOnce(&mut ResponseHead) -> Result<bool, AppError>,
    ) -> PyResult<bool> {
        let core = &self.connection.core;
        let encoded = core.with_scratch(|scratch| {
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

    /// The head as the log reads one: a line for each field behind a first one.
    #[cold]
    fn write_lines(&self, headers: Option<&Bound<'_, PyAny>>, own: Option<&OwnField<'_>>) -> PyResult<()> {
        let mut lines = Vec::new();
        let mut add = |name: &[u8], value: &[u8]| {
            for part in [&b"\r\n"[..], name, b": ", value] {
                lines.extend_from_slice(part);
            }
        };
        self.connection.core.each_default(|(name, value)| add(name, value));
        let fields = headers.map_or(Ok(true), |headers| {
            each_plain_field(headers, |name, value| {
                add(name, value);
                Ok(())
            })
        });
        fields.map_err(exception)?;
        if let Some(own) = own {
            add(own.name, own.value);
        }
        self.lines.replace(lines);
        Ok(())
    }

    /// Encode a whole response of the server's own; its head, with its `lines` if they are wanted, and how long its body is.
    pub(super) fn put_answer(
        &self,
        py: Python<'_>,
        status: u16,
        text: &str,
        own: Option<&OwnField<'_>>,
        lines: bool,
    ) -> PyResult<(Head, usize)> {
        self.connection.core.refresh_defaults(py)?;
        let length = text.len().to_string();
        let fields =
            [(&b"content-type"[..], &b"text/plain; charset=utf-8"[..]), (b"content-length", length.as_bytes())];
        self.encode(status, |head| {
            self.connection.core.add_defaults(head);
            fields
                .iter()
                .copied()
                .chain(own.map(|own| own.pair()))
                .try_for_each(|(name, value)| head.field(name, value))
                .map(|()| true)
        })?;
        let waits = self.connection.put(|wire, out| wire.body(out, self.id, text.len(), true))?;
        if waits {
            self.push(&PyBytes::new(py, text.as_bytes()));
        } else {
            self.connection.due.ended.borrow_mut().push(self.id);
        }
        if lines {
            self.write_lines(None, own)?;
        }
        Ok((Head { lines: self.lines.take(), bodiless: !waits }, text.len()))
    }
}
