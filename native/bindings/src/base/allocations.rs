//! The sampler of allocations, as Python sees it.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::ffi::{allocators, origin};
use super::samples::{Place, Table, start_counting, stop_counting, table};

/// A group of blocks: owner, stack, generation; bytes, blocks, and the variance of the bytes.
type Group = (Option<Py<PyAny>>, Py<PyTuple>, u32, f64, f64, f64);

/// Samples the allocations of this process until it is closed; there is one at a time.
#[pyclass(module = "uvicorn._native", frozen)]
pub(crate) struct AllocationSampler {}

#[pymethods]
impl AllocationSampler {
    /// Begin: a sample every `interval` bytes, with the `frames` innermost frames and the value of a context variable.
    #[new]
    fn new(interval: u64, frames: usize, variable: Bound<'_, PyAny>, seed: u64) -> PyResult<Self> {
        let py = variable.py();
        if interval == 0 || frames == 0 || !origin::is_context_variable(&variable) {
            return Err(PyValueError::new_err(
                "interval and frames must be at least 1, and the variable one of contexts",
            ));
        }
        let interpreter = origin::interpreter(py);
        {
            let mut table = table();
            if table.is_some() {
                return Err(PyRuntimeError::new_err("allocations are sampled already"));
            }
            let made = Table {
                interval,
                frames,
                generation: 0,
                interpreter,
                variable: variable.unbind(),
                blocks: HashMap::new(),
                stacks: HashMap::new(),
                codes: HashMap::new(),
                owners: HashMap::new(),
                released: Vec::new(),
            };
            start_counting(&made, seed);
            *table = Some(made);
        }
        let sampler = Self {};
        if let Err(error) = allocators::put_in_front(py) {
            sampler.close(py);
            return Err(error);
        }
        Ok(sampler)
    }

    /// Leave blocks that are allocated from now on out of snapshots, until the next mark. So a collection before a snapshot
    /// takes away all garbage that is in it, although other threads go on.
    #[expect(clippy::unused_self, reason = "it is there while one samples")]
    fn mark(&self) {
        if let Some(table) = table().as_mut() {
            table.generation += 1;
        }
    }

    /// The blocks in use that were allocated before the last mark, by owner, stack, which has code and line of its frames,
    /// innermost last, and number of marks before: estimates of their bytes and their number, and the variance of the former.
    #[expect(clippy::unused_self, reason = "it is there while one samples")]
    fn snapshot(&self, py: Python<'_>) -> PyResult<Vec<Group>> {
        let mut sums: HashMap<(u32, usize, u32), (f64, f64, f64)> = HashMap::new();
        let mut stacks: HashMap<u32, Arc<[Place]>> = HashMap::new();
        let (codes, owners): (HashMap<usize, Py<PyAny>>, HashMap<usize, Py<PyAny>>) = {
            let table = table();
            let Some(table) = table.as_ref() else { return Ok(Vec::new()) };
            for record in table.blocks.values().filter(|record| record.generation < table.generation) {
                #[expect(clippy::cast_precision_loss, reason = "an estimate")]
                let (size, share) = (record.size as f64, record.size as f64 / table.interval as f64);
                // A block of no bytes counts none, and is never sampled but instead of another.
                let likelihood = -(-share).exp_m1();
                let sum = sums.entry((record.stack, record.owner, record.generation)).or_default();
                if likelihood > 0.0 {
                    sum.0 += size / likelihood;
                    sum.1 += 1.0 / likelihood;
                    sum.2 += (size / likelihood).powi(2) * (1.0 - likelihood);
                }
            }
            stacks.extend(table.stacks.iter().map(|(places, number)| (*number, Arc::clone(places))));
            let held = |(code, object): (&usize, &Py<PyAny>)| (*code, object.clone_ref(py));
            let codes = table.codes.iter().map(held).collect();
            (codes, table.owners.iter().map(|(owner, (object, _))| (*owner, object.clone_ref(py))).collect())
        };
        // From here on the interpreter allocates.
        let mut tuples: HashMap<u32, Py<PyTuple>> = HashMap::new();
        let mut groups = Vec::with_capacity(sums.len());
        for ((stack, owner, generation), (bytes, blocks, variance)) in sums {
            let tuple = if let Some(made) = tuples.get(&stack) {
                made.clone_ref(py)
            } else {
                let places = stacks.get(&stack).map(|places| &places[..]).unwrap_or_default();
                let known = |(code, line): &Place| Some((codes.get(code)?.clone_ref(py), *line));
                let made = PyTuple::new(py, places.iter().rev().filter_map(known).collect::<Vec<_>>())?.unbind();
                tuples.insert(stack, made.clone_ref(py));
                made
            };
            let owner = owners.get(&owner).map(|object| object.clone_ref(py));
            groups.push((owner, tuple, generation, bytes, blocks, variance));
        }
        Ok(groups)
    }

    /// Drop the owners whose blocks are gone.
    #[expect(clippy::unused_self, reason = "it is there while one samples")]
    fn release(&self, _py: Python<'_>) {
        let released = table().as_mut().map(|table| std::mem::take(&mut table.released));
        drop(released);
    }

    /// End it.
    #[expect(clippy::unused_self, reason = "it is there while one samples")]
    fn close(&self, py: Python<'_>) {
        allocators::take_away(py);
        let closed = table().take();
        stop_counting();
        drop(closed); // which frees objects
    }

    /// End it in a process that was forked while another thread may have had the lock.
    #[staticmethod]
    fn abandon() {
        stop_counting();
    }
}
