//! Counters of a watch in the OpenMetrics format, served at `/metrics`.
//!
//! Limits: each interface under watch has two sets of labels, one for each direction; `srd-http`
//! limits the requests.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use srd_http::{Listener, Request, Response, Server, exposition};

use crate::analysis::burst::Burst;
use crate::session::Session;
use crate::sources::arrival::PacketDirection;
use crate::sources::source::{Kind, Opened};

/// Upper ends of the histogram of burst lengths, in seconds.
const LENGTHS_S: [f64; 18] = [
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 30.0, 60.0,
];
/// Upper ends of the histogram of bytes in a burst.
const SIZES_BYTES: [f64; 13] = [1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 3e7, 1e8, 3e8, 1e9, 3e9, 1e10];

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Histograms = Family<Labels, Histogram>;

/// Metrics of all interfaces under watch.
#[derive(Debug)]
pub struct Metrics {
    sources: Family<Labels, Gauge>,
    bytes: Counters,
    packets: Counters,
    queued: Counters,
    dropped: Counters,
    bins_above: Counters,
    bursts: Counters,
    lengths: Histograms,
    sizes: Histograms,
    lost: Counters,
    others: Counters,
    /// Nanoseconds and bytes of those parts of a continuing burst that have been reported, by
    /// interface and direction.
    parts: BTreeMap<(String, PacketDirection), (u64, u64)>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            sources: Family::default(),
            bytes: Counters::default(),
            packets: Counters::default(),
            queued: Counters::default(),
            dropped: Counters::default(),
            bins_above: Counters::default(),
            bursts: Counters::default(),
            lengths: Histograms::new_with_constructor(|| Histogram::new(LENGTHS_S)),
            sizes: Histograms::new_with_constructor(|| Histogram::new(SIZES_BYTES)),
            lost: Counters::default(),
            others: Counters::default(),
            parts: BTreeMap::new(),
        }
    }
}

impl Metrics {
    /// Creates all metrics of an interface, with the value zero, and records its source.
    pub fn opened(&mut self, opened: &Opened) {
        let mut labels = of(&opened.interface);
        for way in PacketDirection::BOTH {
            let both = of_way(&opened.interface, way);
            let counters = [&self.bytes, &self.packets, &self.queued, &self.dropped];
            for family in counters.into_iter().chain([&self.bins_above, &self.bursts]) {
                drop(family.get_or_create(&both));
            }
            for family in [&self.lengths, &self.sizes] {
                drop(family.get_or_create(&both));
            }
        }
        for family in [&self.lost, &self.others] {
            drop(family.get_or_create(&labels));
        }
        let name = if opened.source == Kind::Ebpf { "ebpf" } else { "packet" };
        labels.push(("source", name.to_owned()));
        self.sources.get_or_create(&labels).set(1);
    }

    /// Counts a burst that has ended. Parts of a burst are summed, and counted together with the
    /// last part.
    pub fn ended(&mut self, burst: &Burst) {
        let part = self.parts.entry((burst.interface.clone(), burst.way)).or_default();
        *part = (part.0 + burst.length_ns, part.1 + burst.bytes);
        if burst.continues {
            return;
        }
        let (length_ns, bytes) = std::mem::take(part);
        let labels = of_way(&burst.interface, burst.way);
        self.bursts.get_or_create(&labels).inc();
        self.lengths.get_or_create(&labels).observe(length_ns as f64 / 1e9);
        self.sizes.get_or_create(&labels).observe(bytes as f64);
    }

    /// Sets the metrics of an interface to the figures of its session and to its number of lost
    /// packets.
    pub fn figures(&mut self, session: &Session, lost: u64) {
        let interface = session.watch.name();
        for way in PacketDirection::BOTH {
            let (labels, totals) = (of_way(interface, way), session.watch.totals(way));
            for (family, total) in [
                (&self.bytes, totals.bytes),
                (&self.packets, totals.packets),
                (&self.queued, totals.queued),
                (&self.dropped, totals.dropped),
                (&self.bins_above, totals.bins_above),
            ] {
                reach(family, &labels, total);
            }
        }
        reach(&self.lost, &of(interface), lost);
        reach(&self.others, &of(interface), session.others().total());
    }

    fn registry(&self) -> Registry {
        let mut all = Registry::with_prefix("srd_watch");
        let help = "The source of packets: ebpf or packet";
        all.register("source", help, self.sources.clone());
        for (name, help, family) in [
            ("ip_bytes", "Bytes from the IP header on", &self.bytes),
            ("packets", "IP packets, each of a super-packet counted", &self.packets),
            ("packets_queued", "Packets that the model would let wait", &self.queued),
            ("packets_dropped", "Packets that the model would drop", &self.dropped),
            ("bins_above", "Bins above the limit of bandwidth", &self.bins_above),
            ("bursts", "Bursts that are over", &self.bursts),
            ("samples_lost", "Packets that found no room and were not seen", &self.lost),
            ("frames_without_ip", "Frames without IP, which no other figure has", &self.others),
        ] {
            all.register(name, help, family.clone());
        }
        let (help, lengths) = ("Lengths of bursts that are over", self.lengths.clone());
        all.register_with_unit("burst_length", help, Unit::Seconds, lengths);
        let (help, sizes) = ("Bytes of bursts that are over", self.sizes.clone());
        all.register_with_unit("burst_size", help, Unit::Bytes, sizes);
        all
    }

    /// Serves the metrics at `http://ADDRESS/metrics`. Other machines can read them if the address
    /// is not a loopback address.
    ///
    /// # Errors
    /// An error of the operating system, if the address cannot be bound.
    pub fn serve(&self, at: SocketAddr) -> io::Result<Server> {
        let registry = Arc::new(self.registry());
        let listener = Listener::bind(at, !at.ip().is_loopback())?;
        Server::start(listener, Box::new(move |request| answer(request, &registry)))
    }
}

fn of(interface: &str) -> Labels {
    vec![("interface", interface.to_owned())]
}

fn of_way(interface: &str, way: PacketDirection) -> Labels {
    vec![("interface", interface.to_owned()), ("direction", way.name().to_owned())]
}

/// Raises a counter to `total`. A total never decreases.
fn reach(family: &Counters, labels: &Labels, total: u64) {
    let counter = family.get_or_create(labels);
    counter.inc_by(total.saturating_sub(counter.get()));
}

fn answer(request: &Request, registry: &Registry) -> Response {
    exposition::answer(request, |text| encode(text, registry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Settings, Watch};
    use srd_proto::time::Instant;

    fn burst(length_ns: u64, continues: bool) -> Burst {
        let model = Model::of_rate(8_000_000, None);
        let mut watch = Watch::new("eth0", Settings::default(), &model, Instant::ZERO);
        let arrival = |ms: u64| crate::Arrival {
            time: Instant::from_nanos(ms * 1_000_000),
            way: PacketDirection::Out,
            flow: crate::Flow {
                outer: srd_card::FlowKey {
                    source: [10, 0, 0, 1].into(),
                    destination: [10, 0, 0, 2].into(),
                    protocol: 17,
                    ports: (1, 2),
                },
                inner: None,
            },
            bytes: 50_000,
            packets: 5,
            packet_bytes: 10_000,
            fragment: false,
        };
        (0..9).for_each(|ms| watch.arrive(&arrival(ms)));
        watch.finish(Instant::from_nanos(1_000_000_000));
        let found = std::iter::from_fn(|| watch.next_event()).find_map(|event| match event {
            crate::Event::Ended(burst) => Some(*burst),
            crate::Event::Began(_) => None,
        });
        Burst { length_ns, continues, bytes: 2000, ..found.expect("nine bins over the limit") }
    }

    fn text(metrics: &Metrics) -> String {
        let mut text = String::new();
        encode(&mut text, &metrics.registry()).unwrap();
        text
    }

    #[test]
    fn parts_of_a_burst_are_one_burst_and_everything_begins_at_zero() {
        let mut metrics = Metrics::default();
        let reason = String::new();
        let opened = Opened { interface: "eth0".to_owned(), source: Kind::Ebpf, reason };
        metrics.opened(&opened);
        let begun = text(&metrics);
        let bursts = "srd_watch_bursts_total{interface=\"eth0\",direction=\"out\"}";
        assert!(begun.contains(&format!("{bursts} 0")), "{begun}");
        assert!(begun.contains("srd_watch_samples_lost_total{interface=\"eth0\"} 0"), "{begun}");
        assert!(begun.contains("srd_watch_source{interface=\"eth0\",source=\"ebpf\"} 1"));
        metrics.ended(&burst(60_000_000_000, true));
        metrics.ended(&burst(3_000_000, false));
        metrics.ended(&burst(3_000_000, false));
        let text = text(&metrics);
        assert!(text.contains(&format!("{bursts} 2")), "{text}");
        let of = |le: &str| {
            let labels = format!("le=\"{le}\",interface=\"eth0\",direction=\"out\"");
            format!("srd_watch_burst_length_seconds_bucket{{{labels}}}")
        };
        for (le, count) in [("0.002", 0), ("0.005", 1), ("60.0", 1), ("+Inf", 2)] {
            assert!(text.contains(&format!("{} {count}", of(le))), "{le}: {text}");
        }
        let sum = "srd_watch_burst_size_bytes_sum{interface=\"eth0\",direction=\"out\"} 6000.0";
        assert!(text.contains(sum), "{text}");
    }
}
