//! Finding where a run of allowed bytes ends, eight at a time.
//!
//! A word holds eight bytes; each expression below sets the top bit of a byte that must end the run. A borrow or carry
//! can set a top bit by mistake, but only above a byte that is marked itself, so the lowest mark is right. The one
//! exception is a value's 0xff, and [`value_end`] looks at what it stopped at. Measured against blocks of sixteen for
//! the vectoriser, and against a string search library: most runs are too short for either to pay.

const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);

/// Marks bytes under `bound`, which is at most 0x80; may mark bytes from 0x80 on.
#[inline]
const fn below(x: u64, bound: u8) -> u64 {
    x.wrapping_sub(ONES * bound as u64)
}

/// Marks `byte`, which is ASCII; may mark bytes from 0x80 on.
#[inline]
const fn equal(x: u64, byte: u8) -> u64 {
    below(x ^ (ONES * byte as u64), 1)
}

/// Marks DEL and some bytes from 0x80 on.
#[inline]
const fn delete(x: u64) -> u64 {
    x.wrapping_add(ONES)
}

/// The index of the first byte at or after `from` that `stop` marks, or `buf.len()`. `stop` must mark NUL.
#[inline]
fn until(buf: &[u8], from: usize, stop: impl Fn(u64) -> u64) -> usize {
    let mut at = from;
    while let Some(word) = buf.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let hit = stop(u64::from_le_bytes(*word)) & TOPS;
        if hit != 0 {
            return at + (hit.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    // Fewer than eight bytes are left: zeros follow them, and NUL always stops.
    let rest = buf.get(at..).unwrap_or_default();
    let word = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    at + ((stop(word) & TOPS).trailing_zeros() / 8) as usize
}

/// The end of a run of visible ASCII without `#`: what a request target may hold.
#[inline]
pub(crate) fn target_end(buf: &[u8], from: usize) -> usize {
    until(buf, from, |x| below(x, 0x21) | equal(x, b'#') | delete(x) | x)
}

/// The end of a run of visible ASCII without `#`, `%` and `?`: a part of a target in front of its query.
#[inline]
pub(crate) fn path_end(buf: &[u8], from: usize) -> usize {
    until(buf, from, |x| below(x, 0x21) | equal(x, b'#') | equal(x, b'%') | equal(x, b'?') | delete(x) | x)
}

/// The end of a run of visible ASCII without `:`: where a field name must end.
#[inline]
pub(crate) fn name_end(buf: &[u8], from: usize) -> usize {
    until(buf, from, |x| below(x, 0x21) | equal(x, b':') | delete(x) | x)
}

/// The end of a run of bytes a field value may hold (RFC 9110 section 5.5): visible, space, tab, 0x80 and above.
#[inline]
pub(crate) fn value_end(buf: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        at = until(buf, at, |x| (below(x, 0x20) | delete(x)) & !x);
        match buf.get(at) {
            // A tab, or `~` behind 0xff: rare, and stepped over here.
            Some(b'\t' | 0x20..=0x7e | 0x80..) => at += 1,
            _ => return at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte by byte, the slow and obvious way.
    fn oracle(buf: &[u8], from: usize, allowed: impl Fn(u8) -> bool) -> usize {
        (from..buf.len()).find(|&at| !allowed(buf[at])).unwrap_or(buf.len())
    }

    fn agree(buf: &[u8]) {
        for from in 0..=buf.len() {
            assert_eq!(target_end(buf, from), oracle(buf, from, |b| b.is_ascii_graphic() && b != b'#'), "{buf:?}");
            let path = |b: u8| b.is_ascii_graphic() && !b"#%?".contains(&b);
            assert_eq!(path_end(buf, from), oracle(buf, from, path), "{buf:?}");
            assert_eq!(name_end(buf, from), oracle(buf, from, |b| b.is_ascii_graphic() && b != b':'), "{buf:?}");
            let value = |b: u8| b == b'\t' || (b >= 0x20 && b != 0x7f);
            assert_eq!(value_end(buf, from), oracle(buf, from, value), "{buf:?}");
        }
    }

    #[test]
    fn every_byte_at_every_place_stops_where_the_slow_way_does() {
        for length in 1..=19 {
            for place in 0..length {
                // Miri takes its time.
                for byte in (0..=255).step_by(if cfg!(miri) { 51 } else { 1 }) {
                    let mut buf = vec![b'a'; length];
                    buf[place] = byte;
                    agree(&buf);
                }
            }
        }
    }

    #[test]
    fn neighbours_of_a_stop_do_not_hide_or_invent_one() {
        let edges = [0x00, 0x1f, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, b':', b'?', 0x7e, 0x7f, 0x80, 0x81, 0xff];
        for a in edges {
            for b in edges {
                agree(&[b'a', a, b, b'a', b, a, b'a', b'a', a, b]);
            }
        }
    }
}
