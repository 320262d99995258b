//! The other side of an exchange: carries its response to the client, and brings the body of its request.
//!
//! A trait object: classes of PyO3 cannot be generic, and an enum would have to know all versions of HTTP here. The price
//! is a few indirect calls per request.

use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::Trailers;

use super::access::entry::Head;
use super::identity::OwnField;
use super::write_capacity::WriteCapacity;

/// The frame after a piece of the body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follows {
    Body,
    Trailers,
    /// The response is complete.
    Nothing,
}

/// One response on its way, of whichever version of HTTP. Any of these calls may run Python code, of the application too, and
/// come back: the caller holds no borrow. Nothing is asked any more once [`Exchange::disconnect`] has said that nothing can be
/// sent.
///
/// [`Exchange::disconnect`]: super::exchange::Exchange::disconnect
pub(crate) trait Stream {
    // The body of the request.

    /// The application asks for it, and the client waits for `100 Continue`.
    fn send_continue(&self, py: Python<'_>) -> PyResult<()>;
    /// The application waits for more of it, or for the client's end.
    fn want_body(&self, py: Python<'_>) -> PyResult<()>;

    // The response.

    /// Encode its head, which waits for the first piece of the body, with `own` if no field has that name. `false` if a look at the headers would run code of the
    /// application, which may send something itself: nothing was encoded then.
    fn start(
        &self,
        py: Python<'_>,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
        own: Option<&OwnField<'_>>,
    ) -> PyResult<bool>;
    /// The head that was encoded last, with its `lines` if they are wanted.
    fn head(&self, lines: bool) -> Head;
    /// Write a piece of the body, behind the head if that still waits.
    fn body(&self, py: Python<'_>, data: Option<&Bound<'_, PyBytes>>, follows: Follows) -> PyResult<()>;
    /// Write an interim response in front of the head, unless that has left, or the client does not know such things.
    fn interim(&self, py: Python<'_>, status: u16, fields: &[(&[u8], &[u8])]) -> PyResult<()>;
    /// The body is complete, and trailers are to follow.
    fn end_body(&self, py: Python<'_>) -> PyResult<()>;
    /// Write the end of the response, with trailers if there are any and they can be carried.
    fn trailers(&self, py: Python<'_>, trailers: Option<&Trailers>) -> PyResult<()>;
    /// Everything is written: go on with the next request.
    fn finish(self: Rc<Self>, py: Python<'_>) -> PyResult<()>;

    // Files, which the kernel can send past some streams.

    /// Prepare for `length` bytes of the body, the last ones if `is_last`; whether they are wanted.
    fn begin_file(&self, length: u64, is_last: bool) -> PyResult<bool>;
    /// Write some of these bytes, behind all that is in front of them.
    fn file(&self, py: Python<'_>, data: &Bound<'_, PyBytes>) -> PyResult<()>;
    /// All were written, if they were `wanted`; `more`: of the body follows.
    fn end_file(&self, py: Python<'_>, wanted: bool, more: bool) -> PyResult<()>;
    /// The `FileRoute` of Python by which the kernel sends files; `None` if all bytes have to come here.
    fn file_route(&self, _py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(None)
    }
    /// Give the client time to read data sent by that.
    fn await_reader(&self, _py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
    /// The client has taken enough of it.
    fn stop_awaiting_reader(&self) {}

    // The connection.

    /// Whether there is room for more.
    fn capacity(&self) -> &WriteCapacity;
    /// The connection as programs know it; `None` if it has other streams as well.
    fn own_connection(&self, _py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        Ok(None)
    }

    // The end.

    /// Encode a whole response of the server's own; its head, and how long its body is.
    fn answer(
        &self,
        py: Python<'_>,
        status: u16,
        text: &str,
        own: Option<&OwnField<'_>>,
        lines: bool,
    ) -> PyResult<(Head, usize)>;
    /// Send that, and take no further request.
    fn end(&self, py: Python<'_>) -> PyResult<()>;
    /// End a response that cannot be completed, so that the client notices; `in_body`: the part sent may look complete.
    fn abort(&self, py: Python<'_>, in_body: bool) -> PyResult<()>;
    /// The request was counted, and has ended.
    fn note_end(&self) {}
    /// Abort everything after a panic, without inspecting the state.
    fn abandon(&self, py: Python<'_>) -> PyResult<()>;
}
