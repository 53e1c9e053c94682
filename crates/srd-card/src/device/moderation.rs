//! Interrupt moderation: the time for which the card delays interrupts.
//!
//! Source: the ENA Linux driver. The default delay is 64 us for sent packets and 20 us for received
//! packets. For received packets, the user may switch on the kernel's dynamic moderation instead.

use srd_proto::time::{Duration, Instant};

use crate::device::adaptive::Adaptive;

/// Settings of interrupt moderation, as `ethtool -c` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Delay of interrupts for sent packets (`tx-usecs`).
    pub tx: Duration,
    /// Delay of interrupts for received packets (`rx-usecs`); not used while `adaptive_rx` is on.
    pub rx: Duration,
    /// Whether the delay for received packets adapts to the traffic (`adaptive-rx`). There is no
    /// `adaptive-tx` (D7).
    pub adaptive_rx: bool,
}

/// The default settings are those of the ENA driver (D6).
impl Default for Settings {
    fn default() -> Self {
        Self { tx: Duration::from_micros(64), rx: Duration::from_micros(20), adaptive_rx: false }
    }
}

/// Interrupts of one direction of a queue pair.
///
/// An interrupt is due when the delay has passed since the first packet that no interrupt has
/// reported, or when the number of such packets reaches the limit of the adaptive profile.
#[derive(Clone, Debug)]
pub struct Moderation {
    delay: Duration,
    adaptive: Option<Adaptive>,
    due: Option<Instant>,
    pending: u32,
    raised: u64,
}

impl Moderation {
    /// Creates the moderation of packets that the guest sends.
    pub fn tx(settings: &Settings) -> Self {
        Self { delay: settings.tx, adaptive: None, due: None, pending: 0, raised: 0 }
    }

    /// Creates the moderation of packets that the guest receives.
    pub fn rx(settings: &Settings, now: Instant) -> Self {
        let adaptive = settings.adaptive_rx.then(|| Adaptive::new(now));
        Self { delay: settings.rx, adaptive, due: None, pending: 0, raised: 0 }
    }

    /// Counts a packet that was added to the ring, and schedules an interrupt if none is scheduled.
    pub fn packet(&mut self, now: Instant, bytes: u32) {
        let delay = self.adaptive.as_ref().map_or(self.delay, Adaptive::delay);
        self.pending = self.pending.saturating_add(1);
        let due = *self.due.get_or_insert(now + delay);
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.packet(bytes);
            if self.pending >= Adaptive::PACKETS {
                self.due = Some(due.min(now));
            }
        }
    }

    /// Time of the next interrupt; `None` if all packets have been reported.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Raises an interrupt if one is due, and returns whether it did. The interrupt reports all
    /// packets that were counted before (D6).
    pub fn raise(&mut self, now: Instant) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        (self.due, self.pending) = (None, 0);
        self.raised += 1;
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.interrupt(now);
        }
        true
    }

    /// Number of interrupts raised.
    pub fn raised(&self) -> u64 {
        self.raised
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    #[test]
    fn interrupts_wait_from_the_first_packet_on() {
        for (mut moderation, delay) in [
            (Moderation::tx(&Settings::default()), 64),
            (Moderation::rx(&Settings::default(), at(0)), 20),
        ] {
            assert!(!moderation.raise(at(900)), "no packet");
            moderation.packet(at(1000), 100);
            moderation.packet(at(1010), 100);
            assert_eq!(moderation.poll_timeout(), Some(at(1000 + delay)));
            assert!(!moderation.raise(at(999 + delay)) && moderation.raise(at(1000 + delay)));
            assert!(!moderation.raise(at(5000)), "nothing new");
            assert_eq!(moderation.raised(), 1);
        }
    }

    #[test]
    fn no_delay_is_one_interrupt_a_packet() {
        let settings = Settings { rx: Duration::ZERO, ..Settings::default() };
        let mut moderation = Moderation::rx(&settings, at(0));
        for us in 0..10 {
            moderation.packet(at(us), 100);
            assert!(moderation.raise(at(us)));
        }
    }

    #[test]
    fn adaptive_moderation_raises_at_256_packets() {
        let settings = Settings { adaptive_rx: true, ..Settings::default() };
        let mut moderation = Moderation::rx(&settings, at(0));
        for _ in 0..255 {
            moderation.packet(at(0), 100);
        }
        assert!(!moderation.raise(at(0)), "eight microseconds to begin with");
        moderation.packet(at(0), 100);
        assert!(moderation.raise(at(0)));
    }

    /// With a continuous stream of packets, adaptive moderation lengthens its delay, so that fewer
    /// interrupts are raised than at the beginning.
    #[test]
    fn adaptive_moderation_holds_back_more_under_load() {
        let settings = Settings { adaptive_rx: true, ..Settings::default() };
        let mut moderation = Moderation::rx(&settings, at(0));
        let mut rates = [0, 0];
        for us in 0..100_000 {
            moderation.packet(at(us), 1500);
            if moderation.raise(at(us)) {
                rates[usize::from(us >= 50_000)] += 1;
            }
        }
        assert!(rates[1] < 50_000 / 40, "{rates:?}: more than 40 us apart");
    }
}
