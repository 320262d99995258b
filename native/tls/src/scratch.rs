//! Memory that the sessions of one thread share: it is used while one of them works, so an idle session holds none.

/// Room for records on their way.
#[derive(Default)]
pub struct Scratch {
    /// Records of the peer.
    pub(crate) input: Vec<u8>,
    /// Records for the peer.
    pub output: Output,
    /// Small pieces that become one record.
    pub(crate) gathered: Vec<u8>,
}

impl Scratch {
    /// Overwrite its contents, as other sessions may.
    pub fn spoil(&mut self) {
        self.input.fill(0xA5);
    }

    /// At least `least` bytes of room for records of the peer.
    pub(crate) fn reserve(&mut self, least: usize) -> &mut Vec<u8> {
        if self.input.len() < least {
            self.input.resize(least, 0);
        }
        &mut self.input
    }
}

/// Records in their order.
#[derive(Default)]
pub struct Output {
    /// Behind `length` is room that need not be cleared again.
    room: Vec<u8>,
    length: usize,
}

impl Output {
    /// The records.
    pub fn bytes(&self) -> &[u8] {
        self.room.get(..self.length).unwrap_or_default()
    }

    /// They are sent, or copied.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// At least `least` bytes of room behind the records.
    pub(crate) fn room(&mut self, least: usize) -> &mut [u8] {
        if self.room.len() < self.length + least {
            self.room.resize(self.length + least, 0);
        }
        self.room.get_mut(self.length..).unwrap_or_default()
    }

    /// Records fill `written` bytes of the room.
    pub(crate) fn advance(&mut self, written: usize) {
        self.length += written;
    }
}
