//! Heads of responses, and whole responses of the server's own.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::error::AppError;
use wire::fields::ResponseHead;

use super::sections::Sections;
use crate::asgi::access::entry::Head;
use crate::asgi::host::Host;
use crate::asgi::identity::{OwnField, each_field_beside};
use crate::asgi::message::each_plain_field;
use crate::base::error::exception;

/// A stream that takes a response.
pub(crate) trait Responds {
    /// Names the stream.
    type Id;

    fn host(&self) -> &Host;
    fn sections(&self) -> &Sections;
    /// The head as lines, if the log wants them.
    fn lines(&self) -> &RefCell<Vec<u8>>;
    /// Encode a head with the `fields` that are added to it; `false` if they could not be, and nothing was encoded.
    fn encode(
        &self,
        status: u16,
        fields: impl FnOnce(&mut ResponseHead<Self::Id>) -> Result<bool, AppError>,
    ) -> PyResult<bool>;
    /// Append the whole body of a response of the server's own. `false` if the response has none.
    fn put_whole(&self, body: &Bound<'_, PyBytes>) -> PyResult<bool>;

    /// Bring the fields that each response begins with up to date.
    #[inline]
    fn refresh_defaults(&self, py: Python<'_>) -> PyResult<()> {
        self.sections().refresh_defaults(self.host().state.bind(py), &self.host().names)
    }

    /// Encode a head behind the output, with `own` if no field has that name; `false` if a look at the headers would run
    /// code of the application, which may send something itself: nothing was encoded then.
    #[inline]
    fn encode_head(
        &self,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
        mut own: Option<&OwnField<'_>>,
    ) -> PyResult<bool> {
        let sections = self.sections();
        let plain = self.encode(status, |head| {
            sections.add_defaults(head);
            let plain = each_field_beside(&mut own, headers, |name, value| head.field(name, value))?;
            own.filter(|_| plain).map_or(Ok(()), |own| head.field(own.name, own.value))?;
            Ok(plain)
        })?;
        if plain && self.host().access.wants_head() {
            self.write_lines(headers, own)?;
        }
        Ok(plain)
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
        self.sections().each_default(|(name, value)| add(name, value));
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
        self.lines().replace(lines);
        Ok(())
    }

    /// Encode a whole response of the server's own; its head, with its `lines` if they are wanted, and how long its body is.
    fn put_answer(
        &self,
        py: Python<'_>,
        status: u16,
        text: &str,
        own: Option<&OwnField<'_>>,
        lines: bool,
    ) -> PyResult<(Head, usize)> {
        self.refresh_defaults(py)?;
        let length = text.len().to_string();
        let fields =
            [(&b"content-type"[..], &b"text/plain; charset=utf-8"[..]), (b"content-length", length.as_bytes())];
        self.encode(status, |head| {
            self.sections().add_defaults(head);
            fields
                .iter()
                .copied()
                .chain(own.map(|own| own.pair()))
                .try_for_each(|(name, value)| head.field(name, value))
                .map(|()| true)
        })?;
        let has_body = self.put_whole(&PyBytes::new(py, text.as_bytes()))?;
        if lines {
            self.write_lines(None, own)?;
        }
        Ok((Head { lines: self.lines().take(), bodiless: !has_body }, text.len()))
    }
}
