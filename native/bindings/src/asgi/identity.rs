//! The id of a request: taken over from a peer that is trusted, or made. The rules, and the same for the
//! implementations in Python, are in `uvicorn/access/request_id.py`.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyCFunction, PyDict, PyList, PyString, PyTuple};
use wire::headers::{Field, Name};
use wire::trace_context;

use super::message::each_plain_field;
use super::peer::Peer;
use crate::base::ffi::text::OwnText;
use crate::base::objects::text;

/// Digits of an id that is made: of 128 bits at random.
const DIGITS: usize = 32;
/// References to an unused id that is in a scope: the scope, its `Loan`, and the caller who may overwrite it.
const HOLDERS: isize = 3;
/// Ids that are made of one seed of the system's.
const BATCH: usize = 256;

const TRACEPARENT: &[u8] = b"traceparent";

/// How often this process has come out of a fork: parent and child must not make the same random ids.
static FORKS: AtomicUsize = AtomicUsize::new(0);
static WATCHES_FORKS: PyOnceLock<()> = PyOnceLock::new();

/// A field of the server's own, for a response that has none of this name.
#[derive(Clone, Copy)]
pub(crate) struct OwnField<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    prefix: &'a [u8],
}

impl<'a> OwnField<'a> {
    pub(super) fn new(identity: &'a Identity, value: &'a [u8]) -> Self {
        Self { name: &identity.name, value, prefix: &identity.prefix }
    }

    /// Name and value.
    pub(crate) fn pair(self) -> (&'a [u8], &'a [u8]) {
        (self.name, self.value)
    }

    /// Append it as a line.
    #[inline]
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.reserve(self.prefix.len() + self.value.len() + 2);
        for part in [self.prefix, self.value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
}

/// Use each field of a response, and leave `own` only if none has its name; `false` as `each_plain_field` has it.
#[inline]
pub(crate) fn each_field_beside<E>(
    own: &mut Option<&OwnField<'_>>,
    headers: Option<&Bound<'_, PyAny>>,
    mut with: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<bool, E> {
    let Some(headers) = headers else { return Ok(true) };
    let Some(OwnField { name: reserved, .. }) = *own else { return each_plain_field(headers, with) };
    each_plain_field(headers, |name, value| {
        // The application's own field takes precedence.
        *own = own.filter(|_| !name.eq_ignore_ascii_case(reserved));
        with(name, value)
    })
}

/// Finds or generates the ids of requests, if `request_id` is set.
pub(crate) struct Identity {
    /// Of the field, in lower case.
    pub(crate) name: Vec<u8>,
    /// The name and the separator that precedes its value.
    pub(crate) prefix: Vec<u8>,
    known: Name,
    /// The `RequestIds` of Python.
    python: Py<PyAny>,
    made: RefCell<Made>,
    /// The text of an unused id is overwritten with the next.
    rewrites: bool,
}

/// Digits at random, and how many of them are used up.
#[derive(Default)]
struct Made {
    digits: Vec<u8>,
    used: usize,
    forks: usize,
}

impl Made {
    #[inline]
    fn is_used_up(&self) -> bool {
        self.used >= self.digits.len() || self.forks != FORKS.load(Ordering::Relaxed)
    }

    #[inline]
    fn next(&mut self) -> &[u8] {
        let begin = self.used;
        self.used += DIGITS;
        self.digits.get(begin..self.used).unwrap_or_default()
    }
}

impl Identity {
    /// Of the server that `state` is of, if `config` asks for it.
    pub(super) fn new(config: &Bound<'_, PyAny>, state: &Bound<'_, PyAny>, rewrites: bool) -> PyResult<Option<Self>> {
        let py = config.py();
        let python = state.call_method1("request_ids", (config,))?;
        if python.is_none() {
            return Ok(None);
        }
        watch_forks(py)?;
        let name = python.getattr("name")?.cast_into::<PyBytes>()?.as_bytes().to_vec();
        Ok(Some(Self {
            known: Name::classify(&name),
            prefix: [&name, b": ".as_slice()].concat(),
            name,
            python: python.unbind(),
            made: RefCell::default(),
            rewrites,
        }))
    }

    /// Whether this is one of the fields that are looked at.
    #[inline]
    pub(crate) fn is_named<'a>(&self, known: Name, name: impl FnOnce() -> &'a [u8]) -> bool {
        match known {
            Name::Traceparent => true,
            Name::Other => self.known == Name::Other && name().eq_ignore_ascii_case(&self.name),
            known => known == self.known,
        }
    }

    /// Whether one of these fields is.
    pub(crate) fn is_named_in(&self, fields: &[Field], input: &[u8]) -> bool {
        fields.iter().any(|field| self.is_named(field.known, || field.name.of(input)))
    }

    /// The id of a request with these headers; `is_named`: one of them may name it. A generated id is put into `last`,
    /// which holds that of the previous request if it is still in the scope.
    #[inline]
    pub(super) fn of<'py>(
        &self,
        py: Python<'py>,
        peer: &Peer,
        headers: Option<&Bound<'py, PyAny>>,
        is_named: impl FnOnce() -> bool,
        last: &mut Option<OwnText>,
    ) -> PyResult<Bound<'py, PyString>> {
        if is_named()
            && peer.is_trusted(|client| self.python.bind(py).call_method1("trusts", (client,))?.is_truthy())?
            && let Some(Ok(headers)) = headers.map(Bound::cast::<PyList>)
            && let Some(id) = self.taken(headers)
        {
            return Ok(id);
        }
        self.make(py, last)
    }

    /// The id in the headers.
    fn taken<'py>(&self, headers: &Bound<'py, PyList>) -> Option<Bound<'py, PyString>> {
        let (mut ids, mut parents) = (Single::None, Single::None);
        let fields: Vec<_> = headers.iter().filter_map(|field| field.cast_into::<PyTuple>().ok()).collect();
        for field in &fields {
            let [name, value] = field.as_slice() else { continue };
            let (Ok(name), Ok(value)) = (name.cast::<PyBytes>(), value.cast::<PyBytes>()) else { continue };
            if name.as_bytes() == self.name {
                ids = ids.and(value.as_bytes());
            } else if name.as_bytes() == TRACEPARENT {
                parents = parents.and(value.as_bytes());
            }
        }
        let id = ids.only().filter(|id| is_request_id(id)).or_else(|| trace_id(parents.only()?))?;
        Some(text(headers.py(), id))
    }

    #[inline]
    fn make<'py>(&self, py: Python<'py>, last: &mut Option<OwnText>) -> PyResult<Bound<'py, PyString>> {
        if self.made.borrow().is_used_up() {
            self.refill(py)?;
        }
        let mut made = self.made.borrow_mut();
        let digits = made.next();
        if let Some(last) = last
            && self.rewrites
            && last.rewrite(py, HOLDERS, digits)
        {
            return Ok(last.get(py));
        }
        Ok(last.insert(OwnText::new(py, digits)?).get(py))
    }

    #[cold]
    fn refill(&self, py: Python<'_>) -> PyResult<()> {
        let forks = FORKS.load(Ordering::Relaxed);
        let seed = py.import("os")?.call_method1("urandom", (size_of::<<ChaCha12Rng as SeedableRng>::Seed>(),))?;
        let mut random = [0; BATCH * DIGITS / 2];
        ChaCha12Rng::from_seed(seed.cast::<PyBytes>()?.as_bytes().try_into()?).fill_bytes(&mut random);
        let digits = random.iter().flat_map(|byte| [byte >> 4, byte & 15].map(digit)).collect();
        self.made.replace(Made { digits, used: 0, forks });
        Ok(())
    }
}

const fn digit(half: u8) -> u8 {
    half + if half < 10 { b'0' } else { b'a' - 10 }
}

/// Have `FORKS` count, in the children.
fn watch_forks(py: Python<'_>) -> PyResult<()> {
    WATCHES_FORKS
        .get_or_try_init(py, || {
            let os = py.import("os")?;
            if !os.hasattr("register_at_fork")? {
                return Ok(());
            }
            let note = PyCFunction::new_closure(py, None, None, |_, _| {
                FORKS.fetch_add(1, Ordering::Relaxed);
            })?;
            let keywords = PyDict::new(py);
            keywords.set_item("after_in_child", note)?;
            os.call_method("register_at_fork", (), Some(&keywords)).map(drop)
        })
        .map(|&()| ())
}

/// The values of a field that should come once.
enum Single<'a> {
    None,
    One(&'a [u8]),
    Many,
}

impl<'a> Single<'a> {
    fn and(self, value: &'a [u8]) -> Self {
        if matches!(self, Self::None) { Self::One(value) } else { Self::Many }
    }

    fn only(self) -> Option<&'a [u8]> {
        if let Self::One(value) = self { Some(value) } else { None }
    }
}

/// Longest id that is taken over.
const MAX_REQUEST_ID: usize = 128;

/// Whether a value can be taken over as an id.
pub(super) fn is_request_id(value: &[u8]) -> bool {
    let stays = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:/+=@-".contains(byte);
    (1..=MAX_REQUEST_ID).contains(&value.len()) && value.iter().all(stays)
}

/// The trace id of a `traceparent`.
fn trace_id(value: &[u8]) -> Option<&[u8]> {
    trace_context::parse(value).and_then(|_| value.get(3..3 + DIGITS))
}
