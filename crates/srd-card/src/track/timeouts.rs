//! Idle times of an ENI's connections.
//!
//! Source: EC2 API, *ConnectionTrackingSpecification*; EC2 User Guide, *Security group connection
//! tracking*. The times of TCP that is opening or closing, and of ICMP, are unpublished; this
//! project has chosen them.

use core::fmt;
use core::ops::RangeInclusive;

use srd_proto::time::Duration;

use crate::meta::packet::protocol;
use crate::track::state::State;

/// Bounds of the three idle times that EC2 lets users set, in seconds.
const TCP_ESTABLISHED_S: RangeInclusive<u32> = 60..=432_000;
const UDP_STREAM_S: RangeInclusive<u32> = 60..=180;
const UDP_S: RangeInclusive<u32> = 30..=60;

/// Idle time of TCP whose handshake is not complete, in seconds.
const TCP_OPENING_S: u32 = 120;
/// Idle time of TCP of which one end has sent FIN, in seconds.
const TCP_CLOSING_S: u32 = 120;
/// Idle time of TCP that both ends have ended, or one end has reset, in seconds.
const TCP_CLOSED_S: u32 = 10;
/// Idle time of ICMP, in seconds.
const ICMP_S: u32 = 30;
/// Idle time of all protocols other than TCP, UDP and ICMP, in seconds.
const OTHER_S: u32 = 600;

/// Idle times after which the connections of an ENI expire (T3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    tcp_established_s: u32,
    udp_stream_s: u32,
    udp_s: u32,
}

/// Error: a time is outside of EC2's bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeoutsError {
    /// Name of the time in EC2's `ConnectionTrackingSpecification`.
    pub name: &'static str,
    /// Requested value, in seconds.
    pub value_s: u32,
    /// Smallest and largest value, in seconds.
    pub bounds_s: RangeInclusive<u32>,
}

impl fmt::Display for TimeoutsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (self.bounds_s.start(), self.bounds_s.end());
        let Self { name, value_s, .. } = self;
        write!(f, "{name} is {value_s} s; give a value from {least} to {most} s")
    }
}

impl core::error::Error for TimeoutsError {}

impl Timeouts {
    /// EC2's defaults before Nitro v6.
    pub const DEFAULT: Self = Self { tcp_established_s: 432_000, udp_stream_s: 180, udp_s: 30 };
    /// EC2's defaults from Nitro v6 on.
    pub const DEFAULT_V6: Self = Self { tcp_established_s: 350, ..Self::DEFAULT };

    /// Checks times in seconds against EC2's bounds (T3).
    ///
    /// # Errors
    /// [`TimeoutsError`] with the first time outside of its bounds.
    pub fn new(
        tcp_established_s: u32,
        udp_stream_s: u32,
        udp_s: u32,
    ) -> Result<Self, TimeoutsError> {
        for (name, value_s, bounds_s) in [
            ("TcpEstablishedTimeout", tcp_established_s, TCP_ESTABLISHED_S),
            ("UdpStreamTimeout", udp_stream_s, UDP_STREAM_S),
            ("UdpTimeout", udp_s, UDP_S),
        ] {
            if !bounds_s.contains(&value_s) {
                return Err(TimeoutsError { name, value_s, bounds_s });
            }
        }
        Ok(Self { tcp_established_s, udp_stream_s, udp_s })
    }

    /// Returns the times that users may set, in seconds: for established TCP, for UDP streams, and
    /// for other UDP.
    pub fn seconds(&self) -> (u32, u32, u32) {
        (self.tcp_established_s, self.udp_stream_s, self.udp_s)
    }

    /// Longest idle time of a connection of protocol `number` in this state (T3).
    pub fn idle(&self, state: State, number: u8) -> Duration {
        Duration::from_secs(self.idle_ticks(state, number).into())
    }

    /// Longest idle time of a connection of protocol `number` in this state, in ticks of the table,
    /// which are seconds.
    pub(super) fn idle_ticks(&self, state: State, number: u8) -> u32 {
        match (state, number) {
            (State::Opening, _) => TCP_OPENING_S,
            (State::Established, _) => self.tcp_established_s,
            (State::Closing, _) => TCP_CLOSING_S,
            (State::Closed, _) => TCP_CLOSED_S,
            (State::Single, protocol::UDP) => self.udp_s,
            (State::Stream, _) => self.udp_stream_s,
            (State::Single, protocol::ICMP | protocol::ICMP_V6) => ICMP_S,
            (State::Single, _) => OTHER_S,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn ec2s_bounds_hold_at_both_ends() {
        for good in [(60, 60, 30), (432_000, 180, 60), (350, 180, 30)] {
            assert!(Timeouts::new(good.0, good.1, good.2).is_ok(), "{good:?}");
        }
        for (bad, name) in [
            ((59, 180, 30), "TcpEstablishedTimeout is 59 s; give a value from 60 to 432000 s"),
            ((432_001, 180, 30), "TcpEstablishedTimeout is 432001"),
            ((350, 59, 30), "UdpStreamTimeout is 59 s; give a value from 60 to 180 s"),
            ((350, 181, 30), "UdpStreamTimeout is 181"),
            ((350, 180, 29), "UdpTimeout is 29 s; give a value from 30 to 60 s"),
            ((350, 180, 61), "UdpTimeout is 61"),
        ] {
            let error = Timeouts::new(bad.0, bad.1, bad.2).unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }

    #[test]
    fn each_state_has_its_time() {
        let times = Timeouts::DEFAULT;
        let seconds = |state, number| times.idle(state, number).as_nanos() / 1_000_000_000;
        assert_eq!(seconds(State::Established, protocol::TCP), 432_000);
        assert_eq!(seconds(State::Single, protocol::UDP), 30);
        assert_eq!(seconds(State::Stream, protocol::UDP), 180);
        assert_eq!(seconds(State::Single, 47), 600);
        assert_eq!(Timeouts::DEFAULT_V6.tcp_established_s, 350);
    }
}
