//! The headers of a scope: made once for the field sections that come again and again.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use wire::h1::Sections;
use wire::h1::request::Head;
use wire::h1::sections::Number;
use wire::headers::Name;

use crate::asgi::fields::FieldTuples;
use crate::asgi::host::Host;
use crate::asgi::identity::Identity;
use crate::asgi::scope::Fields;

/// The header lists of field sections that came word for word before, by the numbers of [`Sections`].
pub(crate) struct KeptHeaders {
    host: Rc<Host>,
    pub(super) sections: RefCell<Sections>,
    tuples: FieldTuples,
    lists: RefCell<Vec<Option<Kept>>>,
}

struct Kept {
    number: Number,
    list: Py<PyList>,
    forwarded: bool,
    /// One of its fields may be the id of the request, or the parent of its span.
    names_request: bool,
    names_parent: bool,
}

/// The fields of a head, which was parsed from `input`.
pub(super) struct HeadFields<'a> {
    pub(super) kept: &'a KeptHeaders,
    pub(super) head: &'a Head,
    pub(super) input: &'a [u8],
}

impl Fields for HeadFields<'_> {
    #[inline]
    fn are(&self, list: &Py<PyList>) -> bool {
        self.kept.matches(list, self.head)
    }

    #[inline]
    fn list<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, Option<Py<PyList>>)> {
        self.kept.headers(py, self)
    }

    fn name_request(&self, identity: &Identity) -> bool {
        if self.head.is_recalled() {
            self.kept.find(self.head, |kept| kept.names_request).unwrap_or(true)
        } else {
            identity.is_named_in(&self.head.fields, self.input)
        }
    }

    fn name_parent(&self) -> bool {
        if self.head.is_recalled() {
            self.kept.find(self.head, |kept| kept.names_parent).unwrap_or(true)
        } else {
            has_parent(self.head)
        }
    }
}

impl KeptHeaders {
    pub(super) fn new(host: Rc<Host>) -> Self {
        Self { host, sections: RefCell::default(), tuples: FieldTuples::default(), lists: RefCell::default() }
    }

    /// The headers of a scope: a list of its own, of tuples that may be shared because they cannot change; and the list
    /// that it is a copy of, if any.
    #[inline]
    fn headers<'py>(
        &self,
        py: Python<'py>,
        fields: &HeadFields<'_>,
    ) -> PyResult<(Bound<'py, PyList>, Option<Py<PyList>>)> {
        let head = fields.head;
        if head.is_recalled() {
            if let Some(list) = self.find(head, |kept| kept.list.clone_ref(py)) {
                let copy = list.bind(py).get_slice(0, list.bind(py).len());
                return Ok((copy, Some(list)));
            }
            return Ok((self.read_again(py, fields)?, None));
        }
        let list = self.read(py, fields, head)?;
        self.keep(&list, head.memory.number(), fields, head);
        Ok((list, None))
    }

    #[inline]
    fn read<'py>(&self, py: Python<'py>, fields: &HeadFields<'_>, head: &Head) -> PyResult<Bound<'py, PyList>> {
        let input = fields.input;
        self.tuples.list(py, &self.host.names, &head.fields, head.target.authority.of(input), input)
    }

    /// The section is known, but its list is not here: it could not be built then, or the section has been evicted
    /// since the head was read.
    #[cold]
    fn read_again<'py>(&self, py: Python<'py>, fields: &HeadFields<'_>) -> PyResult<Bound<'py, PyList>> {
        let mut again = Head::default();
        let parsed = again.parse(fields.input, &self.host.settings.limits);
        parsed.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let list = self.read(py, fields, &again)?;
        self.keep(&list, fields.head.memory.number(), fields, &again);
        Ok(list)
    }

    /// Keep a copy of `list`, made of `head`, if its section has a number.
    #[inline]
    fn keep(&self, list: &Bound<'_, PyList>, number: Option<Number>, fields: &HeadFields<'_>, head: &Head) {
        let Some(number) = number else { return };
        let identity = self.host.identity.as_ref();
        let names_request = identity.is_some_and(|identity| identity.is_named_in(&head.fields, fields.input));
        let list = list.get_slice(0, list.len()).unbind();
        let kept = Kept { number, list, forwarded: has_forwarded(head), names_request, names_parent: has_parent(head) };
        let mut lists = self.lists.borrow_mut();
        if lists.len() <= number.place() {
            lists.resize_with(number.place() + 1, || None);
        }
        let old = lists.get_mut(number.place()).and_then(|place| place.replace(kept));
        drop(lists);
        drop(old);
    }

    /// The list of the section of `head`, if it is still here.
    #[inline]
    fn find<R>(&self, head: &Head, look: impl FnOnce(&Kept) -> R) -> Option<R> {
        let number = head.memory.number()?;
        let lists = self.lists.borrow();
        lists.get(number.place())?.as_ref().filter(|kept| kept.number == number).map(look)
    }

    /// Whether the headers of the request are those in `list`, one of ours.
    #[inline]
    fn matches(&self, list: &Py<PyList>, head: &Head) -> bool {
        head.is_recalled() && self.find(head, |kept| kept.list.is(list)).unwrap_or(false)
    }

    /// Whether the request has a field that the proxy headers middleware looks at.
    #[inline]
    pub(super) fn is_forwarded(&self, head: &Head) -> bool {
        if head.is_recalled() { self.find(head, |kept| kept.forwarded).unwrap_or(true) } else { has_forwarded(head) }
    }
}

fn has_forwarded(head: &Head) -> bool {
    head.fields.iter().any(|field| matches!(field.known, Name::XForwardedFor | Name::XForwardedProto))
}

fn has_parent(head: &Head) -> bool {
    head.fields.iter().any(|field| field.known == Name::Traceparent)
}
