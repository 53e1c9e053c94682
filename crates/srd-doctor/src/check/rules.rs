//! The list of rules. Numbers 1 to 10 are the same as in Amazon's `check-ena-express-settings.sh`,
//! so that descriptions of them can be found; our rules follow. `docs/check.md` has the same list.

use super::apply::SYSCTL_FILE;
use super::finding::{Finding, Outcome, Rule, Step, Subject};
use super::system::System;
use super::{generation, interface, kernel, latency, sockets, spread};

/// Every rule, in ascending order of the numbers.
pub(crate) const RULES: [Rule; 23] = [
    Rule {
        number: 1,
        name: "mtu",
        why: "larger packets than the sprayer takes go out plain; small ones cost CPU per byte",
        in_image: false,
        check: interface::mtu,
    },
    Rule {
        number: 2,
        name: "tcp-limit-output-bytes",
        why: "one flow may keep only so much below TCP, which bounds the rate of a sprayed flow",
        in_image: true,
        check: kernel::tcp_limit_output_bytes,
    },
    Rule {
        number: 3,
        name: "bql",
        why: "the card completes a packet when the peer has it, so byte queue limits throttle it",
        in_image: false,
        check: interface::byte_queue_limits,
    },
    Rule {
        number: 4,
        name: "tcp-autocorking",
        why: "small writes wait for the completion of packets before them",
        in_image: true,
        check: kernel::tcp_autocorking,
    },
    Rule {
        number: 5,
        name: "tx-ring",
        why: "a burst that does not fit waits in the kernel, or is dropped there",
        in_image: false,
        check: interface::tx_ring,
    },
    Rule {
        number: 6,
        name: "rx-ring",
        why: "a burst from many paths that does not fit is dropped",
        in_image: false,
        check: interface::rx_ring,
    },
    Rule {
        number: 7,
        name: "large-llq",
        why: "entries for long headers halve the Tx ring",
        in_image: false,
        check: interface::large_llq,
    },
    Rule {
        number: 8,
        name: "tcp-memory",
        why: "a TCP window beyond its buffers is not used, which bounds a flow over a long way",
        in_image: true,
        check: kernel::tcp_memory,
    },
    Rule {
        number: 9,
        name: "socket-memory",
        why: "programs that set no buffers, or large ones, get too little for a long way",
        in_image: true,
        check: kernel::socket_memory,
    },
    Rule {
        number: 10,
        name: "congestion-control",
        why: "HyStart takes the varying delay of many paths for a full network, and stops early",
        in_image: true,
        check: kernel::congestion_control,
    },
    Rule {
        number: 11,
        name: "srd-buffers",
        why: "programs over SRD get smaller socket buffers than they ask for, and lose bursts \
              (`srd up` has the privilege to exceed the limit)",
        in_image: true,
        check: kernel::daemon_buffers,
    },
    Rule {
        number: 12,
        name: "udp-offload",
        why: "batches of UDP packets pass the kernel as one only with these offloads",
        in_image: false,
        check: interface::offloads,
    },
    Rule {
        number: 13,
        name: "tun",
        why: "`srd up` makes its interface through this device",
        in_image: false,
        check: kernel::tun,
    },
    Rule {
        number: 14,
        name: "reverse-path-filter",
        why: "a strict filter drops packets of a peer that come by another way than answers go",
        in_image: false,
        check: kernel::reverse_path,
    },
    Rule {
        number: 15,
        name: "flow-labels",
        why: "switches that hash the flow label of IPv6 see one path only without labels",
        in_image: true,
        check: kernel::flow_labels,
    },
    Rule {
        number: 16,
        name: "uplink-hash",
        why: "a host with several uplinks that hashes addresses only sends every path over one",
        in_image: false,
        check: kernel::uplink_hash,
    },
    Rule {
        number: 17,
        name: "driver",
        why: "older ENA drivers keep ENA Express below its bandwidth, or do not count it",
        in_image: false,
        check: interface::driver,
    },
    Rule {
        number: 18,
        name: "idle-states",
        why: "a CPU that sleeps deeply takes tens of microseconds to look at a packet",
        in_image: false,
        check: latency::idle_states,
    },
    Rule {
        number: 19,
        name: "interrupt-moderation",
        why: "interrupts that wait add delay to each packet; one for each packet costs CPU",
        in_image: false,
        check: latency::interrupt_moderation,
    },
    Rule {
        number: 20,
        name: "busy-poll",
        why: "a socket that polls the card sees a packet without an interrupt",
        in_image: true,
        check: latency::busy_poll,
    },
    Rule {
        number: 21,
        name: "queue-spread",
        why: "one CPU that works on all packets is full before the network is",
        in_image: false,
        check: spread::queue_spread,
    },
    Rule {
        number: 22,
        name: "driver-generation",
        why: "an older driver lacks what the instance's Nitro version can do",
        in_image: false,
        check: generation::driver_generation,
    },
    Rule {
        number: 23,
        name: "nodelay",
        why: "a small write waits for the acknowledgement of the one before, up to 40 ms",
        in_image: false,
        check: sockets::nodelay,
    },
];

/// Returns the rules with the given names or numbers; all rules if `names` is empty.
pub(crate) fn select(names: &[String]) -> Result<Vec<&'static Rule>, String> {
    if names.is_empty() {
        return Ok(RULES.iter().collect());
    }
    let is = |rule: &Rule, name: &str| rule.name == name || rule.number.to_string() == name;
    if let Some(unknown) = names.iter().find(|name| !RULES.iter().any(|rule| is(rule, name))) {
        let known: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        return Err(format!(
            "no check `{unknown}`: give a number from 1 to {} or one of {}",
            RULES.len(),
            known.join(", ")
        ));
    }
    Ok(RULES.iter().filter(|rule| names.iter().any(|name| is(rule, name))).collect())
}

/// Checks `rules` and returns a finding for each.
pub(crate) fn check(system: &System, subject: &Subject, rules: &[&'static Rule]) -> Vec<Finding> {
    let checked = |rule: &&'static Rule| Finding {
        number: rule.number,
        name: rule.name.to_owned(),
        why: rule.why,
        outcome: if system.is_image() && !rule.in_image {
            Outcome::not_applicable(
                "only a running system shows it: the unit srd-check looks at boot",
            )
        } else {
            let outcome = (rule.check)(system, subject);
            if system.is_image() { in_image(outcome, system, subject) } else { outcome }
        },
    };
    rules.iter().map(checked).collect()
}

/// Replaces the command of a fix, which is for a running machine, by a command that changes the
/// files of the image.
fn in_image(outcome: Outcome, system: &System, subject: &Subject) -> Outcome {
    let Outcome::Checked { class, status, found, wanted, fix: Some(mut fix) } = outcome else {
        return outcome;
    };
    let setting = |step: &Step| match step {
        Step::Sysctl { key, value } => Some(format!(" '{key} = {value}'")),
        Step::Write { .. } | Step::Run(_) => None,
    };
    let settings: Vec<String> = fix.steps.iter().filter_map(setting).collect();
    fix.command = if settings.len() == fix.steps.len() {
        let file = system.shown(SYSCTL_FILE);
        format!("printf '%s\\n'{} | sudo tee -a {file}", settings.concat())
    } else {
        let purpose = subject.purpose.word();
        let root = system.shown("");
        let root = root.trim_end_matches('/');
        format!("sudo srd check --image {root} --for {purpose} --fix")
    };
    Outcome::Checked { class, status, found, wanted, fix: Some(fix) }
}
