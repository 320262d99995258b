//! Memory of this process.

use pyo3::prelude::*;

use super::ffi::descriptor;

/// Have the C library keep up to `size` bytes of freed memory for the next who ask for some, and say whether it can.
#[pyfunction]
pub(crate) fn keep_freed_memory(size: i32) -> bool {
    descriptor::keep_freed(size)
}
