//! One message for many: framed once, and compressed once.
//!
//! An application that tells all its clients the same sends the same object to each of them. What a frame of it looks like is
//! kept from the second of them on, until another message is sent.

use pyo3::prelude::*;
use wire::ws::{Kind, Prepared};

use crate::base::objects::same;

/// Larger messages are not kept.
const LARGEST: usize = 64 * 1024;

struct Message {
    /// Of a type whose objects never change, and held: so no other can be taken for it.
    object: Py<PyAny>,
    /// The address of the last receiver. One client that gets the same again is not many.
    receiver: usize,
    prepared: Option<Prepared>,
}

/// The message that was sent last, on any connection of one event loop.
#[derive(Default)]
pub(super) struct Broadcast {
    last: Option<Message>,
}

impl Broadcast {
    /// The frame of a message that was just sent to another; otherwise it is the last one now.
    pub(super) fn prepared(
        &mut self,
        object: &Bound<'_, PyAny>,
        kind: Kind,
        payload: &[u8],
        receiver: usize,
    ) -> Option<&mut Prepared> {
        let is_known = self.last.as_ref().is_some_and(|last| same(object, &last.object) && last.receiver != receiver);
        if !is_known {
            let object = object.clone().unbind();
            let message = (payload.len() <= LARGEST).then_some(Message { object, receiver, prepared: None });
            self.last = message;
            return None;
        }
        let last = self.last.as_mut()?;
        last.receiver = receiver;
        Some(last.prepared.get_or_insert_with(|| Prepared::new(kind, payload)))
    }
}
