//! The fields of a section that is to be encoded.

/// The representation of a field that is in no table (RFC 7541 section 6.2, RFC 9204 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// It is put into the table: it will come again.
    Add,
    /// It is not.
    Without,
    /// It is not, and intermediaries must not either: a secret that attackers could guess by its size.
    Never,
}

/// The fields of a section, before they are encoded. Use it again: its storage stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Names and values, one behind the other.
    bytes: Vec<u8>,
    fields: Vec<Part>,
}

/// Where a name and its value end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    name: u32,
    value: u32,
    indexing: Indexing,
}

impl Section {
    /// Add a field. Its name must be in lower case, and both must be valid: nothing is checked here.
    #[inline]
    pub fn push(&mut self, name: &[u8], value: &[u8], indexing: Indexing) {
        self.bytes.extend_from_slice(name);
        let name = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.fields.push(Part { name, value: self.bytes.len() as u32, indexing });
    }

    /// Add all fields of another one.
    #[inline]
    pub fn extend(&mut self, other: &Self) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&other.bytes);
        self.fields.extend(other.fields.iter().map(|part| Part {
            name: part.name + start,
            value: part.value + start,
            indexing: part.indexing,
        }));
    }

    /// Forget the fields.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.fields.clear();
    }

    /// Bytes of all names and values.
    pub(crate) const fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], Indexing)> {
        self.fields.iter().scan(0, |start, part| {
            let name = self.bytes.get(*start as usize..part.name as usize)?;
            let value = self.bytes.get(part.name as usize..part.value as usize)?;
            *start = part.value;
            Some((name, value, part.indexing))
        })
    }
}
