//! Rules about the interface: its MTU, its rings and queues, its offloads, its driver.

use super::finding::{Class, Fix, Outcome, Purpose, Step, Subject, typed};
use super::generation;
use super::system::System;
use super::version::version;
use srd_card::profile::Generation;

/// The largest MTU that ENA Express supports, in bytes.
const CARD_MTU_MAX: u64 = 8900;
const CARD_MTU_GOOD: u64 = 8800;
/// The least MTU of the outer network for the daemon, in bytes: an inner packet of 1280 bytes,
/// which IPv6 requires, and space for the daemon's headers.
const DAEMON_MTU_MIN: u64 = 1400;
/// Recommended MTU for the daemon, in bytes; the network has to support it.
const DAEMON_MTU_GOOD: u64 = 9000;
/// Recommended number of descriptors of a transmit ring, if the card supports it.
const TX_RING: u64 = 1024;
const RX_RING: u64 = 8192;
const BQL_MODULE: &str = "sys/module/ena/parameters/enable_bql";
const LLQ_MODULE: &str = "sys/module/ena/parameters/force_large_llq_header";
/// First version of the ENA driver that supports ENA Express at full bandwidth.
const DRIVER_FULL: [u64; 3] = [2, 2, 9];
const DRIVER_COUNTS: [u64; 3] = [2, 8, 0];
/// Offloads that batches of UDP packets use.
const OFFLOADS: [(&str, &str); 3] = [
    ("tx-checksumming", "tx"),
    ("generic-segmentation-offload", "gso"),
    ("generic-receive-offload", "gro"),
];

pub(super) fn mtu(system: &System, subject: &Subject) -> Outcome {
    let Some(mtu) = system.number(&subject.file("mtu")) else {
        return Outcome::not_applicable("its MTU cannot be read");
    };
    let interface = typed(&subject.interface);
    let command = |bytes| format!("sudo ip link set dev {interface} mtu {bytes}");
    let lasting =
        |bytes| Some(format!("MTUBytes={bytes} of systemd-networkd, or `mtu {bytes}` of ifupdown"));
    let raise = |bytes| {
        let why = "only if every switch and every peer on the way passes packets so large";
        Fix { lasting: lasting(bytes), ..Fix::by_hand(command(bytes), why) }
    };
    let found = mtu.to_string();
    match subject.purpose {
        Purpose::Ena => {
            let wanted = format!("{CARD_MTU_GOOD} to {CARD_MTU_MAX}");
            if mtu > CARD_MTU_MAX {
                let value = CARD_MTU_MAX.to_string();
                let steps = vec![Step::Write { file: subject.file("mtu"), value }];
                let (command, lasting) = (command(CARD_MTU_MAX), lasting(CARD_MTU_MAX));
                let fix = Fix { command, steps, by_hand: None, lasting };
                Outcome::failed(Class::Required, found, wanted, fix)
            } else if mtu < CARD_MTU_GOOD {
                Outcome::weak(found, wanted, raise(CARD_MTU_MAX))
            } else {
                Outcome::ok(Class::Required, found, wanted)
            }
        }
        Purpose::Daemon => {
            let wanted = format!("{DAEMON_MTU_GOOD}; at least {DAEMON_MTU_MIN}");
            if mtu < DAEMON_MTU_MIN {
                Outcome::failed(Class::Required, found, wanted, raise(DAEMON_MTU_GOOD))
            } else if mtu < DAEMON_MTU_GOOD {
                Outcome::weak(found, wanted, raise(DAEMON_MTU_GOOD))
            } else {
                Outcome::ok(Class::Required, found, wanted)
            }
        }
    }
}

pub(super) fn byte_queue_limits(system: &System, subject: &Subject) -> Outcome {
    if subject.purpose == Purpose::Daemon {
        return Outcome::not_applicable(
            "for ENA Express only: other cards complete a packet when it has left, not when it \
             has arrived",
        );
    }
    let (class, wanted) = (Class::Required, "off");
    if system.read(BQL_MODULE).is_some_and(|value| value == "0" || value == "N") {
        return Outcome::ok(class, "off in the driver", wanted);
    }
    let names = system.entries(&subject.file("queues"));
    let queues = names.iter().filter(|name| name.starts_with("tx-"));
    let files: Vec<String> = queues
        .map(|queue| subject.file(&format!("queues/{queue}/byte_queue_limits/limit_min")))
        .filter(|file| system.exists(file))
        .collect();
    if files.is_empty() {
        return Outcome::ok(class, "not in this kernel", wanted);
    }
    let on: Vec<String> =
        files.iter().filter(|file| system.number(file) == Some(0)).cloned().collect();
    if on.is_empty() {
        return Outcome::ok(class, "limit_min raised", wanted);
    }
    let found = format!("on for {} of {} queues", on.len(), files.len());
    let all = subject.typed_file("queues/tx-*/byte_queue_limits/limit_min");
    let write = |file| Step::Write { file, value: "max".to_owned() };
    let fix = Fix {
        command: format!("echo max | sudo tee {all}"),
        steps: on.into_iter().map(write).collect(),
        by_hand: None,
        lasting: Some(
            "`options ena enable_bql=0` in /etc/modprobe.d/srd.conf, for drivers that know it"
                .to_owned(),
        ),
    };
    Outcome::failed(class, found, wanted, fix)
}

pub(super) fn tx_ring(system: &System, subject: &Subject) -> Outcome {
    ring(system, subject, Direction { field: "TX", argument: "tx", wanted: TX_RING })
}

pub(super) fn rx_ring(system: &System, subject: &Subject) -> Outcome {
    ring(system, subject, Direction { field: "RX", argument: "rx", wanted: RX_RING })
}

struct Direction {
    field: &'static str,
    argument: &'static str,
    wanted: u64,
}

fn ring(system: &System, subject: &Subject, direction: Direction) -> Outcome {
    let text = match system.run(&["ethtool", "-g", &subject.interface]) {
        Ok(text) => text,
        Err(error) => return Outcome::not_applicable(format!("{error:#}")),
    };
    let (most, now) = ring_sizes(&text, direction.field);
    let Some(now) = now else {
        return Outcome::not_applicable("the driver does not say how large it is");
    };
    let least = most.map_or(direction.wanted, |most| most.min(direction.wanted));
    let found = most.map_or(now.to_string(), |most| format!("{now} of {most}"));
    let wanted = format!("at least {least}");
    if now >= least {
        return Outcome::ok(Class::Recommended, found, wanted);
    }
    let lasting = format!(
        "{}BufferSize={least} in a systemd.link file; changing it interrupts the link for a moment",
        if direction.argument == "tx" { "Tx" } else { "Rx" }
    );
    let least = least.to_string();
    let argv = ["ethtool", "-G", &subject.interface, direction.argument, &least];
    Outcome::failed(Class::Recommended, found, wanted, Fix::run(&argv, lasting))
}

/// Returns the largest possible and the current size of a ring, in descriptors, from the output of
/// `ethtool -g`.
fn ring_sizes(text: &str, field: &str) -> (Option<u64>, Option<u64>) {
    let (limits, now) = text.split_once("Current hardware settings:").unwrap_or(("", text));
    let value = |part: &str| {
        let lines = part.lines().filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(name, _)| *name == field);
        values.next().and_then(|(_, value)| value.trim().parse().ok())
    };
    (value(limits), value(now))
}

pub(super) fn large_llq(system: &System, subject: &Subject) -> Outcome {
    if subject.purpose == Purpose::Daemon {
        return Outcome::not_applicable("for ENA cards only");
    }
    let Some(setting) = system.read(LLQ_MODULE) else {
        return Outcome::not_applicable("the driver has no large LLQ");
    };
    let text = match system.run(&["ethtool", "-g", &subject.interface]) {
        Ok(text) => text,
        Err(error) => return Outcome::not_applicable(format!("{error:#}")),
    };
    let (class, wanted) = (Class::Recommended, "0 if the Tx ring is short");
    let found = format!("force_large_llq_header {setting}");
    let is_short = ring_sizes(&text, "TX").1.is_some_and(|now| now < TX_RING);
    if setting == "0" || !is_short {
        return Outcome::ok(class, found, wanted);
    }
    let command = "echo 'options ena force_large_llq_header=0' | sudo tee -a \
                   /etc/modprobe.d/srd.conf; sudo reboot";
    let why = "the driver has to be loaded anew, which takes the network away";
    Outcome::failed(class, found, wanted, Fix::by_hand(command.to_owned(), why))
}

pub(super) fn offloads(system: &System, subject: &Subject) -> Outcome {
    if subject.purpose == Purpose::Ena {
        return Outcome::not_applicable("for `srd up` only (--for daemon)");
    }
    let text = match system.run(&["ethtool", "-k", &subject.interface]) {
        Ok(text) => text,
        Err(error) => return Outcome::not_applicable(format!("{error:#}")),
    };
    let state = |feature: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let mut states = lines.filter(|(name, _)| name.trim() == feature);
        states.next().map(|(_, state)| state.trim().to_owned())
    };
    let (class, wanted) = (Class::Recommended, "tx on gso on gro on");
    let (mut found, mut off, mut fixed) = (Vec::new(), Vec::new(), false);
    for (feature, short) in OFFLOADS {
        let Some(state) = state(feature) else {
            return Outcome::not_applicable(format!("ethtool does not name {feature}"));
        };
        let is_on = state.starts_with("on");
        found.push(format!("{short} {}", if is_on { "on" } else { "off" }));
        if !is_on {
            off.push(short);
            fixed |= state.contains("[fixed]");
        }
    }
    let found = found.join(" ");
    if off.is_empty() {
        return Outcome::ok(class, found, wanted);
    }
    let switches = off.iter().flat_map(|short| [*short, "on"]);
    let argv: Vec<&str> =
        ["ethtool", "-K", &subject.interface].into_iter().chain(switches).collect();
    let lasting = "in a systemd.link file: TransmitChecksumOffload=, \
                   GenericSegmentationOffload=, GenericReceiveOffload="
        .to_owned();
    let fix = Fix::run(&argv, lasting);
    let why = "the driver does not let it be changed";
    let fix = if fixed { Fix::by_hand(fix.command, why) } else { fix };
    Outcome::failed(class, found, wanted, fix)
}

pub(super) fn driver(system: &System, subject: &Subject) -> Outcome {
    if subject.purpose == Purpose::Daemon {
        return Outcome::not_applicable("for ENA cards only");
    }
    let Some(found) = system.read("sys/module/ena/version") else {
        return Outcome::not_applicable("the driver does not say its version: it is the kernel's");
    };
    if found.ends_with('K') {
        return Outcome::not_applicable(format!("{found} is the kernel's own, numbered apart"));
    }
    let Some(version) = version(&found) else {
        return Outcome::not_applicable(format!("`{found}` is no version"));
    };
    // The talk NET402 (AWS re:Invent 2024) recommends the minimum for Nitro v4, and requires it for
    // v5.
    let is_old = generation::of_instance(system).is_some_and(|nitro| nitro < Generation::V5);
    let class = if is_old { Class::Recommended } else { Class::Required };
    let wanted = "at least 2.2.9, required from Nitro v5 on; 2.8.0 counts SRD packets";
    let command = "see https://github.com/amzn/amzn-drivers, or install a newer kernel".to_owned();
    let fix = Fix::by_hand(command, "the driver has to be installed");
    if version >= DRIVER_COUNTS {
        Outcome::ok(class, found, wanted)
    } else if version >= DRIVER_FULL {
        Outcome::weak(found, wanted, fix)
    } else {
        Outcome::failed(class, found, wanted, fix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_sizes_are_told_from_their_limits() {
        let text = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t16384\nRX Mini:\tn/a\n\
                    TX:\t\t1024\nCurrent hardware settings:\nRX:\t\t1024\nRX Mini:\tn/a\n\
                    TX:\t\t512\nTX Push:\ton\n";
        assert_eq!(ring_sizes(text, "RX"), (Some(16384), Some(1024)));
        assert_eq!(ring_sizes(text, "TX"), (Some(1024), Some(512)));
        let unknown = text.replace("16384", "n/a");
        assert_eq!(ring_sizes(&unknown, "RX"), (None, Some(1024)));
        assert_eq!(ring_sizes("", "RX"), (None, None));
    }
}
