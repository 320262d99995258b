//! A sample of the memory that the interpreter has allocated and not freed: a block for each `interval` bytes on average.
//!
//! The gaps between samples are random, so that each byte is as likely as any other to be in one, whatever the pattern of
//! the program. While nothing is sampled, the functions of the allocator are not ours. While it is, an allocation costs a
//! subtraction, and a release a look at a byte; the table is locked only for blocks that may be in it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::ffi::origin::{self, Origin};

/// Different stacks that are remembered.
const MOST_STACKS: usize = 16_384;

/// Blocks that are remembered.
const MOST_BLOCKS: usize = 262_144;

/// As many bits of a block's address decide where in the filter it counts.
const FILTER_BITS: u32 = 16;

/// Bytes until the next sample. Threads may overwrite each other's number without the GIL: a gap is random anyway.
static LEFT: AtomicI64 = AtomicI64::new(i64::MAX);
static RANDOM: AtomicU64 = AtomicU64::new(0);
/// A sample is being taken: what that allocates is none.
static IS_SAMPLING: AtomicBool = AtomicBool::new(false);
/// How many blocks of the table have an address with these bits. A place that was full once remains so.
static FILTER: [AtomicU8; 1 << FILTER_BITS] = [const { AtomicU8::new(0) }; 1 << FILTER_BITS];
/// There is no block outside of the filter.
static OUTSIDE: AtomicU8 = AtomicU8::new(0);
/// Never locked while the interpreter allocates or frees.
static TABLE: Mutex<Option<Table>> = Mutex::new(None);

/// Code and line.
pub(super) type Place = (usize, i32);

/// A block of memory.
pub(crate) struct Record {
    pub(super) stack: u32,
    /// Who has allocated it; 0 if that is unknown.
    pub(super) owner: usize,
    pub(super) size: usize,
    /// The number of marks before it.
    pub(super) generation: u32,
}

pub(super) struct Table {
    pub(super) interval: u64,
    pub(super) frames: usize,
    pub(super) generation: u32,
    pub(super) interpreter: usize,
    pub(super) variable: Py<PyAny>,
    pub(super) blocks: HashMap<usize, Record>,
    pub(super) stacks: HashMap<Arc<[Place]>, u32>,
    pub(super) codes: HashMap<usize, Py<PyAny>>,
    /// With the number of their blocks.
    pub(super) owners: HashMap<usize, (Py<PyAny>, usize)>,
    /// Owners without blocks: what they hold is not to be freed in the midst of an allocation.
    pub(super) released: Vec<Py<PyAny>>,
}

pub(super) fn table() -> MutexGuard<'static, Option<Table>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline]
fn counter(block: usize) -> &'static AtomicU8 {
    // Blocks begin at multiples of 16. The product's upper bits depend on all bits of the address.
    let mixed = (block as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - FILTER_BITS);
    usize::try_from(mixed).ok().and_then(|place| FILTER.get(place)).unwrap_or(&OUTSIDE)
}

/// A block was allocated, unless it is 0.
#[inline]
pub(crate) fn note(block: usize, size: usize) {
    let left = LEFT.load(Relaxed).saturating_sub_unsigned(size as u64);
    LEFT.store(left, Relaxed);
    if left < 0 {
        sample(block, size);
    }
}

/// A block is about to be freed.
#[inline]
pub(crate) fn forget(block: usize) {
    if counter(block).load(Relaxed) != 0 {
        take_known(block);
    }
}

/// An object begins in a block that may have had another one before.
#[cfg(all(Py_3_13, not(windows)))]
#[inline]
pub(crate) fn begin_again(block: usize) {
    if counter(block).load(Relaxed) != 0 {
        sample_again(block);
    }
}

#[cfg(all(Py_3_13, not(windows)))]
#[cold]
fn sample_again(block: usize) {
    let size = table().as_ref().and_then(|table| table.blocks.get(&block)).map(|record| record.size);
    if let Some(size) = size {
        guarded(|| take_sample(block, size));
    }
}

/// Return the record of a block that may move.
#[inline]
pub(crate) fn take(block: usize) -> Option<Record> {
    if counter(block).load(Relaxed) == 0 { None } else { take_known(block) }
}

/// The block has not moved.
#[cold]
pub(crate) fn restore(block: usize, record: Record) {
    if let Some(table) = table().as_mut() {
        table.put(block, record);
    }
}

#[cold]
fn take_known(block: usize) -> Option<Record> {
    table().as_mut().and_then(|table| table.take(block))
}

#[cold]
fn sample(block: usize, size: usize) {
    if block != 0 {
        guarded(|| take_sample(block, size) && spend());
    }
}

/// Begin the next gap.
fn spend() -> bool {
    let gap = table().as_ref().map_or(i64::MAX, Table::gap);
    LEFT.store(gap, Relaxed);
    true
}

/// Call it, unless a sample is being taken: then the next block is sampled instead.
fn guarded(call: impl FnOnce() -> bool) {
    if !IS_SAMPLING.swap(true, Relaxed) {
        // A panic must not leave a function that C calls.
        let _ = catch_unwind(AssertUnwindSafe(call));
        IS_SAMPLING.store(false, Relaxed);
    }
}

/// Note a block with its origin; false if that cannot be known here.
fn take_sample(block: usize, size: usize) -> bool {
    let (frames, interpreter, variable) = match table().as_ref() {
        Some(table) => (table.frames, table.interpreter, table.variable.as_ptr()),
        None => return true,
    };
    origin::with_origin(interpreter, variable, frames, |origin| {
        if let Some(table) = table().as_mut() {
            table.add(block, size, &origin);
        }
    })
}

impl Table {
    /// A random number of bytes, `interval` on average, distributed as the gaps between independent events are.
    fn gap(&self) -> i64 {
        let mut number = RANDOM.load(Relaxed);
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        RANDOM.store(number, Relaxed);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "53 bits; some bytes more or less"
        )]
        {
            let uniform = ((number >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            (-uniform.ln() * self.interval as f64) as i64
        }
    }

    fn add(&mut self, block: usize, size: usize, origin: &Origin<'_>) {
        if self.blocks.len() >= MOST_BLOCKS {
            return;
        }
        let stack = self.stack_of(origin);
        let owner = origin.owner.as_ref().map_or(0, |owner| {
            let held = self.owners.entry(owner.as_ptr().addr()).or_insert_with(|| (owner.clone().unbind(), 0));
            held.1 += 1;
            owner.as_ptr().addr()
        });
        // If the block was freed in another way, its owner is without it.
        self.take(block);
        self.insert(block, Record { stack, owner, size, generation: self.generation });
    }

    /// The number of a stack; 0 for those that are one too many.
    fn stack_of(&mut self, origin: &Origin<'_>) -> u32 {
        let places: Vec<Place> = origin.frames.iter().map(|(code, line)| (code.as_ptr().addr(), *line)).collect();
        if let Some(&known) = self.stacks.get(places.as_slice()) {
            return known;
        }
        if self.stacks.len() >= MOST_STACKS {
            return 0;
        }
        for (code, _) in &origin.frames {
            self.codes.entry(code.as_ptr().addr()).or_insert_with(|| code.clone().unbind());
        }
        let number = u32::try_from(self.stacks.len() + 1).unwrap_or_default();
        self.stacks.insert(places.into(), number);
        number
    }

    fn insert(&mut self, block: usize, record: Record) {
        self.blocks.insert(block, record);
        let _ = counter(block).fetch_update(Relaxed, Relaxed, |count| count.checked_add(1));
    }

    /// Insert a record that was taken.
    fn put(&mut self, block: usize, record: Record) {
        if let Some(held) = self.owners.get_mut(&record.owner) {
            held.1 += 1;
        }
        self.insert(block, record);
    }

    fn take(&mut self, block: usize) -> Option<Record> {
        let record = self.blocks.remove(&block)?;
        let fewer = |count| if count == u8::MAX { None } else { Some(count - 1) };
        let _ = counter(block).fetch_update(Relaxed, Relaxed, fewer);
        if let Some(held) = self.owners.get_mut(&record.owner) {
            held.1 -= 1;
            if held.1 == 0
                && let Some((owner, _)) = self.owners.remove(&record.owner)
            {
                self.released.push(owner);
            }
        }
        Some(record)
    }
}

/// Begin to count the bytes until the first sample.
pub(super) fn start_counting(table: &Table, seed: u64) {
    RANDOM.store(seed | 1, Relaxed);
    LEFT.store(table.gap(), Relaxed);
}

/// Sample and look for nothing from now on.
pub(super) fn stop_counting() {
    LEFT.store(i64::MAX, Relaxed);
    for place in &FILTER {
        place.store(0, Relaxed);
    }
}
