//! Rules about the distribution of packets over CPUs: queues of the card, interrupts, and packet
//! steering by the kernel (RPS).

use super::finding::{Class, Fix, Outcome, Step, Subject};
use super::latency::cpus;
use super::system::System;
use std::collections::BTreeSet;

/// Recommended number of queues. The drivers of cards with more queues enable them by default.
const QUEUES: usize = 8;
/// File with the CPUs to which packets of the first queue are steered.
const RPS_CPUS: &str = "queues/rx-0/rps_cpus";

pub(super) fn queue_spread(system: &System, subject: &Subject) -> Outcome {
    let cpus = cpus(system).len();
    let names = system.entries(&subject.file("queues"));
    let queues = names.iter().filter(|name| name.starts_with("rx-")).count();
    if cpus == 0 || queues == 0 {
        return Outcome::not_applicable("neither CPUs nor queues are to be seen here");
    }
    if cpus == 1 {
        return Outcome::not_applicable("there is one CPU");
    }
    if queues == 1 {
        steering(system, subject, cpus)
    } else {
        interrupts(system, subject, cpus, queues)
    }
}

/// Checks an interface with one queue, whose packets only the kernel (RPS) can distribute over
/// CPUs.
fn steering(system: &System, subject: &Subject, cpus: usize) -> Outcome {
    let class = Class::Recommended;
    let wanted = "several queues, or packet steering (RPS) over all CPUs";
    if let Some((now, most)) = channels(system, subject)
        && most > now
    {
        let count = most.min(cpus).min(QUEUES).to_string();
        let argv = ["ethtool", "-L", &subject.interface, "combined", &count];
        let lasting = format!(
            "CombinedChannels={count} in a systemd.link file; changing it interrupts the link for \
             a moment"
        );
        let found = format!("1 queue of {most}, {cpus} CPUs");
        return Outcome::failed(class, found, wanted, Fix::run(&argv, lasting));
    }
    let file = subject.file(RPS_CPUS);
    let Some(mask) = system.read(&file) else {
        return Outcome::not_applicable("one queue, and no packet steering in this kernel");
    };
    let steered: u32 = mask
        .split(',')
        .filter_map(|part| u32::from_str_radix(part, 16).ok())
        .map(u32::count_ones)
        .sum();
    let found = format!("1 queue, steered to {steered} of {cpus} CPUs");
    if steered > 1 {
        return Outcome::ok(class, found, wanted);
    }
    let value = mask_of(cpus);
    let fix = Fix {
        command: format!("echo {value} | sudo tee {}", subject.typed_file(RPS_CPUS)),
        steps: vec![Step::Write { file, value }],
        by_hand: None,
        lasting: Some("a unit that writes it at boot, as --persist sets up".to_owned()),
    };
    Outcome::failed(class, found, wanted, fix)
}

/// Returns the mask of `cpus` CPUs, in the kernel's format of 32-bit words.
fn mask_of(cpus: usize) -> String {
    let (whole, rest) = (cpus / 32, cpus % 32);
    let mut words = Vec::new();
    if rest > 0 {
        words.push(format!("{:x}", (1_u64 << rest) - 1));
    }
    words.extend((0..whole).map(|_| "ffffffff".to_owned()));
    words.join(",")
}

/// Checks an interface with several queues: their interrupts should go to several CPUs.
fn interrupts(system: &System, subject: &Subject, cpus: usize, queues: usize) -> Outcome {
    let class = Class::Recommended;
    let table = system.read("proc/interrupts").unwrap_or_default();
    let numbers = of_queues(&table, &subject.interface);
    let list = |number: &String| {
        let of = |name: &str| system.read(&format!("proc/irq/{number}/{name}"));
        of("effective_affinity_list").or_else(|| of("smp_affinity_list"))
    };
    let targets: Vec<String> = numbers.iter().filter_map(list).collect();
    if targets.len() < 2 {
        return Outcome::not_applicable(format!(
            "{queues} queues, whose interrupts have no names of this interface"
        ));
    }
    let distinct = targets.iter().collect::<BTreeSet<_>>().len();
    let found = format!("{} interrupts on {distinct} of {cpus} CPUs", targets.len());
    let least = targets.len().min(cpus).div_ceil(2);
    let wanted = format!("on at least {least} CPUs");
    if distinct >= least {
        return Outcome::ok(class, found, wanted);
    }
    let step = |(n, number): (usize, &String)| Step::Write {
        file: format!("proc/irq/{number}/smp_affinity_list"),
        value: (n % cpus).to_string(),
    };
    let fix = Fix {
        command: "sudo systemctl start irqbalance, or a CPU for each in \
                  /proc/irq/*/smp_affinity_list"
            .to_owned(),
        steps: numbers.iter().enumerate().map(step).collect(),
        by_hand: None,
        lasting: Some("irqbalance, or the unit that --persist sets up".to_owned()),
    };
    Outcome::failed(class, found, wanted, fix)
}

/// Returns the numbers of the interrupts of an interface's queues. Only interrupts whose name
/// contains the interface (`eth0-Tx-Rx-3`) are found; for other names (`mlx5_comp3@pci`) the
/// interface is unknown.
fn of_queues(table: &str, interface: &str) -> Vec<String> {
    let prefix = format!("{interface}-");
    let of_interface =
        |line: &&str| line.split_whitespace().last().is_some_and(|name| name.starts_with(&prefix));
    let number = |line: &str| line.split_once(':').map(|(number, _)| number.trim().to_owned());
    table.lines().filter(of_interface).filter_map(number).collect()
}

/// Returns the current and the largest number of combined queues, from `ethtool -l`.
fn channels(system: &System, subject: &Subject) -> Option<(usize, usize)> {
    let text = system.run(&["ethtool", "-l", &subject.interface]).ok()?;
    let (most, now) = text.split_once("Current hardware settings:")?;
    let combined = |part: &str| {
        let mut lines = part.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(name, _)| name.trim() == "Combined")?;
        value.trim().parse().ok()
    };
    Some((combined(now)?, combined(most)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_words_of_32() {
        assert_eq!([2, 8, 32].map(mask_of), ["3", "ff", "ffffffff"]);
        assert_eq!(mask_of(48), "ffff,ffffffff");
    }

    #[test]
    fn interrupts_are_told_by_the_name_of_the_interface() {
        let table = "  CPU0 CPU1\n 24:  7  0 PCI-MSI 81920-edge ena-mgmnt@pci:0000:00:05.0\n \
                     25: 9 0 PCI-MSI 81921-edge eth0-Tx-Rx-0\n 26: 9 0 PCI eth0-Tx-Rx-1\n \
                     27: 1 0 PCI eth01-Tx-Rx-0\n";
        assert_eq!(of_queues(table, "eth0"), ["25", "26"]);
    }
}
