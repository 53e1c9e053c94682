//! Converts statistics to 64-bit words and back: each page has a fixed number of words. Counters of
//! several workers can be added up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use srd_card::{Counters, OrderCounts, Reach, Traffic};
use srd_proto::{Diagnosis, DropReason, Instant, PeerStats, Unreachable};

/// A value that a fixed number of 64-bit words can represent.
pub(crate) trait Figure: Sized {
    /// Number of words that represent a value of this type.
    const WORDS: usize;
    /// Passes the words of the value to `to`, in order.
    fn put(&self, to: &mut impl FnMut(u64));
    /// Reads as many words as [`Figure::put`] passes on, and returns the value that they represent.
    fn take(from: &mut impl FnMut() -> u64) -> Self;
}

/// Counters that add up.
pub(crate) trait Sum {
    /// Adds the counters of `other`.
    fn add(&mut self, other: &Self);
}

/// Implements [`Figure`] for a struct: its words are the words of its fields, in order.
macro_rules! figures {
    ($type:ty { $($field:ident: $of:ty),+ $(,)? }) => {
        impl $crate::pages::figure::Figure for $type {
            const WORDS: usize = 0 $(+ <$of as $crate::pages::figure::Figure>::WORDS)+;

            fn put(&self, to: &mut impl FnMut(u64)) {
                $($crate::pages::figure::Figure::put(&self.$field, to);)+
            }

            fn take(from: &mut impl FnMut() -> u64) -> Self {
                Self { $($field: <$of as $crate::pages::figure::Figure>::take(from)),+ }
            }
        }
    };
}

/// Implements [`Figure`] and [`Sum`] for a struct of counters. Counters are added field by field.
macro_rules! counters {
    ($type:ty { $($field:ident: $of:ty),+ $(,)? }) => {
        figures!($type { $($field: $of),+ });

        impl $crate::pages::figure::Sum for $type {
            fn add(&mut self, other: &Self) {
                $($crate::pages::figure::Sum::add(&mut self.$field, &other.$field);)+
            }
        }
    };
}

pub(crate) use {counters, figures};

impl Sum for u64 {
    fn add(&mut self, other: &Self) {
        *self = self.saturating_add(*other);
    }
}

impl<T: Sum, const N: usize> Sum for [T; N] {
    fn add(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(sum, one)| sum.add(one));
    }
}

impl Figure for u64 {
    const WORDS: usize = 1;

    fn put(&self, to: &mut impl FnMut(u64)) {
        to(*self);
    }

    fn take(from: &mut impl FnMut() -> u64) -> Self {
        from()
    }
}

/// Implements [`Figure`] for types of numbers that fit into one word.
macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Figure for $type {
            const WORDS: usize = 1;

            #[allow(clippy::cast_sign_loss)] // the bits stay equal
            fn put(&self, to: &mut impl FnMut(u64)) {
                to(*self as u64);
            }

            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // reverses `put`
            fn take(from: &mut impl FnMut() -> u64) -> Self {
                from() as $type
            }
        }
    )+};
}

numbers!(u16, u32, usize, i32, i64);

impl Figure for bool {
    const WORDS: usize = 1;

    fn put(&self, to: &mut impl FnMut(u64)) {
        to(u64::from(*self));
    }

    fn take(from: &mut impl FnMut() -> u64) -> Self {
        from() != 0
    }
}

impl<T: Figure, const N: usize> Figure for [T; N] {
    const WORDS: usize = N * T::WORDS;

    fn put(&self, to: &mut impl FnMut(u64)) {
        self.iter().for_each(|one| one.put(to));
    }

    fn take(from: &mut impl FnMut() -> u64) -> Self {
        std::array::from_fn(|_| T::take(from))
    }
}

impl Figure for Instant {
    const WORDS: usize = 1;

    fn put(&self, to: &mut impl FnMut(u64)) {
        to(self.as_nanos());
    }

    fn take(from: &mut impl FnMut() -> u64) -> Self {
        Self::from_nanos(from())
    }
}

impl Figure for Option<i32> {
    const WORDS: usize = 2;

    fn put(&self, to: &mut impl FnMut(u64)) {
        self.is_some().put(to);
        self.unwrap_or(0).put(to);
    }

    fn take(from: &mut impl FnMut() -> u64) -> Self {
        let (is_some, value) = (bool::take(from), i32::take(from));
        is_some.then_some(value)
    }
}

/// Kinds of addresses, in the lowest eight bits of the first word: absent, IPv4, and any other
/// number for IPv6.
const ABSENT: u64 = 0;
const V4: u64 = 1;

/// The first word contains kind, port and scope; the two other words contain the address.
impl Figure for Option<SocketAddr> {
    const WORDS: usize = 3;

    fn put(&self, to: &mut impl FnMut(u64)) {
        let Some(address) = self else { return [ABSENT, 0, 0].put(to) };
        let (kind, bits, scope) = match address {
            SocketAddr::V4(v4) => (V4, u128::from(v4.ip().to_bits()), 0),
            SocketAddr::V6(v6) => (V4 + 1, v6.ip().to_bits(), v6.scope_id()),
        };
        to(kind | u64::from(address.port()) << 8 | u64::from(scope) << 32);
        let bytes = bits.to_be_bytes();
        let [high, low] = [0, 8].map(|at| word(&bytes[at..at + 8]));
        to(high);
        to(low);
    }

    #[allow(clippy::cast_possible_truncation)] // each is masked or shifted to its width
    fn take(from: &mut impl FnMut() -> u64) -> Self {
        let (head, high, low) = (from(), from(), from());
        let port = (head >> 8) as u16;
        match head & 0xff {
            ABSENT => None,
            V4 => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(low as u32)), port)),
            _ => {
                let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, (head >> 32) as u32)))
            }
        }
    }
}

/// Returns eight bytes as a word.
fn word(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap_or_default())
}

/// Implements [`Figure`] for a type with few values, each of which has a number.
macro_rules! choices {
    ($type:ty { $($number:literal: $value:expr),+ $(,)? }) => {
        impl Figure for $type {
            const WORDS: usize = 1;

            fn put(&self, to: &mut impl FnMut(u64)) {
                to([$(($number, $value)),+].iter().find(|(_, v)| v == self).map_or(0, |(n, _)| *n));
            }

            fn take(from: &mut impl FnMut() -> u64) -> Self {
                let number = from();
                let all = [$(($number, $value)),+];
                all.iter().find(|(n, _)| *n == number).unwrap_or(&all[0]).1
            }
        }
    };
}

pub(super) use choices;

choices!(Option<Unreachable> {
    0: None,
    1: Some(Unreachable::Port),
    2: Some(Unreachable::Host),
    3: Some(Unreachable::Network),
    4: Some(Unreachable::Prohibited),
});

choices!(Reach {
    0: Reach::Off,
    1: Reach::Waiting,
    2: Reach::Express { udp: false, tunnels: false },
    3: Reach::Express { udp: true, tunnels: false },
    4: Reach::Express { udp: false, tunnels: true },
    5: Reach::Express { udp: true, tunnels: true },
});

/// Number of the diagnosis that contains a public key; the key follows in four words.
const UNKNOWN_KEY: u64 = 1;

impl Figure for Option<Diagnosis> {
    const WORDS: usize = 5;

    fn put(&self, to: &mut impl FnMut(u64)) {
        let number = match self {
            None => 0,
            Some(Diagnosis::UnknownKey(_)) => UNKNOWN_KEY,
            Some(Diagnosis::OtherKeyForUs) => 2,
            Some(Diagnosis::AnswerUnauthentic) => 3,
            Some(Diagnosis::OtherVersion) => 4,
            Some(Diagnosis::OtherProtection) => 5,
            // This arm is for diagnoses that are added to the enum later: they are read back as
            // `NothingReceived`.
            Some(_) => 6,
        };
        to(number);
        let key = if let Some(Diagnosis::UnknownKey(key)) = self { *key } else { [0; 32] };
        key.chunks_exact(8).for_each(|bytes| to(word(bytes)));
    }

    fn take(from: &mut impl FnMut() -> u64) -> Self {
        let number = from();
        let mut key = [0; 32];
        key.chunks_exact_mut(8).for_each(|bytes| bytes.copy_from_slice(&from().to_be_bytes()));
        match number {
            0 => None,
            UNKNOWN_KEY => Some(Diagnosis::UnknownKey(key)),
            2 => Some(Diagnosis::OtherKeyForUs),
            3 => Some(Diagnosis::AnswerUnauthentic),
            4 => Some(Diagnosis::OtherVersion),
            5 => Some(Diagnosis::OtherProtection),
            _ => Some(Diagnosis::NothingReceived),
        }
    }
}

counters!(Traffic {
    srd_tx_pkts: u64,
    eligible_tx_pkts: u64,
    srd_rx_pkts: u64,
    srd_tx_bytes: u64,
    srd_rx_bytes: u64,
    plain_tx_pkts: u64,
    plain_rx_pkts: u64,
    plain_tx_bytes: u64,
    plain_rx_bytes: u64,
    queue_marked: u64,
    queue_dropped_late: u64,
    queue_dropped_full: u64,
    refused_pkts: u64,
});

counters!(OrderCounts {
    waited: u64,
    wait_timeouts: u64,
    given_up: u64,
    bad_chunks: u64,
    full: u64,
});

counters!(Counters {
    traffic: Traffic,
    guest_malformed: u64,
    guest_no_peer: u64,
    guest_too_big: u64,
    guest_cut: u64,
    peer_malformed: u64,
    peer_bad_source: u64,
    mss_clamped: u64,
    flows_full: u64,
    send_refused: u64,
    send_failed: u64,
    cloud_malformed: u64,
    cloud_no_peer: u64,
    cloud_too_big: u64,
    cloud_refused: u64,
    order: OrderCounts,
});

figures!(PeerStats {
    rtt_base_ns: u64,
    rtt_smoothed_ns: u64,
    delay_median_ns: u64,
    delay_spread_ns: u64,
    window_bytes: u64,
    in_flight_bytes: u64,
    queued_datagrams: usize,
    credit_left_bytes: i64,
    credit_limited: bool,
    delivery_rate_bps: u64,
    retrans_pkts: u64,
    paths: [u16; 4],
    paths_passing: u16,
});

/// Drops by reason, in the order of [`DropReason::ALL`].
pub(crate) type Drops = [u64; DropReason::COUNT];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn comes_back<T: Figure + PartialEq + std::fmt::Debug>(figure: T) {
        let mut words = Vec::new();
        figure.put(&mut |word| words.push(word));
        assert_eq!(words.len(), T::WORDS);
        let mut words = words.into_iter();
        assert_eq!(T::take(&mut || words.next().unwrap()), figure);
    }

    #[test]
    fn figures_come_back_as_they_were_written() {
        for address in ["192.0.2.1:65535", "[2001:db8::ffff:1]:1", "[fe80::1%4294967295]:7471"] {
            comes_back(Some(address.parse::<SocketAddr>().unwrap()));
        }
        comes_back(None::<SocketAddr>);
        comes_back((Some(-5), None::<i32>).0);
        comes_back(i64::MIN);
        comes_back(Some(Unreachable::Prohibited));
        comes_back(Reach::Express { udp: true, tunnels: false });
        comes_back(Reach::Express { udp: false, tunnels: true });
        let key = std::array::from_fn(|n| u8::try_from(n).unwrap());
        comes_back(Some(Diagnosis::UnknownKey(key)));
        comes_back(Some(Diagnosis::NothingReceived));
        let traffic =
            Traffic { srd_tx_pkts: 1, queue_dropped_full: u64::MAX, ..Traffic::default() };
        comes_back(Counters { traffic, send_failed: 3, ..Counters::default() });
    }

    #[test]
    fn counters_add_up_field_by_field() {
        let one = Traffic { srd_tx_pkts: 3, plain_rx_bytes: 4, ..Traffic::default() };
        let mut sum = Counters { traffic: one, guest_cut: 1, ..Counters::default() };
        sum.add(&Counters { traffic: one, ..Counters::default() });
        assert_eq!((sum.traffic.srd_tx_pkts, sum.traffic.plain_rx_bytes, sum.guest_cut), (6, 8, 1));
    }
}
