//! The state that the connections of one event loop share, in any protocol.

use std::cell::RefCell;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyType;

use super::buffers::BufferPool;
use super::deadline::Deadlines;
use crate::base::connections::Connections;
use crate::base::home::Home;

/// Shared by reference counting inside one thread; nothing in it may be borrowed across a call into Python.
pub(crate) struct Hub {
    home: Rc<Home>,
    pub(crate) deadlines: Rc<Deadlines>,
    pub(crate) buffers: BufferPool,
    /// The set of live protocol objects.
    pub(crate) connections: Connections,
    /// `hang_up.HangUps`, for transports, once it is needed.
    hang_ups: RefCell<Option<Py<PyAny>>>,
    last_address: RefCell<Option<Py<PyAny>>>,
    /// The class of protocols that no program has changed.
    pub(crate) untouched: RefCell<Option<Py<PyType>>>,
}

impl Hub {
    pub(crate) fn new(home: Rc<Home>, state: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            deadlines: Rc::new(Deadlines::new(home.clone())),
            buffers: BufferPool::new(home.settings.reuse),
            connections: Connections::new(state)?,
            hang_ups: RefCell::default(),
            last_address: RefCell::default(),
            untouched: RefCell::default(),
            home,
        })
    }

    #[inline]
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn share_home(&self) -> Rc<Home> {
        self.home.clone()
    }

    /// Reports the ends of connections that are not read.
    pub(crate) fn hang_ups<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(made) = &*self.hang_ups.borrow() {
            return Ok(made.bind(py).clone());
        }
        let class = py.import("uvicorn.protocols.http.h1.hang_up")?.getattr("HangUps")?;
        let made = class.call1((&self.home.event_loop, &self.home.context))?;
        self.hang_ups.replace(Some(made.clone().unbind()));
        Ok(made)
    }

    /// The address of this end, made once for connections that arrive at the same one.
    pub(crate) fn server_address(&self, address: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = address.py();
        let last = self.last_address.borrow().as_ref().map(|made| made.clone_ref(py));
        if let Some(made) = last
            && (made.is(address) || made.bind(py).eq(address)?)
        {
            return Ok(made);
        }
        let made = address.clone().unbind();
        let old = self.last_address.replace(Some(made.clone_ref(py)));
        drop(old);
        Ok(made)
    }

    /// The server has ended.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.deadlines.disarm(py)?;
        let hang_ups = self.hang_ups.take();
        hang_ups.map_or(Ok(()), |hang_ups| hang_ups.bind(py).call_method0("close").map(drop))
    }
}
