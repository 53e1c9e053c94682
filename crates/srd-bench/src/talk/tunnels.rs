//! The experiment `tunnels`: the card counts a tunnel as one flow, or as one flow for each source
//! port of the tunnel.

use anyhow::{Context as _, Result};
use rustix::net::{AddressFamily, Protocol, SocketType};
use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::cloud::{Cloud, IP, Pair, SETPRIV, UNSHARE, address};
use super::{Context, Experiment, Findings};
use srd_sim::talk::figure::{Figure, Near, TALK};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "tunnels",
    about: "c7i.large, outside of a placement group: a tunnel carries 100 inner flows of 8 Gb/s \
            together. GRE has one 3-tuple and so one flow's ceiling; so has VXLAN with one source \
            port. With a source port for each inner flow VXLAN has many flows.",
    scale: 100,
    takes_s: 12,
    needs: &[IP, SETPRIV, UNSHARE],
    run,
};

const INNER_FLOWS: u16 = 100;
const OFFERED_GBPS: f64 = 8.0;
/// Length in bytes of an outer packet, including its IP header.
const PACKET_BYTES: usize = 1400;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const VXLAN_PORT: u16 = 4789;
const GRE: u32 = 47;
/// Time at the start of the transfer in which a queue fills; its packets are not counted.
const FILL: Duration = Duration::from_millis(700);
/// Interval at which the sender sends the packets that are due.
const TICK: Duration = Duration::from_millis(1);

#[derive(Clone, Copy)]
enum Outer {
    Gre,
    Vxlan { ports: u16 },
}

fn run(context: &Context<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    for (name, outer, gbps) in [
        ("GRE, 100 inner flows", Outer::Gre, 5.0),
        ("VXLAN, one source port", Outer::Vxlan { ports: 1 }, 5.0),
        ("VXLAN, 100 source ports", Outer::Vxlan { ports: INNER_FLOWS }, OFFERED_GBPS),
    ] {
        (context.say)(name);
        let cloud = Cloud::of(context, &Pair::of("c7i.large").apart())?;
        let mbps = measure(context, &cloud, outer)?;
        let figure = Figure::new(name, "Mb/s", mbps);
        found.figures.push(figure.wanted(context.mbps(gbps), Near::MEASURED, TALK));
    }
    found.notes.push(format!("{OFFERED_GBPS} Gb/s of packets of {PACKET_BYTES} bytes are offered"));
    Ok(found)
}

/// Returns a raw socket for GRE, which offers the calls of a UDP socket.
fn gre_socket() -> Result<UdpSocket> {
    let protocol = NonZeroU32::new(GRE).map(Protocol::from_raw);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::RAW, protocol);
    Ok(UdpSocket::from(socket.context("a raw socket")?))
}

/// Returns the bytes that follow the outer IP and UDP headers: the header of the tunnel, and a
/// packet of an inner flow.
fn payload(outer: Outer, flow: u16) -> Vec<u8> {
    let mut bytes = match outer {
        Outer::Gre => vec![0, 0, 0x08, 0],
        Outer::Vxlan { .. } => {
            let mut header = vec![0x08, 0, 0, 0, 0, 0, 42, 0];
            header.extend_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0]);
            header
        }
    };
    let own = match outer {
        Outer::Gre => 0,
        Outer::Vxlan { .. } => UDP_BYTES,
    };
    let inner = PACKET_BYTES - IP_BYTES - own - bytes.len();
    let length = u16::try_from(inner).unwrap_or(u16::MAX).to_be_bytes();
    bytes.extend_from_slice(&[0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend_from_slice(&[192, 168, 0, 1, 192, 168, 0, 2]);
    bytes.extend_from_slice(&(10_000 + flow).to_be_bytes());
    bytes.resize(PACKET_BYTES - IP_BYTES - own, 0);
    bytes
}

fn measure(context: &Context<'_>, cloud: &Cloud, outer: Outer) -> Result<f64> {
    let count = match outer {
        Outer::Gre => 1,
        Outer::Vxlan { ports } => ports,
    };
    let senders = cloud.within("a", || {
        let socket = |_| match outer {
            Outer::Gre => gre_socket(),
            Outer::Vxlan { .. } => UdpSocket::bind("0.0.0.0:0").context("a socket"),
        };
        (0..count).map(socket).collect::<Result<Vec<_>>>()
    })?;
    let receiver = cloud.within("b", || match outer {
        Outer::Gre => gre_socket(),
        Outer::Vxlan { .. } => UdpSocket::bind(("0.0.0.0", VXLAN_PORT)).context("a socket"),
    })?;
    receiver.set_read_timeout(Some(Duration::from_millis(20)))?;
    let port = if matches!(outer, Outer::Gre) { 0 } else { VXLAN_PORT };
    let to = SocketAddr::new(address("b").parse()?, port);
    let payloads: Vec<Vec<u8>> = (0..INNER_FLOWS).map(|flow| payload(outer, flow)).collect();
    let seconds = context.quick_or(1.0, 3.0);
    let packets_per_second = context.mbps(OFFERED_GBPS) * 1e6 / 8.0 / PACKET_BYTES as f64;
    let (began, stop) = (Instant::now(), AtomicBool::new(false));
    let until = began + FILL + Duration::from_secs_f64(seconds);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                let due = began.elapsed().as_secs_f64() * packets_per_second;
                while (sent as f64) < due {
                    let flow = sent % payloads.len();
                    // A packet that does not fit into the queue of the device is lost, as in a real
                    // guest.
                    let _ = senders[flow % senders.len()].send_to(&payloads[flow], to);
                    sent += 1;
                }
                thread::sleep(TICK);
            }
        });
        let (mut seen, mut bytes) = (Arrivals::default(), vec![0; 2048]);
        while Instant::now() < until {
            if receiver.recv(&mut bytes).is_ok() && began.elapsed() >= FILL {
                seen.arrived(Instant::now());
            }
        }
        stop.store(true, Ordering::Relaxed);
        Ok(seen.mbps(Instant::now()))
    })
}

/// Packets that have arrived after the queues were full.
#[derive(Default)]
struct Arrivals {
    first: Option<Instant>,
    /// Number of packets after the first.
    packets: u32,
}

impl Arrivals {
    fn arrived(&mut self, at: Instant) {
        match self.first {
            None => self.first = Some(at),
            Some(_) => self.packets += 1,
        }
    }

    /// Returns the rate in Mb/s from the first packet to `end`.
    fn mbps(&self, end: Instant) -> f64 {
        let took_s = self.first.map_or(0.0, |first| (end - first).as_secs_f64());
        let bits = f64::from(self.packets) * PACKET_BYTES as f64 * 8.0;
        if took_s > 0.0 { bits / took_s / 1e6 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In an earlier version, the rate was that until the last packet, so that a tunnel that
    /// stopped had its full rate.
    #[test]
    fn regression_a_tunnel_that_stops_has_not_its_full_rate() {
        let begin = Instant::now();
        let mut seen = Arrivals::default();
        assert_eq!(seen.mbps(begin), 0.0);
        (0..=1000).for_each(|ms| seen.arrived(begin + Duration::from_millis(ms)));
        let [one, two] = [1, 2].map(|s| seen.mbps(begin + Duration::from_secs(s)));
        assert!((one - 11.2).abs() < 1e-9 && (two - 5.6).abs() < 1e-9, "{one} {two}");
    }
}
