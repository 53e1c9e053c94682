//! Meanings of the counters of an interface, by their names in `ethtool -S`.

/// Each counter of an interface, and its meaning.
const COUNTERS: [(&str, &str); 22] = [
    (
        "bw_in_allowance_exceeded",
        "Packets to the guest queued or dropped because of the bandwidth of the instance.",
    ),
    (
        "bw_out_allowance_exceeded",
        "Packets from the guest queued or dropped because of the bandwidth of the instance.",
    ),
    (
        "pps_allowance_exceeded",
        "Packets queued or dropped because of the packets per second of the instance, and \
         fragments of the guest dropped beyond 1,024 per second.",
    ),
    (
        "conntrack_allowance_exceeded",
        "Packets dropped because the instance tracked as many connections as its type allows.",
    ),
    (
        "linklocal_allowance_exceeded",
        "Packets to link-local services dropped beyond 1,024 per second.",
    ),
    ("conntrack_allowance_available", "Connections that the instance may still track."),
    ("ena_srd_mode", "ENA Express: 0 off, 1 on for TCP, 3 on for TCP and UDP."),
    ("ena_srd_tx_pkts", "Packets to other hosts sent over SRD."),
    (
        "ena_srd_eligible_tx_pkts",
        "Packets to other hosts that met the conditions for SRD, whether or not they were sent \
         over it.",
    ),
    ("ena_srd_rx_pkts", "Packets from other hosts received over SRD."),
    (
        "ena_srd_resource_utilization",
        "Fill of the fullest table or buffer of the host's transport, in percent.",
    ),
    ("flow_allowance_exceeded", "Packets queued or dropped because of the bandwidth of one flow."),
    (
        "gateway_allowance_exceeded",
        "Packets queued or dropped because of the bandwidth through gateways.",
    ),
    ("tx_packets", "Packets from the guest that passed."),
    ("tx_bytes", "Bytes of packets from the guest that passed, from the IP header on."),
    ("rx_packets", "Packets delivered to the guest."),
    ("rx_bytes", "Bytes of packets delivered to the guest, from the IP header on."),
    ("judged_packets", "Packets without a stored verdict, which the rules were evaluated for."),
    ("mirrored_packets", "Copies of packets sent by mirror sessions."),
    ("mirrored_bytes", "Bytes of copies sent by mirror sessions, with the headers around them."),
    (
        "mirror_dropped_packets",
        "Copies of packets dropped because there was no bandwidth or no route to the target.",
    ),
    ("rx_overruns", "Packets to the guest dropped because a receive ring was full."),
];

/// Each counter of a queue, and its meaning. The prefix `queue_N_` precedes the name.
const QUEUE_COUNTERS: [(&str, &str); 4] = [
    ("tx_cnt", "Packets from the guest on this queue."),
    ("tx_bytes", "Bytes from the guest on this queue."),
    ("rx_cnt", "Packets to the guest on this queue."),
    ("rx_bytes", "Bytes to the guest on this queue."),
];

/// Returns the meaning of a counter. For a counter without an entry, this is its name.
pub(super) fn meaning(counter: &str) -> &str {
    let of_queue = counter.strip_prefix("queue_").and_then(|rest| rest.split_once('_'));
    let (name, all) = match of_queue {
        Some((_, name)) => (name, QUEUE_COUNTERS.as_slice()),
        None => (counter, COUNTERS.as_slice()),
    };
    all.iter().find(|(of, _)| *of == name).map_or(counter, |(_, meaning)| meaning)
}
