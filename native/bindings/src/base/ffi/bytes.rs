//! A `bytes` object that is filled piece by piece, so that its content is copied only once: the shortcut `bytes`.

use std::mem::MaybeUninit;
use std::{ptr, slice};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// How many times larger than the data at hand it is allocated. Memory that was never written costs next to nothing;
/// but a client that announces much and sends nothing must not get all of it.
const AHEAD: usize = 64;

/// A `bytes` object of known length that is not shared yet.
pub(crate) struct Growing {
    /// The only reference to it; it is as long as the whole, or shorter.
    object: Py<PyBytes>,
    capacity: usize,
    /// The number of bytes written; the others are uninitialized.
    filled: usize,
}

impl Growing {
    /// Begin with `data`, which `left` more bytes follow.
    pub(crate) fn new(py: Python<'_>, data: &[u8], left: usize) -> PyResult<Self> {
        let mut growing = Self::with_room(py, room(data.len(), left))?;
        growing.fill(data);
        Ok(growing)
    }

    /// Add `data`, which `left` more bytes follow.
    pub(crate) fn push(mut self, py: Python<'_>, data: &[u8], left: usize) -> PyResult<Self> {
        let filled = self.filled.saturating_add(data.len());
        if filled > self.capacity {
            // Rare: a message more than 64 times as long as its first read.
            let mut larger = Self::with_room(py, room(filled, left))?;
            larger.fill(self.written());
            self = larger;
        }
        self.fill(data);
        Ok(self)
    }

    /// Whether there is room for more.
    pub(crate) fn has_room(&self) -> bool {
        self.filled < self.capacity
    }

    /// Let `receive` write into at most `most` bytes of the free room. Returns the size offered and the size written.
    pub(crate) fn fill_by<E>(
        &mut self,
        most: usize,
        receive: impl for<'a> FnOnce(&'a mut [MaybeUninit<u8>]) -> Result<&'a mut [u8], E>,
    ) -> Result<(usize, usize), E> {
        let offered = (self.capacity - self.filled).min(most);
        // SAFETY: the object has room for `offered` more bytes, typed as possibly uninitialized. This holds the only
        // reference to the object, and borrows it as long as the room.
        let room =
            unsafe { slice::from_raw_parts_mut(self.start().add(self.filled).cast::<MaybeUninit<u8>>(), offered) };
        let begin = room.as_ptr().cast::<u8>();
        let written = receive(room)?;
        // A slice that is elsewhere was not written here.
        let length = if ptr::eq(written.as_ptr(), begin) { written.len() } else { 0 };
        self.filled += length;
        Ok((offered, length))
    }

    /// The last bytes that were put into it.
    pub(crate) fn last_mut(&mut self, length: usize) -> &mut [u8] {
        let length = length.min(self.filled);
        // SAFETY: the bytes before `filled` are written, the only reference to the object is ours, and it is borrowed for as long.
        unsafe { slice::from_raw_parts_mut(self.start().add(self.filled - length), length) }
    }

    /// All of its content, once that is complete.
    pub(crate) fn finish(self, py: Python<'_>) -> Bound<'_, PyBytes> {
        // All announced bytes have come. If some were missing, an application would see the previous content of this
        // memory.
        if self.filled < self.capacity {
            return PyBytes::new(py, self.written());
        }
        self.object.into_bound(py)
    }

    fn with_room(py: Python<'_>, capacity: usize) -> PyResult<Self> {
        let size = ffi::Py_ssize_t::try_from(capacity)?;
        // SAFETY: asks for a new `bytes` object, whose content is not read before it is written; it is ours, or null
        // with an exception set.
        let object = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(ptr::null(), size))? };
        Ok(Self { object: object.cast_into::<PyBytes>()?.unbind(), capacity, filled: 0 })
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: a live `bytes` object.
        unsafe { ffi::PyBytes_AsString(self.object.as_ptr()).cast() }
    }

    fn written(&self) -> &[u8] {
        // SAFETY: `filled` bytes of the object are written, and are not changed while they are borrowed.
        unsafe { slice::from_raw_parts(self.start(), self.filled) }
    }

    /// Append as much as there is room for.
    fn fill(&mut self, data: &[u8]) {
        let length = data.len().min(self.capacity - self.filled);
        // SAFETY: there is room for `length` bytes more, and the only reference to the object is ours: no code reads
        // it, or has its hash. `data` is not in it.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.start().add(self.filled), length) };
        self.filled += length;
    }
}

/// How large to make it where so much is there and so much follows.
fn room(filled: usize, left: usize) -> usize {
    filled.saturating_add(left).min(filled.saturating_mul(AHEAD))
}
