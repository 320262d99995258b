//! The messages that applications send, read in one pass.

use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString, PyTuple};
use wire::texts;

use crate::base::ffi::dict::each_item;
use crate::base::names::Names;
use crate::base::objects::{copy_of, same};

/// A message of a response. A plain dict was read in one pass; anything else is asked, in the order of these calls, for
/// the keys that are needed and no others, each of which is taken once.
pub(crate) struct Message<'a, 'py> {
    object: &'a Bound<'py, PyAny>,
    values: Values<'py>,
    /// Whether these are all: it was a plain dict.
    is_read: bool,
}

/// The values of `http.response.start` and `http.response.body`; `None` if missing.
#[derive(Default)]
struct Values<'py> {
    kind: Option<Bound<'py, PyAny>>,
    status: Option<Bound<'py, PyAny>>,
    headers: Option<Bound<'py, PyAny>>,
    body: Option<Bound<'py, PyAny>>,
    more_body: Option<Bound<'py, PyAny>>,
    trailers: Option<Bound<'py, PyAny>>,
}

impl<'a, 'py> Message<'a, 'py> {
    #[inline]
    pub(crate) fn read(message: &'a Bound<'py, PyAny>, names: &Names) -> Self {
        let mut values = Values::default();
        let is_read = message.cast_exact::<PyDict>().is_ok_and(|message| values.walk(message, names));
        Self { object: message, values, is_read }
    }

    /// `message["type"]`
    #[inline]
    pub(crate) fn kind(&mut self, names: &Names) -> PyResult<Bound<'py, PyAny>> {
        self.required(|values| values.kind.take(), &names.r#type)
    }

    /// `message["status"]`
    #[inline]
    pub(crate) fn status(&mut self, names: &Names) -> PyResult<Bound<'py, PyAny>> {
        self.required(|values| values.status.take(), &names.status)
    }

    /// The fields of the response, if there are any.
    #[inline]
    pub(crate) fn headers(&mut self, names: &Names) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.optional(|values| values.headers.take(), &names.headers, |py| PyTuple::empty(py).into_any())
    }

    /// The piece of the body, if there is one.
    #[inline]
    pub(crate) fn body(&mut self, names: &Names) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.optional(|values| values.body.take(), &names.body, |py| names.empty_bytes.bind(py).clone().into_any())
    }

    /// Whether more of the body follows.
    #[inline]
    pub(crate) fn more_body(&mut self, names: &Names) -> PyResult<bool> {
        self.flag(|values| values.more_body.take(), &names.more_body)
    }

    /// Whether trailers follow the body.
    #[inline]
    pub(crate) fn trailers(&mut self, names: &Names) -> PyResult<bool> {
        self.flag(|values| values.trailers.take(), &names.trailers)
    }

    #[inline]
    fn flag(
        &mut self,
        take: impl FnOnce(&mut Values<'py>) -> Option<Bound<'py, PyAny>>,
        name: &Py<PyString>,
    ) -> PyResult<bool> {
        let no = |py| PyBool::new(py, false).to_owned().into_any();
        self.optional(take, name, no)?.map_or(Ok(false), |flag| flag.is_truthy())
    }

    #[inline]
    fn required(
        &mut self,
        take: impl FnOnce(&mut Values<'py>) -> Option<Bound<'py, PyAny>>,
        name: &Py<PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        take(&mut self.values).map_or_else(|| self.object.get_item(name), Ok)
    }

    #[inline]
    fn optional(
        &mut self,
        take: impl FnOnce(&mut Values<'py>) -> Option<Bound<'py, PyAny>>,
        name: &Py<PyString>,
        default: impl FnOnce(Python<'py>) -> Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.is_read {
            return Ok(take(&mut self.values));
        }
        self.object.call_method1("get", (name, default(self.object.py()))).map(Some)
    }
}

impl<'py> Values<'py> {
    /// Go through a dict: cheaper than a search for each key, since the keys of most messages are the interned strings
    /// that `names` has. False, and nothing is set, if there is a key that only a search can compare.
    #[inline]
    fn walk(&mut self, message: &Bound<'py, PyDict>, names: &Names) -> bool {
        let is_readable = each_item(message, |key, value| {
            if let Some(place) = self.place(names, |name| same(key, name)) {
                *place = Some(value);
                return true;
            }
            self.set_by_text(key, value, names).is_some()
        });
        if !is_readable {
            *self = Self::default();
        }
        is_readable
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
}

/// A copy of `message`, for a `send()` that must wait: what the application does with its own meanwhile, with the list of
/// headers in it and with the buffers, which have these names, changes nothing. Only plain dicts are copied: other objects may
/// answer in their own way, and are asked after the wait. Objects without a type are refused at once.
#[cold]
pub(crate) fn copy<'py, const N: usize>(
    message: &Bound<'py, PyAny>,
    names: &Names,
    buffers: [&Py<PyString>; N],
) -> PyResult<Bound<'py, PyAny>> {
    message.get_item(&names.r#type)?;
    let Ok(message) = message.cast_exact::<PyDict>() else { return Ok(message.clone()) };
    let copy = message.copy()?;
    if let Some(headers) = copy.get_item(&names.headers)?
        && let Ok(headers) = headers.cast_exact::<PyList>()
    {
        copy.set_item(&names.headers, headers.get_slice(0, headers.len()))?;
    }
    for name in buffers {
        if let Some(buffer) = copy.get_item(name)?
            && !buffer.is_exact_instance_of::<PyBytes>()
            && !buffer.is_none()
        {
            match copy_of(&buffer) {
                Ok(bytes) => copy.set_item(name, bytes)?,
                // It is refused where it is needed, as it is by a `send()` that need not wait.
                Err(error) if error.is_instance_of::<PyException>(message.py()) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(copy.into_any())
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
