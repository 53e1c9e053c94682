//! Meanings of the counters of an interface, by their names in `ethtool -S`.

use std::fmt;

use Layer::{Driver, FlowState, Limits, Mirror, Transport};

/// Layer of an interface's stack to which a counter belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layer {
    /// The device of the instance: its queues and rings.
    Driver,
    /// The limits of the instance type.
    Limits,
    /// Tracked connections, and stored verdicts of flows.
    FlowState,
    /// The SRD transport between hosts.
    Transport,
    /// Copies of packets for mirror sessions.
    Mirror,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Driver => "driver",
            Self::Limits => "flow controls",
            Self::FlowState => "flow state",
            Self::Transport => "transport",
            Self::Mirror => "mirroring",
        })
    }
}

/// Each counter of an interface, its layer, and its meaning.
const COUNTERS: [(&str, Layer, &str); 22] = [
    (
        "bw_in_allowance_exceeded",
        Limits,
        "Packets to the guest queued or dropped because of the bandwidth of the instance.",
    ),
    (
        "bw_out_allowance_exceeded",
        Limits,
        "Packets from the guest queued or dropped because of the bandwidth of the instance.",
    ),
    (
        "pps_allowance_exceeded",
        Limits,
        "Packets queued or dropped because of the packets per second of the instance, and \
         fragments of the guest dropped beyond 1,024 per second.",
    ),
    (
        "conntrack_allowance_exceeded",
        FlowState,
        "Packets dropped because the instance tracked as many connections as its type allows.",
    ),
    (
        "linklocal_allowance_exceeded",
        Limits,
        "Packets to link-local services dropped beyond 1,024 per second.",
    ),
    ("conntrack_allowance_available", FlowState, "Connections that the instance may still track."),
    ("ena_srd_mode", Transport, "ENA Express: 0 off, 1 on for TCP, 3 on for TCP and UDP."),
    ("ena_srd_tx_pkts", Transport, "Packets to other hosts sent over SRD."),
    (
        "ena_srd_eligible_tx_pkts",
        Transport,
        "Packets to other hosts that met the conditions for SRD, whether or not they were sent \
         over it.",
    ),
    ("ena_srd_rx_pkts", Transport, "Packets from other hosts received over SRD."),
    (
        "ena_srd_resource_utilization",
        Transport,
        "Fill of the fullest table or buffer of the host's transport, in percent.",
    ),
    (
        "flow_allowance_exceeded",
        Limits,
        "Packets queued or dropped because of the bandwidth of one flow.",
    ),
    (
        "gateway_allowance_exceeded",
        Limits,
        "Packets queued or dropped because of the bandwidth through gateways.",
    ),
    ("tx_packets", Driver, "Packets from the guest that passed."),
    ("tx_bytes", Driver, "Bytes of packets from the guest that passed, from the IP header on."),
    ("rx_packets", Driver, "Packets delivered to the guest."),
    ("rx_bytes", Driver, "Bytes of packets delivered to the guest, from the IP header on."),
    (
        "judged_packets",
        FlowState,
        "Packets without a stored verdict, which the rules were evaluated for.",
    ),
    ("mirrored_packets", Mirror, "Copies of packets sent by mirror sessions."),
    (
        "mirrored_bytes",
        Mirror,
        "Bytes of copies sent by mirror sessions, with the headers around them.",
    ),
    (
        "mirror_dropped_packets",
        Mirror,
        "Copies of packets dropped because there was no bandwidth or no route to the target.",
    ),
    ("rx_overruns", Driver, "Packets to the guest dropped because a receive ring was full."),
];

/// Each counter of a queue, its layer, and its meaning. The prefix `queue_N_` precedes the name.
const QUEUE_COUNTERS: [(&str, Layer, &str); 4] = [
    ("tx_cnt", Driver, "Packets from the guest on this queue."),
    ("tx_bytes", Driver, "Bytes from the guest on this queue."),
    ("rx_cnt", Driver, "Packets to the guest on this queue."),
    ("rx_bytes", Driver, "Bytes to the guest on this queue."),
];

/// Returns the meaning of a counter, and its layer. For a counter without an entry, this is its
/// name.
pub(super) fn meaning(counter: &str) -> String {
    let of_queue = counter.strip_prefix("queue_").and_then(|rest| rest.split_once('_'));
    let (name, all) = match of_queue {
        Some((_, name)) => (name, QUEUE_COUNTERS.as_slice()),
        None => (counter, COUNTERS.as_slice()),
    };
    let found = all.iter().find(|(of, ..)| *of == name);
    let with_layer =
        |(_, layer, meaning): &(&str, Layer, &str)| format!("{meaning} Layer: {layer}.");
    found.map_or_else(|| counter.to_owned(), with_layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the row of a layer in the table of `docs/card.md`.
    fn row(layer: Layer) -> &'static str {
        let document = include_str!("../../../../../docs/card.md");
        let begin = format!("| {layer} | ");
        document.lines().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("{layer}"))
    }

    #[test]
    fn each_counter_is_documented_in_its_layer_and_in_no_other() {
        let all = [Driver, Limits, FlowState, Transport, Mirror];
        let queues =
            QUEUE_COUNTERS.iter().map(|(name, layer, _)| (format!("queue_N_{name}"), layer));
        let counters = COUNTERS.iter().map(|(name, layer, _)| ((*name).to_owned(), layer));
        for (name, layer) in counters.chain(queues) {
            let name = format!("`{name}`");
            let rows: Vec<Layer> = all.into_iter().filter(|of| row(*of).contains(&name)).collect();
            assert_eq!(rows, [*layer], "{name}");
        }
    }

    #[test]
    fn the_page_has_the_layer_of_each_limit() {
        let (_, list) = super::super::PAGE.split_once("const LIMITS = [").unwrap();
        let (list, _) = list.split_once("\n];").unwrap();
        let mut limits = 0;
        for (name, layer, _) in COUNTERS.iter().filter(|(name, ..)| name.ends_with("_exceeded")) {
            let line = list.lines().find(|line| line.contains(&format!("['{name}', ")));
            let line = line.unwrap_or_else(|| panic!("{name}: {list}"));
            assert!(line.ends_with(&format!(", '{layer}'],")), "{line}");
            limits += 1;
        }
        assert_eq!((limits, list.lines().filter(|line| line.contains("['")).count()), (7, 7));
    }
}
