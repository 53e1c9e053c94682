//! What limited an instance, the counter that shows it, and what to do.

use srd_guest::protocol::Instance;

/// Each limit: its counter, what it is, and a remedy.
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
        "pps_allowance_exceeded",
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
        "packets to link-local services, 1,024 a second",
        "a cache of names in the instance",
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

/// Sentences about the limits that an instance has met, where the card divides rates by `scale`.
pub(super) fn findings(instance: &Instance, scale: u32) -> Vec<String> {
    let mut found = Vec::new();
    let divided = match scale {
        1 => String::new(),
        by => format!(" (the limit is divided by {by}, as --scale says)"),
    };
    for (counter, what, remedy) in LIMITS {
        let packets: u64 = instance.interfaces.iter().map(|i| i.counter(counter)).sum();
        if packets > 0 {
            found.push(format!(
                "limited by {what}: {packets} packets queued or dropped ({counter}); \
                 {remedy}{divided}"
            ));
        }
    }
    found
}

/// Bits a second, for people.
pub(super) fn rate(bps: u64) -> String {
    format!("{}/s", bits(bps))
}

/// Bits, for people.
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

    #[test]
    fn amounts_have_a_unit_that_fits() {
        let said = [12, 1_500, 781_000_000, 12_500_000_000, 3_515_700_000_000].map(bits);
        assert_eq!(said, ["12 b", "1.50 kb", "781.00 Mb", "12.50 Gb", "3.51 Tb"]);
    }
}
