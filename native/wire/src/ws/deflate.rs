//! permessage-deflate (RFC 7692): the streams that compress and inflate messages.
//!
//! The library is zlib-rs, without flate2 around it: that hides how much memory a stream takes. Its streams are large
//! whatever the window (about 46 KiB to inflate, 161 KiB to compress), and its levels are not zlib's: 1 writes a message in
//! the fixed code as it reads it, 3 works out a code for each. So streams belong to a [`StreamPool`] and connections have them for
//! one message:
//!
//! - What a client's messages may refer to is the end of those before. A connection keeps that, 4 KiB unless the client
//!   insists on more, and a stream is given it when the next message comes.
//! - A stream that compresses would have to read its history again for that, which takes longer than most messages. Those
//!   of a bounded number of connections stay with them ([`Settings::kept`]); the others begin each message with an empty
//!   window. That is always allowed: a message need not refer to earlier ones.

use std::sync::Arc;

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status};

use crate::ws::failure::Failure;
use crate::ws::limits::table::WINDOW_BITS;

/// The largest window there is; inflating always has room for it.
pub(crate) const MAX_WINDOW_BITS: u8 = 15;
/// The smallest window that compressors have: they use it where 8 was agreed on.
pub(crate) const MIN_WINDOW_BITS: u8 = 9;
/// The window of our compressors, unless the client wants less.
pub(crate) const OWN_WINDOW_BITS: u8 = WINDOW_BITS as u8;
/// zlib's own bookkeeping, of 1 to 9: room for the symbols of one block.
const MEMORY_LEVEL: i32 = 5;
/// The end of each message of a flushed stream, which is left out on the wire (section 7.2.1).
const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];
/// The block of an empty message, before the tail.
const EMPTY: u8 = 0x00;
/// The end of a stream. Wherever it is possible, the block before it was complete.
const END: [u8; 5] = [0x01, 0x00, 0x00, 0xff, 0xff];
/// Bytes that go through a stream at a time.
const CHUNK: usize = 16 * 1024;
/// Streams of each kind, and buffers, that wait for their next use.
const IDLE: usize = 4;
/// Larger buffers are not kept.
const MAX_IDLE_BUFFER: usize = 64 * 1024;

/// The result of the negotiation in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The window of the client's compressor, as a power of two.
    pub client_bits: u8,
    /// Whether the answer says so: only if the client has offered that parameter.
    pub client_is_told: bool,
    /// The same of the server's compressor.
    pub server_bits: u8,
    /// The client begins each message with an empty window (`client_no_context_takeover`).
    pub client_reset: bool,
    /// The server does.
    pub server_reset: bool,
}

/// How the server compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Effort, 1 to 9 (0 stores). Messages of 128 bytes, of chats and of trades as JSON, become 71 and 43 bytes by 1, and 64
    /// and 38 by zlib's level 3; those of 1 KiB 544 and 308 bytes, and 384 and 230. Of an API's JSON, 1, 4 and 16 KiB become 335,
    /// 1308 and 5202 bytes by 1, and 266, 939 and 3650 by 2, for 108k instructions in place of 39k where it is 1 KiB, and 832k in
    /// place of 566k where it is 16: below that no packet is saved.
    pub level: u8,
    /// Messages of fewer bytes are sent as they are (section 6 allows it), without a try.
    pub threshold: usize,
    /// Connections that may keep the stream that compresses their messages: about 161 KiB each.
    pub kept: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { level: 1, threshold: 0, kept: 256 }
    }
}

/// The streams that the connections of one thread use in turn. Nothing of a connection stays in it.
pub struct StreamPool {
    pub(crate) settings: Settings,
    inflates: Vec<Inflate>,
    /// All of the same window: `OWN_WINDOW_BITS`.
    deflates: Vec<Deflate>,
    buffers: Vec<Vec<u8>>,
    chunk: Vec<u8>,
    /// Those who keep a stream have a reference each.
    places: Arc<()>,
}

impl Default for StreamPool {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl StreamPool {
    /// An empty pool.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            inflates: Vec::new(),
            deflates: Vec::new(),
            buffers: Vec::new(),
            chunk: Vec::new(),
            places: Arc::new(()),
        }
    }

    /// Give back the storage of a message that was assembled.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.buffers.len() < IDLE && (1..=MAX_IDLE_BUFFER).contains(&buffer.capacity()) {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    /// An empty buffer.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    /// A buffer for the output of a stream. The caller takes it out.
    fn take_chunk(&mut self) -> Vec<u8> {
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize(CHUNK, 0);
        chunk
    }

    fn inflate(&mut self) -> Inflate {
        let Some(mut stream) = self.inflates.pop() else { return Inflate::new(false, MAX_WINDOW_BITS) };
        stream.reset(false);
        stream
    }

    fn keep_inflate(&mut self, stream: Inflate) {
        if self.inflates.len() < IDLE {
            self.inflates.push(stream);
        }
    }

    fn deflate(&mut self, bits: u8) -> Deflate {
        if bits == OWN_WINDOW_BITS
            && let Some(mut stream) = self.deflates.pop()
        {
            stream.reset();
            return stream;
        }
        Deflate::new_with_config(DeflateConfig {
            level: i32::from(self.settings.level.min(9)),
            window_bits: -i32::from(bits.clamp(MIN_WINDOW_BITS, MAX_WINDOW_BITS)),
            mem_level: MEMORY_LEVEL,
            ..DeflateConfig::default()
        })
    }

    fn keep_deflate(&mut self, stream: Deflate, bits: u8) {
        if bits == OWN_WINDOW_BITS && self.deflates.len() < IDLE {
            self.deflates.push(stream);
        }
    }

    /// Whether one more connection may keep a stream.
    fn place(&self) -> Option<Arc<()>> {
        (Arc::strong_count(&self.places) <= self.settings.kept).then(|| Arc::clone(&self.places))
    }
}

/// Inflates a client's messages.
pub(crate) struct Inflater {
    /// Bytes of earlier messages that a message may refer to; 0 without takeover.
    window: usize,
    history: Vec<u8>,
    /// While a message is in progress.
    stream: Option<Inflate>,
    /// The client has ended its stream, instead of flushing it (section 7.2.3.4): nothing may follow but the first byte of
    /// the empty block, and whether that has come.
    ended: Option<bool>,
}

impl Inflater {
    pub(crate) fn new(agreement: Agreement) -> Self {
        let bits = agreement.client_bits.clamp(MIN_WINDOW_BITS, MAX_WINDOW_BITS);
        let window = if agreement.client_reset { 0 } else { 1 << bits };
        Self { window, history: Vec::new(), stream: None, ended: None }
    }

    /// Inflate more of a message, into `sink`, piece by piece.
    pub(crate) fn push(
        &mut self,
        data: &[u8],
        pool: &mut StreamPool,
        mut sink: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut stream = self.stream.take().map_or_else(|| self.begin(pool), Ok)?;
        let mut rest = data;
        if self.ended.is_none() {
            let mut chunk = pool.take_chunk();
            let ended = feed(&mut stream, data, &mut chunk, |plain| {
                self.remember(plain);
                sink(plain)
            });
            pool.chunk = chunk;
            if let Some(behind) = ended? {
                self.ended = Some(false);
                rest = behind;
            }
        }
        self.stream = Some(stream);
        match &mut self.ended {
            None => Ok(()),
            Some(empty) => match rest {
                [] => Ok(()),
                [EMPTY] if !*empty => {
                    *empty = true;
                    Ok(())
                }
                _ => Err(Failure::Deflate),
            },
        }
    }

    /// The message is complete: give the rest of it to `sink`.
    pub(crate) fn finish(
        &mut self,
        pool: &mut StreamPool,
        mut sink: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut stream = self.stream.take().map_or_else(|| self.begin(pool), Ok)?;
        if self.ended.take().is_some() {
            self.history.clear();
        } else {
            let mut chunk = pool.take_chunk();
            let complete = self.finish_stream(&mut stream, &mut chunk, &mut sink);
            pool.chunk = chunk;
            complete?;
        }
        pool.keep_inflate(stream);
        Ok(())
    }

    fn finish_stream(
        &mut self,
        stream: &mut Inflate,
        chunk: &mut [u8],
        mut sink: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let tail = feed(stream, &TAIL, chunk, |plain| {
            self.remember(plain);
            sink(plain)
        })?;
        // A message that stops in the middle of a block would be continued by the next one.
        let before = stream.total_out();
        let end = if tail.is_none() { feed(stream, &END, chunk, |_| Ok(()))? } else { None };
        if end == Some(&[]) && stream.total_out() == before { Ok(()) } else { Err(Failure::Deflate) }
    }

    /// A stream that knows the history which the message may refer to.
    fn begin(&self, pool: &mut StreamPool) -> Result<Inflate, Failure> {
        let mut stream = pool.inflate();
        if !self.history.is_empty() {
            stream.set_dictionary(&self.history).map_err(|_| Failure::Deflate)?;
        }
        Ok(stream)
    }

    fn remember(&mut self, plain: &[u8]) {
        let window = self.window;
        let plain = plain.get(plain.len().saturating_sub(window)..).unwrap_or_default();
        let over = (self.history.len() + plain.len()).saturating_sub(window);
        self.history.drain(..over);
        self.history.extend_from_slice(plain);
    }
}

/// Put `data` through a stream. Returns the bytes after the end of the stream, if that is in it.
fn feed<'a>(
    stream: &mut Inflate,
    mut data: &'a [u8],
    chunk: &mut [u8],
    mut sink: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<Option<&'a [u8]>, Failure> {
    loop {
        let (read, made) = (stream.total_in(), stream.total_out());
        let result = stream.decompress(data, chunk, InflateFlush::SyncFlush);
        let (read, made) = (progress(read, stream.total_in()), progress(made, stream.total_out()));
        data = data.get(read..).unwrap_or_default();
        let plain = chunk.get(..made).unwrap_or_default();
        if !plain.is_empty() {
            sink(plain)?;
        }
        match result {
            Err(_) => return Err(Failure::Deflate),
            Ok(Status::StreamEnd) => return Ok(Some(data)),
            Ok(_) if made < chunk.len() && data.is_empty() => return Ok(None),
            Ok(_) if read == 0 && made == 0 => return Err(Failure::Deflate),
            Ok(_) => {}
        }
    }
}

fn progress(before: u64, after: u64) -> usize {
    usize::try_from(after.wrapping_sub(before)).unwrap_or_default()
}

/// Compresses the server's messages.
pub(crate) struct Deflater {
    bits: u8,
    takeover: bool,
    kept: Option<(Deflate, Arc<()>)>,
}

impl Deflater {
    pub(crate) fn new(agreement: Agreement) -> Self {
        Self { bits: agreement.server_bits, takeover: !agreement.server_reset, kept: None }
    }

    /// For one message that many will read.
    pub(crate) fn once() -> Self {
        Self { bits: OWN_WINDOW_BITS, takeover: false, kept: None }
    }

    /// The window, as a power of two.
    pub(crate) const fn bits(&self) -> u8 {
        self.bits
    }

    /// Append the compressed payload of one message. `false`: it is better sent as it is, and nothing is appended.
    pub(crate) fn deflate(&mut self, payload: &[u8], out: &mut Vec<u8>, pool: &mut StreamPool) -> bool {
        if payload.is_empty() {
            return false;
        }
        let (mut stream, place) = match self.kept.take() {
            Some((stream, place)) => (stream, Some(place)),
            None => (pool.deflate(self.bits), if self.takeover { pool.place() } else { None }),
        };
        let start = out.len();
        let mut chunk = pool.take_chunk();
        let complete = compress(&mut stream, payload, &mut chunk, out) && out.ends_with(&TAIL);
        pool.chunk = chunk;
        if !complete {
            out.truncate(start);
            return false;
        }
        out.truncate(out.len() - TAIL.len());
        let Some(place) = place else {
            pool.keep_deflate(stream, self.bits);
            // Small messages get longer by it. Nevertheless, one that later messages refer to has to be sent that way.
            let shorter = out.len() - start < payload.len();
            if !shorter {
                out.truncate(start);
            }
            return shorter;
        };
        self.kept = Some((stream, place));
        true
    }

    /// The next message begins with an empty window. The stream is free for others.
    pub(crate) fn release(&mut self, pool: &mut StreamPool) {
        if let Some((stream, _)) = self.kept.take() {
            pool.keep_deflate(stream, self.bits);
        }
    }
}

fn compress(stream: &mut Deflate, mut data: &[u8], chunk: &mut [u8], out: &mut Vec<u8>) -> bool {
    loop {
        let (read, made) = (stream.total_in(), stream.total_out());
        let result = stream.compress(data, chunk, DeflateFlush::SyncFlush);
        let (read, made) = (progress(read, stream.total_in()), progress(made, stream.total_out()));
        data = data.get(read..).unwrap_or_default();
        out.extend_from_slice(chunk.get(..made).unwrap_or_default());
        if result.is_err() {
            return false;
        }
        if made < chunk.len() {
            // All of it is flushed, unless the stream makes no progress.
            return data.is_empty();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGREED: Agreement =
        Agreement { client_bits: 12, client_is_told: true, server_bits: 12, client_reset: false, server_reset: false };

    fn inflate(inflater: &mut Inflater, payload: &[u8], pool: &mut StreamPool) -> Result<Vec<u8>, Failure> {
        let mut plain = Vec::new();
        let mut sink = |piece: &[u8]| {
            plain.extend_from_slice(piece);
            Ok(())
        };
        inflater.push(payload, pool, &mut sink)?;
        inflater.finish(pool, &mut sink)?;
        Ok(plain)
    }

    /// The compressed payload, if it is one.
    fn try_deflate(deflater: &mut Deflater, payload: &[u8], pool: &mut StreamPool) -> Option<Vec<u8>> {
        let mut out = b"before".to_vec();
        let deflated = deflater.deflate(payload, &mut out, pool);
        assert!(deflated || out == b"before");
        deflated.then(|| out.split_off("before".len()))
    }

    fn deflate(deflater: &mut Deflater, payload: &[u8], pool: &mut StreamPool) -> Vec<u8> {
        try_deflate(deflater, payload, pool).expect("a compressed message")
    }

    /// Text that compresses, without repeating any of its earlier parts.
    fn text(seed: u32, length: usize) -> Vec<u8> {
        let mut state = seed;
        let mut word = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            format!("\"id\": {:x}, \"name\": {:x}, ", state >> 16, state >> 28)
        };
        let mut text = String::new();
        while text.len() < length {
            text += &word();
        }
        text.truncate(length);
        text.into_bytes()
    }

    /// W10
    #[test]
    fn any_windows_and_levels_with_and_without_takeover() {
        let levels = (0..=9).map(|level| (level, OWN_WINDOW_BITS));
        for (level, bits) in levels.chain((MIN_WINDOW_BITS..=MAX_WINDOW_BITS).map(|bits| (1, bits))) {
            for reset in [false, true] {
                round_trip(level, bits, reset);
            }
        }
    }

    fn round_trip(level: u8, bits: u8, reset: bool) {
        let agreed =
            Agreement { client_bits: bits, server_bits: bits, client_reset: reset, server_reset: reset, ..AGREED };
        let mut pool = StreamPool::new(Settings { level, ..Settings::default() });
        let (mut ours, mut theirs) = (Deflater::new(agreed), Inflater::new(agreed));
        for (seed, length) in [5, 0, 700, 70_000, 1, 40_000, 600, 64].into_iter().enumerate() {
            let message = text(seed as u32 % 3, length);
            if let Some(payload) = try_deflate(&mut ours, &message, &mut pool) {
                assert_eq!(inflate(&mut theirs, &payload, &mut pool).as_ref(), Ok(&message));
            } else {
                assert!(length <= 64 || level == 0, "{length} bytes");
            }
            assert!(theirs.history.len() <= if reset { 0 } else { 1 << bits });
        }
    }

    /// RFC 7692 section 7.2.3.2, W15
    #[test]
    fn a_window_is_shared_between_messages_only_where_that_was_agreed_on() {
        let mut pool = StreamPool::default();
        let mut ours = Deflater::new(AGREED);
        let message = b"Hello, hello, hello";
        let (first, second) = (deflate(&mut ours, message, &mut pool), deflate(&mut ours, message, &mut pool));
        assert!(second.len() < first.len());
        let mut fresh = Deflater::new(Agreement { server_reset: true, ..AGREED });
        assert_eq!(deflate(&mut fresh, message, &mut pool), first);
        assert_eq!(deflate(&mut fresh, message, &mut pool), first);
        assert!(fresh.kept.is_none() && ours.kept.is_some());
        ours.release(&mut pool);
        assert_eq!(deflate(&mut ours, message, &mut pool), first);
        let mut lonely = Inflater::new(Agreement { client_reset: true, ..AGREED });
        assert_eq!(inflate(&mut lonely, &first, &mut pool).as_deref(), Ok(&message[..]));
        assert_eq!(inflate(&mut lonely, &second, &mut pool), Err(Failure::Deflate));
    }

    #[test]
    fn what_gets_longer_is_sent_as_it_is_if_nothing_refers_to_it() {
        let mut pool = StreamPool::default();
        let (mut ours, mut fresh) = (Deflater::new(AGREED), Deflater::once());
        assert_eq!(try_deflate(&mut fresh, b"Hello", &mut pool), None);
        assert_eq!(
            try_deflate(&mut fresh, b"Hello, hello, hello", &mut pool).map(|payload| payload.len() < 19),
            Some(true)
        );
        assert!(deflate(&mut ours, b"Hello", &mut pool).len() > 5);
        assert!(deflate(&mut ours, b"Hello", &mut pool).len() <= 5);
        for deflater in [&mut ours, &mut fresh] {
            assert_eq!(try_deflate(deflater, b"", &mut pool), None);
        }
    }

    /// W15
    #[test]
    fn streams_belong_to_the_pool_but_for_a_bounded_number() {
        let mut pool = StreamPool::new(Settings { kept: 2, ..Settings::default() });
        let mut many: Vec<_> = (0..10).map(|_| (Deflater::new(AGREED), Inflater::new(AGREED))).collect();
        for round in 0..3 {
            for (ours, theirs) in &mut many {
                let message = text(round, 200);
                let payload = deflate(ours, &message, &mut pool);
                assert_eq!(inflate(theirs, &payload, &mut pool).as_ref(), Ok(&message));
                assert!(theirs.stream.is_none());
            }
            assert_eq!(many.iter().filter(|(ours, _)| ours.kept.is_some()).count(), 2);
        }
        assert_eq!((pool.inflates.len(), pool.deflates.len()), (1, 1));
        many.clear();
        let mut next = Deflater::new(AGREED);
        deflate(&mut next, b"a", &mut pool);
        assert!(next.kept.is_some(), "the places of connections that are gone are free");
    }

    /// RFC 7692 section 7.1.2.2
    #[test]
    fn a_window_of_eight_bits_is_inflated_as_nine() {
        let mut pool = StreamPool::default();
        let mut ours = Deflater::new(Agreement { server_bits: 8, ..AGREED });
        let mut theirs = Inflater::new(Agreement { client_bits: 8, ..AGREED });
        for seed in 0..3 {
            let message = text(seed, 400).repeat(4);
            let payload = deflate(&mut ours, &message, &mut pool);
            assert_eq!(inflate(&mut theirs, &payload, &mut pool).as_ref(), Ok(&message));
        }
        assert_eq!(theirs.history.len(), 512);
    }

    /// RFC 7692 section 7.2.3.4
    #[test]
    fn a_stream_that_ends_takes_its_window_along() {
        let mut pool = StreamPool::default();
        let mut theirs = Inflater::new(AGREED);
        let last: &[u8] = b"\xf3\x48\xcd\xc9\xc9\x07\x00";
        for payload in [last, &[last, b"\x00"].concat()] {
            assert_eq!(inflate(&mut theirs, payload, &mut pool).as_deref(), Ok(&b"Hello"[..]));
            assert!(theirs.history.is_empty());
        }
        for behind in [&b"\x01"[..], b"\x00\x00", b"\x00\x00\x00\xff\xff", last] {
            assert_eq!(inflate(&mut theirs, &[last, behind].concat(), &mut pool), Err(Failure::Deflate));
            theirs = Inflater::new(AGREED);
        }
        for piece in [last, b"", b"\x00", b""] {
            assert_eq!(theirs.push(piece, &mut pool, |_| Ok(())), Ok(()));
        }
        assert_eq!(theirs.push(b"\x00", &mut pool, |_| Ok(())), Err(Failure::Deflate));
    }

    #[test]
    fn a_message_ends_with_a_block() {
        let mut pool = StreamPool::default();
        for payload in [&b"\x01"[..], b"\xf2\x48\xcd\xc9\xc9", b"\x00\x05\x00\xfa\xffHel", b"\x05", b"\xff\xff\xff"] {
            assert_eq!(inflate(&mut Inflater::new(AGREED), payload, &mut pool), Err(Failure::Deflate), "{payload:x?}");
        }
        // The bytes omitted at the end may be content.
        let content = inflate(&mut Inflater::new(AGREED), b"\x00\x04\x00\xfb\xff", &mut pool);
        assert_eq!(content.as_deref(), Ok(&TAIL[..]));
    }

    /// W8
    #[test]
    fn a_bomb_is_not_inflated_beyond_what_is_asked_for() {
        let mut pool = StreamPool::default();
        let payload = deflate(&mut Deflater::once(), &vec![b'a'; 1 << 20], &mut pool);
        let (mut seen, mut inflater) = (0, Inflater::new(AGREED));
        let result = inflater.push(&payload, &mut pool, |piece| {
            seen += piece.len();
            if seen > 100_000 { Err(Failure::TooBig) } else { Ok(()) }
        });
        assert_eq!(result, Err(Failure::TooBig));
        assert!(seen <= 100_000 + CHUNK);
        assert_eq!(pool.chunk.len(), CHUNK);
    }

    #[test]
    fn buffers_are_used_again_unless_they_are_large() {
        let mut pool = StreamPool::default();
        pool.recycle(Vec::new());
        pool.recycle(Vec::with_capacity(MAX_IDLE_BUFFER + 1));
        assert!(pool.buffers.is_empty());
        for _ in 0..2 * IDLE {
            pool.recycle(vec![1; 100]);
        }
        assert_eq!(pool.buffers.len(), IDLE);
        assert!(pool.buffer().is_empty());
    }
}
