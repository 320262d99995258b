//! Field sections on one event loop: the request that is being read, and the fields that each response begins with.

use std::cell::RefCell;

use pyo3::prelude::*;
use wire::error::AppError;
use wire::fields::{Defaults, ResponseHead, Scratch};

use super::pairs::StaticPairs;
use crate::base::clock::DefaultHead;
use crate::base::error::exception;
use crate::base::names::Names;
use crate::base::reuse::{Reuse, Single};

/// Shared by the connections of one version; nothing in it may be borrowed across a call into Python.
pub(crate) struct Sections {
    pub(crate) pairs: StaticPairs,
    /// One for all connections. One that is served inside the turn of another has one of its own.
    scratch: Single<Box<Scratch>>,
    default_head: DefaultHead,
    defaults: RefCell<Defaults>,
    /// A field that these responses do not begin with.
    without: Option<&'static [u8]>,
}

impl Sections {
    pub(crate) fn new(reuse: Reuse, without: Option<&'static [u8]>) -> Self {
        Self {
            pairs: StaticPairs::default(),
            scratch: Single::new(reuse),
            default_head: DefaultHead::default(),
            defaults: RefCell::default(),
            without,
        }
    }

    /// A field that these responses do not begin with.
    pub(crate) const fn without(&self) -> Option<&'static [u8]> {
        self.without
    }

    /// Run `body` with scratch in which there is no request, and leave none in it.
    #[inline]
    pub(crate) fn with_scratch<R>(&self, body: impl FnOnce(&mut Scratch) -> R) -> R {
        let mut scratch = self.scratch.take().unwrap_or_default();
        let result = body(&mut scratch);
        scratch.clear();
        self.scratch.give(scratch);
        result
    }

    /// Bring the fields that each response begins with up to date. `state` is the Python `ServerState`.
    #[inline]
    pub(crate) fn refresh_defaults(&self, state: &Bound<'_, PyAny>, names: &Names) -> PyResult<()> {
        if self.default_head.refresh(state, names)? {
            let fields = self.default_head.with(|lines| read_fields(lines, self.without)).map_err(exception)?;
            self.defaults.replace(fields);
        }
        Ok(())
    }

    /// Add them.
    #[inline]
    pub(crate) fn add_defaults<S>(&self, head: &mut ResponseHead<S>) {
        head.defaults(&self.defaults.borrow());
    }

    /// Show each of them to `with`.
    pub(crate) fn each_default(&self, with: impl FnMut((&[u8], &[u8]))) {
        self.defaults.borrow().iter().for_each(with);
    }
}

/// The lines of fields, each ended by CRLF, but for those of the one named `without`.
pub(crate) fn lines_without<'a>(lines: &'a [u8], without: Option<&'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    lines
        .split_inclusive(|&byte| byte == b'\n')
        .filter(move |line| without.is_none_or(|without| name_of(line) != Some(without)))
}

fn name_of(line: &[u8]) -> Option<&[u8]> {
    line.iter().position(|&byte| byte == b':').and_then(|colon| line.get(..colon))
}

/// The fields of these lines, but for the one named `without`.
fn read_fields(lines: &[u8], without: Option<&[u8]>) -> Result<Defaults, AppError> {
    let mut fields = Defaults::default();
    for line in lines_without(lines, without) {
        if let Some(name) = name_of(line) {
            fields.add(name, line.get(name.len() + 1..).unwrap_or_default().trim_ascii())?;
        }
    }
    Ok(fields)
}
