//! Requests events about packets from the card, until the trace ends.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use srd_guest::Client;

use super::filter;
use super::packets::{Packet, Packets};
use crate::card::SocketArg;
use crate::failure::Usage;
use crate::output::tell;
use crate::units;

/// Pause before the next request if the card had no events.
const PAUSE: Duration = Duration::from_millis(50);

/// Selection of packets: the instance, the filter, and the number.
#[derive(Args, Clone, Debug)]
pub(super) struct Which {
    /// Name of the instance; `any`: all instances of this host.
    instance: String,
    /// Only packets that meet all of these conditions, in the words of tcpdump: tcp, udp, icmp,
    /// icmp6, proto N, host ADDRESS, port N, src ADDRESS, dst ADDRESS, src port N, dst port N.
    filter: Vec<String>,
    /// End after this number of packets. Default: at Ctrl-C.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    packets: Option<u32>,
    /// End after this time, in seconds or with a unit, for example 10 or 500ms. Default: at Ctrl-C.
    #[arg(long, short, value_name = "TIME", value_parser = units::parse_time)]
    seconds: Option<Duration>,
    #[command(flatten)]
    socket: SocketArg,
}

/// Counts of the packets of a trace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Brought {
    pub(super) packets: u64,
    /// Packets that could not be followed, because their events came faster than they were read.
    pub(super) lost: u64,
}

/// Returns a remark on the packets that could not be followed; an empty text if there were no such
/// packets.
pub(super) fn missed(lost: u64) -> String {
    match lost {
        0 => String::new(),
        _ => format!(", {lost} not: they came faster than they were read"),
    }
}

impl Which {
    /// Follows packets, and passes each packet to `one` once its outcome is known, with its first
    /// `head_bytes` bytes. `begun` is called before the first packet, and `pause` whenever the card
    /// has no further events.
    pub(super) fn follow<T>(
        &self,
        head_bytes: u16,
        begun: impl FnOnce() -> Result<T>,
        mut one: impl FnMut(&mut T, &Packet) -> Result<()>,
        mut pause: impl FnMut(&mut T) -> Result<()>,
    ) -> Result<(T, Brought)> {
        let filter = filter::parse(&self.filter).map_err(|error| Usage(error.to_string()))?;
        let is_enough = crate::signals::stop_flag()?;
        let instance = (self.instance != "any").then(|| self.instance.clone());
        let mut client = Client::connect(&self.socket.path()?)?;
        let most = self.packets.unwrap_or(u32::MAX);
        let id = client.trace(instance, filter, most, head_bytes).map_err(crate::card::or_usage)?;
        let mut to = begun()?;
        match (self.packets, self.seconds) {
            (None, None) => tell!("srd: following packets, until Ctrl-C"),
            _ => tell!("srd: following packets; Ctrl-C ends it before"),
        }
        let ends_at = self.seconds.and_then(|time| Instant::now().checked_add(time));
        let (mut packets, mut brought) = (Packets::default(), Brought::default());
        loop {
            // Once the trace has to end, the events that exist already are requested one last time.
            let is_enough = is_enough.load(Ordering::Relaxed)
                || ends_at.is_some_and(|end| Instant::now() >= end);
            let (records, lost, is_over) = client.traced(id)?;
            let is_empty = records.is_empty();
            brought.lost += lost;
            for packet in records.into_iter().filter_map(|record| packets.take(record)) {
                brought.packets += 1;
                one(&mut to, &packet)?;
            }
            if is_over || is_enough {
                break;
            }
            if is_empty {
                pause(&mut to)?;
                std::thread::sleep(PAUSE);
            }
        }
        for packet in packets.rest() {
            brought.packets += 1;
            one(&mut to, &packet)?;
        }
        pause(&mut to)?;
        Ok((to, brought))
    }
}
