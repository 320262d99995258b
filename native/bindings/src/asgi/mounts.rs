//! Files that the server answers with itself: which requests they are asked for by. What the answer is, is decided by
//! `uvicorn/files/mounted.py`, for every implementation.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

/// A response whose body is here: status, header fields, body.
pub(super) type Whole<'py> = (u16, Bound<'py, PyAny>, Bound<'py, PyBytes>);

/// The directories of one event loop.
pub(crate) struct Mounts {
    /// Of the paths that may be theirs, unless there is a `%` in them.
    prefixes: Vec<Vec<u8>>,
    object: Py<PyAny>,
    answer: Py<PyAny>,
    /// `mounted.Answer`
    kind: Py<PyType>,
}

impl Mounts {
    /// Those of a configuration, if it has any.
    pub(super) fn of_config(config: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = config.py();
        if !config.getattr("mounts")?.is_truthy()? {
            return Ok(None);
        }
        let module = py.import("uvicorn.files.mounted")?;
        let mounts = module.getattr("Mounts")?.call_method1("from_config", (config,))?;
        Ok(Some(Self {
            prefixes: mounts.getattr("prefixes")?.extract()?,
            answer: mounts.getattr("answer")?.unbind(),
            object: mounts.unbind(),
            kind: module.getattr("Answer")?.cast_into()?.unbind(),
        }))
    }

    /// Whether a path, as it was sent, may be one of theirs.
    pub(super) fn may_have(&self, path: &[u8]) -> bool {
        path.contains(&b'%') || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }

    /// What answers a request, if it is theirs; `forwarded`: it has fields that proxies write. The file is opened, and
    /// read if it is short.
    pub(super) fn answer(&self, scope: &Bound<'_, PyAny>, forwarded: bool) -> PyResult<Option<Py<PyAny>>> {
        let answer = self.answer.bind(scope.py()).call1((scope, forwarded))?;
        Ok(if answer.is_none() { None } else { Some(answer.unbind()) })
    }

    /// Whether `app` is an answer of theirs.
    pub(super) fn has_made(&self, app: &Bound<'_, PyAny>) -> bool {
        app.get_type().is(&self.kind)
    }

    /// The answer that `app` is, if it is one of theirs and its body is here.
    pub(super) fn whole<'py>(&self, app: &Bound<'py, PyAny>) -> PyResult<Option<Whole<'py>>> {
        let py = app.py();
        if !self.has_made(app) {
            return Ok(None);
        }
        match app.getattr(intern!(py, "body"))?.cast_into::<PyBytes>() {
            Ok(body) => {
                Ok(Some((app.getattr(intern!(py, "status"))?.extract()?, app.getattr(intern!(py, "headers"))?, body)))
            }
            Err(_) => Ok(None),
        }
    }

    /// The server has ended.
    pub(super) fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.object.bind(py).call_method0("close").map(drop)
    }
}
