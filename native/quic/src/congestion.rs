//! Congestion control: Cubic (RFC 9438) with a slow start for responses that are short.
//!
//! A page with its objects is over before the window has grown. So it begins with more packets than the ten of RFC 9002
//! section 7.2, as many as Chromium's servers send; the pacer still sends ten at once. And it grows in slow start if half of
//! it was used in a round trip, as that of TCP does in Linux, where quinn-proto wants all of it to be used.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};

/// Bytes of the first window: 32 packets before the path's MTU is known.
const INITIAL_WINDOW: u64 = 32 * 1200;

/// Makes the controllers of connections.
pub(crate) struct Congestion(Arc<CubicConfig>);

impl Default for Congestion {
    fn default() -> Self {
        let mut cubic = CubicConfig::default();
        cubic.initial_window(INITIAL_WINDOW);
        Self(Arc::new(cubic))
    }
}

impl ControllerFactory for Congestion {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let cubic = self.0.clone().build(now, mtu);
        Box::new(SlowStart { cubic, in_flight: 0, most: 0, round: None, acknowledged: 0 })
    }
}

/// Cubic, whose window grows in slow start if half of it is used.
struct SlowStart {
    cubic: Box<dyn Controller>,
    /// Bytes on their way; packets of acknowledgements count until others are acknowledged.
    in_flight: u64,
    /// The most of them in this round trip.
    most: u64,
    /// When it began.
    round: Option<Instant>,
    /// Bytes of acknowledged packets.
    acknowledged: u64,
}

/// Bytes of packets on the present path that the peer has acknowledged.
pub(crate) fn acknowledged(controller: &dyn Controller) -> u64 {
    let own = controller.clone_box().into_any().downcast::<SlowStart>();
    own.map_or(0, |own| own.acknowledged)
}

impl Controller for SlowStart {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.in_flight += bytes;
        self.most = self.most.max(self.in_flight);
        self.cubic.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.acknowledged += bytes;
        let metrics = self.cubic.metrics();
        let is_starting = metrics.ssthresh.is_none_or(|threshold| metrics.congestion_window < threshold);
        let is_used = is_starting && 2 * self.most >= metrics.congestion_window;
        self.cubic.on_ack(now, sent, bytes, app_limited && !is_used, rtt);
        if self.round.is_none_or(|round| sent >= round) {
            self.round = Some(now);
            self.most = self.in_flight;
        }
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.in_flight = in_flight;
        self.cubic.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost: u64) {
        self.in_flight = self.in_flight.saturating_sub(lost);
        self.cubic.on_congestion_event(now, sent, is_persistent, lost);
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.cubic.on_mtu_update(mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.cubic.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { cubic: self.cubic.clone_box(), ..*self })
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
