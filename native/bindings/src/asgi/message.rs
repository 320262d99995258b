//! The messages that applications send, read in one pass.

use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use wire::texts;

use crate::base::ffi::dict::each_item;
use crate::base::names::Names;
use crate::base::objects::{copy_of, same};

/// The keys of `http.response.start` and `http.response.body`; `None` if missing.
#[derive(Default)]
pub(crate) struct Message<'py> {
    kind: Option<Bound<'py, PyAny>>,
    status: Option<Bound<'py, PyAny>>,
    pub(crate) headers: Option<Bound<'py, PyAny>>,
    pub(crate) body: Option<Bound<'py, PyAny>>,
    more_body: Option<Bound<'py, PyAny>>,
    trailers: Option<Bound<'py, PyAny>>,
}

impl<'py> Message<'py> {
    #[inline]
    pub(crate) fn read(message: &Bound<'py, PyAny>, names: &Names) -> PyResult<Self> {
        if let Ok(message) = message.cast_exact::<PyDict>()
            && let Some(parts) = Self::walk(message, names)
        {
            return Ok(parts);
        }
        Self::look_up(message, names)
    }

    /// Go through a dict: cheaper than a search for each key, since the keys of most messages are the interned strings
    /// that `names` has. `None` if there is a key that only a search can compare.
    #[inline]
    fn walk(message: &Bound<'py, PyDict>, names: &Names) -> Option<Self> {
        let mut parts = Self::default();
        let readable = each_item(message, |key, value| {
            if let Some(place) = parts.place(names, |name| same(key, name)) {
                *place = Some(value);
                return true;
            }
            parts.set_by_text(key, value, names).is_some()
        });
        readable.then_some(parts)
    }

    /// Set the value of a key that is not the interned name but may equal it. `None` if only a search can compare the key.
    #[cold]
    fn set_by_text(&mut self, key: &Bound<'py, PyAny>, value: Bound<'py, PyAny>, names: &Names) -> Option<()> {
        let key = key.cast_exact::<PyString>().ok()?.to_str().ok()?;
        let py = value.py();
        if let Some(place) = self.place(names, |name| name.bind(py).to_str().is_ok_and(|name| name == key)) {
            *place = Some(value);
        }
        Some(())
    }

    #[inline]
    fn place(&mut self, names: &Names, is: impl Fn(&Py<PyString>) -> bool) -> Option<&mut Option<Bound<'py, PyAny>>> {
        // There are more pieces of bodies than heads.
        if is(&names.r#type) {
            Some(&mut self.kind)
        } else if is(&names.body) {
            Some(&mut self.body)
        } else if is(&names.more_body) {
            Some(&mut self.more_body)
        } else if is(&names.status) {
            Some(&mut self.status)
        } else if is(&names.headers) {
            Some(&mut self.headers)
        } else if is(&names.trailers) {
            Some(&mut self.trailers)
        } else {
            None
        }
    }

    /// Ask a mapping of any kind.
    #[cold]
    fn look_up(message: &Bound<'py, PyAny>, names: &Names) -> PyResult<Self> {
        let get = |name: &Py<PyString>| -> PyResult<Option<Bound<'py, PyAny>>> {
            let value = message.call_method1("get", (name,))?;
            Ok((!value.is_none()).then_some(value))
        };
        Ok(Self {
            kind: Some(message.get_item(&names.r#type)?),
            status: get(&names.status)?,
            headers: get(&names.headers)?,
            body: get(&names.body)?,
            more_body: get(&names.more_body)?,
            trailers: get(&names.trailers)?,
        })
    }

    /// `message["type"]`
    #[inline]
    pub(crate) fn kind(&self, names: &Names) -> PyResult<&Bound<'py, PyAny>> {
        self.kind.as_ref().ok_or_else(|| missing(&names.r#type))
    }

    /// `message["status"]`
    #[inline]
    pub(crate) fn status(&self, names: &Names) -> PyResult<&Bound<'py, PyAny>> {
        self.status.as_ref().ok_or_else(|| missing(&names.status))
    }

    /// Whether trailers follow the body.
    #[inline]
    pub(crate) fn trailers(&self) -> PyResult<bool> {
        self.trailers.as_ref().map_or(Ok(false), Bound::is_truthy)
    }

    /// Whether more of the body follows.
    #[inline]
    pub(crate) fn more_body(&self) -> PyResult<bool> {
        self.more_body.as_ref().map_or(Ok(false), Bound::is_truthy)
    }
}

/// A copy of `message`, for a `send()` that must wait: what the application does with its own meanwhile, and with the
/// buffers in it, which have these names, changes nothing.
#[cold]
pub(crate) fn copy<'py, const N: usize>(
    message: &Bound<'py, PyAny>,
    buffers: [&Py<PyString>; N],
) -> PyResult<Bound<'py, PyDict>> {
    let copy = message.py().get_type::<PyDict>().call1((message,))?.cast_into::<PyDict>()?;
    for name in buffers {
        if let Some(buffer) = copy.get_item(name)?
            && !buffer.is_exact_instance_of::<PyBytes>()
            && !buffer.is_none()
        {
            copy.set_item(name, copy_of(&buffer)?)?;
        }
    }
    Ok(copy)
}

#[cold]
fn missing(name: &Py<PyString>) -> PyErr {
    Python::attach(|py| PyKeyError::new_err((name.clone_ref(py),)))
}

/// Call `with` for each field that is a tuple of two `bytes`. Returns `false` at the first other field, or if `headers` is
/// neither list nor tuple.
#[inline]
pub(crate) fn each_plain_field<E>(
    headers: &Bound<'_, PyAny>,
    with: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<bool, E> {
    if let Ok(headers) = headers.cast_exact::<PyList>() {
        return each_plain_pair(headers.iter(), with);
    }
    headers.cast_exact::<PyTuple>().map_or(Ok(false), |headers| each_plain_pair(headers.iter(), with))
}

#[inline]
fn each_plain_pair<'py, E>(
    headers: impl Iterator<Item = Bound<'py, PyAny>>,
    mut with: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<bool, E> {
    for header in headers {
        let Ok(pair) = header.cast_exact::<PyTuple>() else { return Ok(false) };
        let [name, value] = pair.as_slice() else { return Ok(false) };
        let (Ok(name), Ok(value)) = (name.cast::<PyBytes>(), value.cast::<PyBytes>()) else { return Ok(false) };
        with(name.as_bytes(), value.as_bytes())?;
    }
    Ok(true)
}

/// Use the two byte strings, or whatever is bytes-like, of a header, a tuple or any other sequence of two.
#[inline]
pub(crate) fn with_pair<R>(
    header: &Bound<'_, PyAny>,
    use_pair: impl FnOnce(&[u8], &[u8]) -> PyResult<R>,
) -> PyResult<R> {
    if let Ok(pair) = header.cast_exact::<PyTuple>()
        && let [name, value] = pair.as_slice()
    {
        return with_bytes(name, value, use_pair);
    }
    let (name, value) = header.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>().or_else(|_| {
        let items: Vec<Bound<'_, PyAny>> = header.try_iter()?.collect::<PyResult<_>>()?;
        match <[_; 2]>::try_from(items) {
            Ok([name, value]) => Ok((name, value)),
            Err(_) => Err(PyValueError::new_err("A header must be a pair of name and value.")),
        }
    })?;
    with_bytes(&name, &value, use_pair)
}

#[inline]
fn with_bytes<R>(
    name: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    use_pair: impl FnOnce(&[u8], &[u8]) -> PyResult<R>,
) -> PyResult<R> {
    if let (Ok(name), Ok(value)) = (name.cast::<PyBytes>(), value.cast::<PyBytes>()) {
        return use_pair(name.as_bytes(), value.as_bytes());
    }
    match copy_field(name, value) {
        Ok((name, value)) => use_pair(name.as_bytes(), value.as_bytes()),
        Err(error) if error.is_instance_of::<PyTypeError>(name.py()) => {
            Err(PyTypeError::new_err(texts::field_type(name.repr()?, value.repr()?)))
        }
        Err(error) => Err(error),
    }
}

/// The present content of two bytes-like objects.
#[cold]
fn copy_field<'py>(
    name: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    Ok((copy_of(name)?, copy_of(value)?))
}
