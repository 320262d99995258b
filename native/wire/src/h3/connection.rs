//! One connection: its parts, and what its client and its caller may do. Input is in `receive` (requests), `uni` and
//! `control`, output in `response`, the end in `close`.

use crate::budget::streams::{Budget, Cost, Gain};
use crate::fields::Key;
use crate::fields::request::Slot;
use crate::h3::close::Ending;
use crate::h3::control::Control;
use crate::h3::event::{Event, Failure};
use crate::h3::frame;
use crate::h3::settings::Settings;
use crate::h3::streams::{Remote, StreamId, Streams};
use crate::h3::uni;
use crate::priority::{Priority, Turns};
use crate::qpack::{Decoder, Encoder};

/// One of the three unidirectional streams of the server's, which the caller opens and writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Settings and GOAWAY.
    Control,
    /// Entries of the server's table.
    Encoder,
    /// Acknowledgements of the client's.
    Decoder,
}

impl Channel {
    /// All of them; the control stream should be opened first.
    pub const ALL: [Self; 3] = [Self::Control, Self::Encoder, Self::Decoder];
}

/// Bytes for the server's own streams that are not written yet: a client that lets more wait does not read.
const MAX_UNWRITTEN: usize = 64 * 1024;

/// The number of streams whose priorities are kept before they open.
const MAX_EARLY: usize = 16;

/// The state of one connection. With each entry of the client's table a `K` can be kept: what the caller has made of a field.
#[derive(Debug)]
pub struct Connection<K = ()> {
    pub(crate) settings: Settings,
    pub(crate) decoder: Decoder<Slot<K>>,
    pub(crate) encoder: Encoder,
    pub(crate) streams: Streams,
    pub(crate) turns: Turns,
    pub(crate) budget: Budget,
    pub(crate) ending: Ending,
    pub(crate) control: Control,
    /// The client has opened its encoder and its decoder stream.
    pub(crate) has_encoder: bool,
    pub(crate) has_decoder: bool,
    /// The lowest number of a request stream that has not been opened, nor any above it.
    pub(crate) next: u64,
    /// Streams that wait for entries of the client's table, and for how many of them.
    pub(crate) blocked: Vec<(StreamId, u64)>,
    /// Bytes of incomplete or blocked sections.
    pub(crate) held: usize,
    /// Priorities that came before their requests.
    pub(crate) early: Vec<(u64, Priority)>,
    /// Bytes that are not written yet: of the control stream and the encoder stream; those of the decoder stream are the
    /// decoder's.
    pub(crate) control_output: Vec<u8>,
    pub(crate) encoder_output: Vec<u8>,
    pub(crate) closed: bool,
}

impl<K> Connection<K> {
    /// A new connection.
    pub fn new(settings: Settings) -> Self {
        let mut control_output = Vec::new();
        frame::put_varint(&mut control_output, uni::CONTROL);
        settings.put(&mut control_output);
        let mut encoder_output = Vec::new();
        frame::put_varint(&mut encoder_output, uni::ENCODER);
        Self {
            settings,
            decoder: Decoder::new(settings.table as usize),
            encoder: Encoder::new(settings.table as usize),
            streams: Streams::default(),
            turns: Turns::default(),
            budget: Budget::new(),
            ending: Ending::Open,
            control: Control::default(),
            has_encoder: false,
            has_decoder: false,
            next: 0,
            blocked: Vec::new(),
            held: 0,
            early: Vec::new(),
            control_output,
            encoder_output,
            closed: false,
        }
    }

    /// The client has opened a bidirectional stream. `None`: too many are not released, or the connection ends; reset and stop
    /// the stream with `H3_REQUEST_REJECTED`.
    pub fn open(&mut self, number: u64) -> Result<Option<StreamId>, Failure> {
        if self.closed {
            return Ok(None);
        }
        if let Err(failure) = self.check_output() {
            return Err(self.fail(failure));
        }
        let accepted = self.ending.accepts(number) && self.streams.count() < self.settings.streams as usize;
        if number >= self.next && self.ending.accepts(number) {
            self.next = number.saturating_add(4);
        }
        if !accepted {
            return match self.pay(Cost::Reset) {
                Ok(()) => Ok(None),
                Err(failure) => Err(self.fail(failure)),
            };
        }
        Ok(Some(self.streams.open(number)))
    }

    #[inline]
    pub(crate) fn pay(&mut self, cost: Cost) -> Result<(), Failure> {
        if self.budget.pay(cost) { Ok(()) } else { Err(Failure::CALM) }
    }

    /// A number above all that the client may open: the limit of QUIC is at most twice that of the settings.
    pub(crate) fn stream_limit(&self) -> u64 {
        self.next.saturating_add(u64::from(self.settings.streams) * 2 * 4)
    }

    /// RFC 9218 section 7.2
    pub(crate) fn priority_update(&mut self, number: u64, priority: Priority) {
        match self.streams.find(number).and_then(|id| Some((id, self.streams.get_mut(id)?))) {
            // Its request has a priority of its own, and comes later.
            Some((_, stream)) if stream.remote == Remote::Head => {}
            Some((id, stream)) => return self.turns.change(&mut stream.waits, priority, id.place() as u32),
            None if number < self.next => return,
            None => {}
        }
        self.early.retain(|&(other, _)| other != number);
        if self.early.len() == MAX_EARLY {
            self.early.remove(0);
        }
        self.early.push((number, priority));
    }

    /// The priority of a stream's response.
    pub fn priority(&self, id: StreamId) -> Priority {
        self.streams.get(id).map_or_else(Priority::default, |stream| stream.waits.priority)
    }

    /// The caller's value of an entry of the client's table, as long as that lives.
    #[inline]
    pub fn kept(&mut self, entry: Key) -> Option<&mut Option<K>> {
        match entry {
            Key::Static(_) => None,
            Key::Dynamic(number) => self.decoder.kept(number).map(|slot| &mut slot.kept),
        }
    }

    /// This much time has passed, which gives back some of the client's budget.
    pub fn pass(&mut self, seconds: u64) {
        self.budget.earn(Gain::Seconds(seconds));
    }

    /// The client sends more packets that make no progress than it may.
    pub fn flooded(&mut self) -> Event {
        if self.closed { Event::Closed } else { Event::Failed(self.fail(Failure::CALM)) }
    }

    /// Whether the client's settings are still missing.
    pub const fn is_opening(&self) -> bool {
        !self.control.has_settings()
    }

    /// Bytes of incomplete and blocked field sections that are held.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// The bytes to be written next to one of the server's own streams.
    pub fn output(&mut self, channel: Channel) -> &[u8] {
        match channel {
            Channel::Control => &self.control_output,
            Channel::Encoder => &self.encoder_output,
            Channel::Decoder => self.decoder.output(),
        }
    }

    /// The first `length` of them were written.
    pub fn written(&mut self, channel: Channel, length: usize) {
        let output = match channel {
            Channel::Control => &mut self.control_output,
            Channel::Encoder => &mut self.encoder_output,
            Channel::Decoder => self.decoder.unwritten(),
        };
        output.drain(..length.min(output.len()));
    }

    /// Refuse to have ever more bytes wait for a client that does not read them.
    pub(crate) fn check_output(&mut self) -> Result<(), Failure> {
        if self.decoder.unwritten().len() > MAX_UNWRITTEN { Err(Failure::CALM) } else { Ok(()) }
    }
}
