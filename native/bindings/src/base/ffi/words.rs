//! Memory of Python's that other processes see, as numbers.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// Numbers of 64 bits, each written from here alone; any process may read them.
pub(crate) struct Words {
    numbers: NonNull<AtomicU64>,
    length: usize,
    /// As long as this is held the memory stays.
    _held: PyBuffer<u64>,
}

// SAFETY: the numbers are atomic, and the buffer, which may be released in any thread, keeps them where they are.
unsafe impl Send for Words {}
// SAFETY: as above; all methods go through the atomic numbers.
unsafe impl Sync for Words {}

impl Words {
    /// The memory of an object that has a buffer of such numbers.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let held = PyBuffer::<u64>::get(object)?;
        let numbers = NonNull::new(held.buf_ptr().cast::<AtomicU64>());
        match numbers {
            Some(numbers) if !held.readonly() && held.is_c_contiguous() && numbers.is_aligned() => {
                Ok(Self { numbers, length: held.item_count(), _held: held })
            }
            _ => Err(PyBufferError::new_err("numbers that can be written, one behind the other")),
        }
    }

    #[inline]
    fn place(&self, place: usize) -> Option<&AtomicU64> {
        if place >= self.length {
            return None;
        }
        // SAFETY: the place is within the buffer, which is held, aligned, and written by atomic stores only while we have
        // it; an atomic number is as a number in memory.
        Some(unsafe { self.numbers.add(place).as_ref() })
    }

    /// The number in a place.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> u64 {
        self.place(place).map_or(0, |number| number.load(Ordering::Relaxed))
    }

    /// Write it.
    #[inline]
    pub(crate) fn set(&self, place: usize, number: u64) {
        if let Some(place) = self.place(place) {
            place.store(number, Ordering::Relaxed);
        }
    }

    /// Add to it: there is no other writer, so nothing is locked.
    #[inline]
    pub(crate) fn add(&self, place: usize, number: u64) {
        if let Some(place) = self.place(place) {
            place.store(place.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
        }
    }
}
