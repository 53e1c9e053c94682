//! Limits that an instance exceeded, with their counters and remedies.

use srd_guest::protocol::Instance;

/// Name of a counter that counts two limits: packets per second of the instance, and fragments of
/// an interface.
const PACKETS: &str = "pps_allowance_exceeded";
/// Limits of an instance: the counter, the display name and the remedy of each.
const LIMITS: [(&str, &str, &str); 7] = [
    (
        "bw_in_allowance_exceeded",
        "bandwidth to the instance",
        "a larger type has more; once credits are spent only the baseline is left",
    ),
    (
        "bw_out_allowance_exceeded",
        "bandwidth from the instance",
        "a larger type has more; once credits are spent only the baseline is left",
    ),
    (
        PACKETS,
        "packets a second",
        "larger packets carry more (MTU 9001, segmentation offload); a larger type has more",
    ),
    (
        "conntrack_allowance_exceeded",
        "tracked connections",
        "shorter idle times, or rules that need no tracking: open to everybody both ways",
    ),
    (
        "linklocal_allowance_exceeded",
        "packets to link-local services, 1,024 a second of each interface",
        "a cache of names in the instance, or a second interface; no type has more",
    ),
    (
        "flow_allowance_exceeded",
        "one flow: 5 Gb/s, 10 in a cluster placement group, 25 with ENA Express",
        "several connections, a cluster placement group, or ENA Express",
    ),
    (
        "gateway_allowance_exceeded",
        "bandwidth through gateways: 5 Gb/s below 32 vCPUs, else half of the type's",
        "a type of 32 vCPUs or more",
    ),
];

/// Returns a sentence for each limit that an instance exceeded. `scale` is the number by which the
/// card divides rates.
pub(super) fn findings(instance: &Instance, scale: u32) -> Vec<String> {
    let mut found = Vec::new();
    let divided = match scale {
        1 => String::new(),
        by => format!(" (the limit is divided by {by}, as --scale says)"),
    };
    for (counter, what, remedy) in LIMITS {
        let all: u64 = instance.interfaces.iter().map(|i| i.counter(counter)).sum();
        let of_others = if counter == PACKETS { instance.fragments_dropped } else { 0 };
        let packets = all.saturating_sub(of_others);
        if packets > 0 {
            found.push(format!(
                "limited by {what}: {packets} packets queued or dropped ({counter}); \
                 {remedy}{divided}"
            ));
        }
    }
    if instance.fragments_dropped > 0 {
        found.push(format!(
            "limited by fragments, 1,024 a second of each interface: {} fragments dropped (they \
             count in {PACKETS}, too); packets of at most the path's MTU are no fragments: smaller \
             datagrams, a lower MTU in the instance, or path MTU discovery; neither a larger type \
             nor segmentation offload helps{divided}",
            instance.fragments_dropped
        ));
    }
    found
}

/// Returns the remaining burst credits, for packets to the instance and from it, as text; `None` if
/// its type has no credits.
pub(super) fn credits(instance: &Instance) -> Option<String> {
    let [peak, baseline] = instance.bandwidth_bps;
    let [into, out] = instance.credits_bits.map(|left| match left {
        0 => String::from("none left"),
        left => bits(left),
    });
    (peak > baseline).then(|| format!("credits in {into}, out {out}"))
}

/// Formats a rate in bits per second, such as `1.25 Gb/s`.
pub(super) fn rate(bps: u64) -> String {
    format!("{}/s", bits(bps))
}

/// Formats a number of bits, such as `1.25 Gb`.
pub(super) fn bits(bits: u64) -> String {
    let units =
        [(1_000_000_000_000, "Tb"), (1_000_000_000, "Gb"), (1_000_000, "Mb"), (1_000, "kb")];
    let unit = units.into_iter().find(|(size, _)| bits >= *size);
    match unit {
        Some((size, name)) => {
            let hundredths = u128::from(bits) * 100 / u128::from(size);
            format!("{}.{:02} {name}", hundredths / 100, hundredths % 100)
        }
        None => format!("{bits} b"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_guest::protocol::Interface;

    fn instance(pps: u64, fragments_dropped: u64) -> Instance {
        let interface = Interface {
            name: String::new(),
            id: String::new(),
            device: String::from("ens5"),
            mac: String::new(),
            addresses: Vec::new(),
            counters: vec![(PACKETS.to_owned(), pps)],
            drops: std::collections::BTreeMap::new(),
            vhost_user: None,
            gone: None,
        };
        Instance {
            name: String::from("web"),
            id: String::new(),
            instance_type: String::from("c7i.large"),
            namespace: None,
            worker: 0,
            interfaces: vec![interface],
            tracked: 0,
            untracked: 0,
            credits_bits: [0; 2],
            bandwidth_bps: [0; 2],
            packets_per_second: 0,
            fragments_dropped,
        }
    }

    #[test]
    fn regression_fragments_over_their_limit_have_advice_of_their_own() {
        let only_fragments = findings(&instance(7, 7), 1);
        assert_eq!(only_fragments.len(), 1, "{only_fragments:?}");
        let says = &only_fragments[0];
        assert!(says.starts_with("limited by fragments") && says.contains(": 7 frag"), "{says}");
        assert!(!says.contains("a larger type has more"), "{says}");
        let both = findings(&instance(9, 7), 1);
        assert!(both[0].starts_with("limited by packets a second: 2 packets"), "{both:?}");
        assert_eq!(both.len(), 2);
        assert_eq!(findings(&instance(9, 0), 1).len(), 1);
    }

    #[test]
    fn credits_that_are_spent_are_told_from_those_that_a_type_does_not_have() {
        let mut burst = instance(0, 0);
        (burst.bandwidth_bps, burst.credits_bits) = ([10, 5], [0, 1500]);
        assert_eq!(credits(&burst).unwrap(), "credits in none left, out 1.50 kb");
        burst.bandwidth_bps = [10, 10];
        assert_eq!(credits(&burst), None);
    }

    #[test]
    fn amounts_have_a_unit_that_fits() {
        let said = [12, 1_500, 781_000_000, 12_500_000_000, 3_515_700_000_000].map(bits);
        assert_eq!(said, ["12 b", "1.50 kb", "781.00 Mb", "12.50 Gb", "3.51 Tb"]);
    }
}
