//! The objects that an object refers to, as it shows them to the collector: the shortcut `spans`.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;

use super::refcount::is_held_by;

/// Most that are looked for, and room for one more.
const ROOM: usize = 3;

/// The referents of an object, its class left out.
struct Referents {
    class: *mut ffi::PyObject,
    found: [*mut ffi::PyObject; ROOM],
    count: usize,
}

/// Note a referent.
///
/// # Safety
///
/// `object` is live, and `referents` those that `referents_of` passes.
unsafe extern "C" fn note(object: *mut ffi::PyObject, referents: *mut c_void) -> c_int {
    // SAFETY: it is the `Referents` of the call below, which nothing else uses meanwhile.
    let referents = unsafe { &mut *referents.cast::<Referents>() };
    if !ptr::eq(object, referents.class) {
        if let Some(place) = referents.found.get_mut(referents.count) {
            *place = object;
        }
        referents.count += 1;
    }
    0
}

/// The referents of a live object; `None` if there are not exactly `N`.
#[inline]
fn referents_of<'py, const N: usize>(object: &Bound<'py, PyAny>) -> Option<[Bound<'py, PyAny>; N]> {
    // SAFETY: `tp_traverse` of a live object calls `note` with each of its referents, all of which live, and runs no Python
    // code. Each gets a reference of its own before any can run.
    unsafe {
        let class = ffi::Py_TYPE(object.as_ptr());
        let mut referents = Referents { class: class.cast(), found: [ptr::null_mut(); ROOM], count: 0 };
        (*class).tp_traverse?(object.as_ptr(), note, (&raw mut referents).cast());
        if referents.count != N {
            return None;
        }
        let found = referents.found.first_chunk::<N>()?;
        Some(found.map(|referent| Bound::from_borrowed_ptr(object.py(), referent)))
    }
}

/// Whether `object` refers to these objects only, besides its class: it has no attributes either.
#[inline]
pub(crate) fn refers_to<const N: usize>(object: &Bound<'_, PyAny>, expected: [&Bound<'_, PyAny>; N]) -> bool {
    referents_of::<N>(object).is_some_and(|found| expected.iter().all(|one| found.iter().any(|other| other.is(one))))
}

/// Whether `context`, a `contextvars.Context`, has `value` for `variable` and nothing else, and shares this with no copy
/// of it. A context refers to the map of its variables, which its copies share, and that to a node with its items.
#[inline]
pub(crate) fn has_alone(context: &Bound<'_, PyAny>, variable: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> bool {
    // Each is held by the object before it, and here.
    let Some([map]) = referents_of(context).filter(|[map]| is_held_by(map, 2)) else { return false };
    let Some([node]) = referents_of(&map).filter(|[node]| is_held_by(node, 2)) else { return false };
    refers_to(&node, [variable, value])
}
