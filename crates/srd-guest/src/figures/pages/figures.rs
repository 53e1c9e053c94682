//! Figures as 64-bit words, in the order in which the packet thread writes them and readers take
//! them.

use std::array::from_fn;

use srd_card::Counters;
use srd_card::limits::Allowances;
use srd_card::vpc::{Cause, PortCounts};
use srd_net::page::{Reader, Writer};

use super::directory::LOST_MAX;
use crate::control::protocol::Tables;
use crate::interfaces::adapter::QueueCounts;
use crate::interfaces::port::DEVICE_DROPS;

/// Data that is written to a page as a fixed number of 64-bit words.
pub(crate) trait Figures: Sized {
    const WORDS: usize;
    fn put(&self, to: &mut Writer<'_>);
    fn take(from: &mut Reader<'_>) -> Self;
}

impl Figures for u64 {
    const WORDS: usize = 1;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(*self);
    }

    fn take(from: &mut Reader<'_>) -> Self {
        from.take()
    }
}

impl Figures for bool {
    const WORDS: usize = 1;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(u64::from(*self));
    }

    fn take(from: &mut Reader<'_>) -> Self {
        from.take() != 0
    }
}

/// The largest word represents `None`: no time and no counter is that large.
impl Figures for Option<u64> {
    const WORDS: usize = 1;

    fn put(&self, to: &mut Writer<'_>) {
        to.put(self.unwrap_or(u64::MAX));
    }

    fn take(from: &mut Reader<'_>) -> Self {
        Some(from.take()).filter(|word| *word != u64::MAX)
    }
}

impl<T: Figures, const N: usize> Figures for [T; N] {
    const WORDS: usize = N * T::WORDS;

    fn put(&self, to: &mut Writer<'_>) {
        self.iter().for_each(|one| one.put(to));
    }

    fn take(from: &mut Reader<'_>) -> Self {
        from_fn(|_| T::take(from))
    }
}

/// The words of a struct are the words of its members. Each member has to be named.
macro_rules! figures {
    ($type:ty { $($member:ident: $of:ty),+ $(,)? }) => {
        impl Figures for $type {
            const WORDS: usize = 0 $(+ <$of as Figures>::WORDS)+;

            fn put(&self, to: &mut Writer<'_>) {
                let Self { $($member),+ } = self;
                $(Figures::put($member, to);)+
            }

            fn take(from: &mut Reader<'_>) -> Self {
                Self { $($member: Figures::take(from)),+ }
            }
        }
    };
}

/// The figures of an interface. On the page they are followed by the number of its queues, and by
/// the figures of each queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InterfaceFigures {
    pub(crate) counts: PortCounts,
    pub(crate) allowances: Allowances,
    /// Number of further connections that the instance may track.
    pub(crate) available: u64,
    pub(crate) drops: [u64; Cause::COUNT],
    pub(crate) device: DeviceFigures,
    pub(crate) instance: InstanceFigures,
}

/// Counters of the device through which a guest uses an interface.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct DeviceFigures {
    pub(crate) is_kernel: bool,
    pub(crate) is_socket: bool,
    pub(crate) is_connected: bool,
    pub(crate) is_running: bool,
    pub(crate) pairs: u64,
    /// Whether the device was deleted, and is being created again.
    pub(crate) is_gone: bool,
    pub(crate) drops: [u64; DEVICE_DROPS.len()],
}

/// The figures of an instance, which are stored with each of its interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct InstanceFigures {
    pub(crate) credits_bits: [u64; 2],
    pub(crate) tracked: u64,
    pub(crate) untracked: u64,
    pub(crate) fragments_dropped: u64,
}

/// The figures of the whole card. On the page they are followed by the numbers of frames that were
/// lost between hosts, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Totals {
    /// Numbers of dropped packets that belong to no interface, by cause.
    pub(crate) drops: [u64; Cause::COUNT],
    pub(crate) lost: [u64; LOST_MAX + 1],
    pub(crate) tables: Tables,
    pub(crate) utilization: u64,
    pub(crate) is_edge_gone: bool,
}

figures!(PortCounts {
    tx_packets: u64,
    tx_bytes: u64,
    rx_packets: u64,
    rx_bytes: u64,
    judged: u64,
    express_tx_packets: u64,
    express_eligible_packets: u64,
    express_rx_packets: u64,
    mirrored_packets: u64,
    mirrored_bytes: u64,
    mirror_dropped: u64,
});

figures!(Allowances {
    bw_in_allowance_exceeded: u64,
    bw_out_allowance_exceeded: u64,
    pps_allowance_exceeded: u64,
    conntrack_allowance_exceeded: u64,
    linklocal_allowance_exceeded: u64,
    flow_allowance_exceeded: u64,
    gateway_allowance_exceeded: u64,
});

figures!(QueueCounts {
    tx_packets: u64,
    tx_bytes: u64,
    rx_packets: u64,
    rx_bytes: u64,
    rx_overruns: u64,
});

figures!(Tables {
    interfaces: u64,
    mapped: u64,
    members: u64,
    answers: u64,
    bytes: u64,
    asked: u64,
    answered: u64,
    refused: u64,
    not_asked: u64,
});

figures!(DeviceFigures {
    is_kernel: bool,
    is_socket: bool,
    is_connected: bool,
    is_running: bool,
    pairs: u64,
    is_gone: bool,
    drops: [u64; DEVICE_DROPS.len()],
});

figures!(InstanceFigures {
    credits_bits: [u64; 2],
    tracked: u64,
    untracked: u64,
    fragments_dropped: u64,
});

figures!(InterfaceFigures {
    counts: PortCounts,
    allowances: Allowances,
    available: u64,
    drops: [u64; Cause::COUNT],
    device: DeviceFigures,
    instance: InstanceFigures,
});

figures!(Totals {
    drops: [u64; Cause::COUNT],
    lost: [u64; LOST_MAX + 1],
    tables: Tables,
    utilization: u64,
    is_edge_gone: bool,
});

/// Returns the number of words on the page of an interface with at most `queues_max` queues.
pub(crate) fn interface_words(queues_max: usize) -> usize {
    InterfaceFigures::WORDS + 1 + queues_max * QueueCounts::WORDS
}

/// Reads the figures of an interface and of its queues from the interface's page.
pub(crate) fn take_interface(
    from: &mut Reader<'_>,
    queues_max: usize,
) -> (InterfaceFigures, Vec<QueueCounts>) {
    let figures = InterfaceFigures::take(from);
    let queues = usize::try_from(from.take()).unwrap_or(usize::MAX).min(queues_max);
    (figures, (0..queues).map(|_| QueueCounts::take(from)).collect())
}

/// Returns the number of words of [`Totals`] and of the figures that follow them on the page.
pub(crate) fn totals_words() -> usize {
    Totals::WORDS + lost_between().count()
}

/// Returns the causes for which frames are lost between hosts, in the order of their counters.
pub(crate) fn lost_between() -> impl Iterator<Item = &'static str> {
    Counters::default().drops().map(|(why, _)| why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_net::page::Page;

    /// Checks that figures are read as they were written: reads figures from words that alternate
    /// between 0 and 1, and writes the figures to another page.
    #[track_caller]
    fn come_back<T: Figures>() {
        let (page, again) = (Page::new(T::WORDS), Page::new(T::WORDS + 1));
        page.write(|to| (0..T::WORDS).for_each(|n| to.put(n as u64 % 2)));
        let figures = page.read(T::take);
        again.write(|to| {
            figures.put(to);
            to.put(7);
        });
        let words = |from: &mut Reader<'_>| (0..=T::WORDS).map(|_| from.take()).collect::<Vec<_>>();
        let (mut wrote, read) = (page.read(words), again.read(words));
        wrote[T::WORDS] = 7;
        assert_eq!(read, wrote);
    }

    #[test]
    fn figures_come_back_as_they_were_written() {
        come_back::<InterfaceFigures>();
        come_back::<Totals>();
        come_back::<QueueCounts>();
        come_back::<[Option<u64>; 4]>();
        let page = Page::new(2);
        page.write(|to| [None, Some(u64::MAX - 1)].put(to));
        assert_eq!(page.read(<[Option<u64>; 2]>::take), [None, Some(u64::MAX - 1)]);
    }

    #[test]
    fn so_many_queues_fit_and_no_more_are_read() {
        let page = Page::new(interface_words(2));
        let zero = page.read(InterfaceFigures::take);
        let queue = |n| QueueCounts { tx_packets: n, ..QueueCounts::default() };
        page.write(|to| {
            zero.put(to);
            to.put(3);
            (1..=3).for_each(|n| queue(n).put(to));
        });
        let (_, queues) = page.read(|from| take_interface(from, 2));
        assert_eq!(queues, [queue(1), queue(2)]);
    }
}
