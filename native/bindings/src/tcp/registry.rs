//! The sockets of one event loop, each under a token that never comes to mean another one.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::socket::Socket;

#[derive(Default)]
struct Entry {
    /// How many sockets had this place before.
    generation: u32,
    socket: Option<Rc<Socket>>,
}

/// The sockets by their tokens.
#[derive(Default)]
pub(super) struct Registry {
    slots: RefCell<Vec<Entry>>,
    free: RefCell<Vec<u32>>,
    count: Cell<usize>,
}

impl Registry {
    /// Insert the socket that `make` builds from its token.
    pub(super) fn insert(&self, make: impl FnOnce(u64) -> Socket) -> Rc<Socket> {
        let mut slots = self.slots.borrow_mut();
        let free = self.free.borrow_mut().pop();
        let index = free.unwrap_or_else(|| {
            slots.push(Entry::default());
            slots.len() as u32 - 1
        });
        let generation = slots.get(index as usize).map_or(0, |slot| slot.generation);
        let socket = Rc::new(make(u64::from(generation) << 32 | u64::from(index)));
        if let Some(slot) = slots.get_mut(index as usize) {
            slot.socket = Some(socket.clone());
        }
        self.count.set(self.count.get() + 1);
        socket
    }

    /// The socket of a token; `None` if it is gone.
    #[inline]
    pub(super) fn get(&self, token: u64) -> Option<Rc<Socket>> {
        let slots = self.slots.borrow();
        let slot = slots.get((token & u64::from(u32::MAX)) as usize)?;
        if u64::from(slot.generation) != token >> 32 {
            return None;
        }
        slot.socket.clone()
    }

    /// The socket is gone.
    pub(super) fn remove(&self, token: u64) {
        let index = (token & u64::from(u32::MAX)) as u32;
        let gone = match self.slots.borrow_mut().get_mut(index as usize) {
            Some(slot) if u64::from(slot.generation) == token >> 32 => {
                slot.generation = slot.generation.wrapping_add(1) & (u32::MAX >> 1);
                slot.socket.take()
            }
            _ => None,
        };
        if gone.is_some() {
            self.count.set(self.count.get() - 1);
            self.free.borrow_mut().push(index);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count.get()
    }
}
