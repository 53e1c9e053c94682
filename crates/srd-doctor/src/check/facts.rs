//! Facts about the interface that `srd check` shows and that no rule checks.

use super::finding::{Purpose, Subject};
use super::system::System;

/// A fact for the user, as name and value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) value: String,
}

/// Returns facts about the interface; unavailable facts are left out.
pub(super) fn facts(system: &System, subject: &Subject) -> Vec<Fact> {
    let run = |option| system.run(&["ethtool", option, &subject.interface]).ok();
    let fact = |name, value: Option<String>| value.map(|value| Fact { name, value });
    let is_ena = subject.purpose == Purpose::Ena;
    let all = [
        fact("driver", Some(driver(system, subject))),
        fact("queues", queues(system, subject)),
        fact("coalescing", run("-c").and_then(|text| coalescing(&text))),
        fact("busy poll", busy_poll(system)),
        fact("ENA SRD", is_ena.then(|| counters(run("-S").as_deref()))),
    ];
    all.into_iter().flatten().collect()
}

fn driver(system: &System, subject: &Subject) -> String {
    let Some(driver) = &subject.driver else { return "none (not a card)".to_owned() };
    match system.read(&format!("sys/module/{driver}/version")) {
        Some(version) => format!("{driver} {version}"),
        None => driver.clone(),
    }
}

fn queues(system: &System, subject: &Subject) -> Option<String> {
    let names = system.entries(&subject.file("queues"));
    let count = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count();
    (!names.is_empty()).then(|| format!("{} rx, {} tx", count("rx-"), count("tx-")))
}

fn busy_poll(system: &System) -> Option<String> {
    let read = system.sysctl("net.core.busy_read")?;
    let poll = system.sysctl("net.core.busy_poll")?;
    Some(format!("busy_read {read} us, busy_poll {poll} us"))
}

/// Returns the relevant part of the output of `ethtool -c`: whether interrupt moderation on receive
/// is adaptive, and its delays. `None` if the output contains none of them.
fn coalescing(text: &str) -> Option<String> {
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(':')).collect();
    let names =
        [("Adaptive RX", "adaptive-rx"), ("rx-usecs", "rx-usecs"), ("tx-usecs", "tx-usecs")];
    let value = |(theirs, ours): &(&str, &str)| {
        let (_, value) = lines.iter().find(|(name, _)| name == theirs)?;
        let word = value.split_whitespace().next().filter(|word| *word != "n/a")?;
        Some(format!("{ours} {word}"))
    };
    let known: Vec<String> = names.iter().filter_map(value).collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// Returns the card's counters of SRD, from the output of `ethtool -S`, as text.
fn counters(text: Option<&str>) -> String {
    let lines = text.unwrap_or_default().lines().map(str::trim);
    let ours: Vec<String> = lines
        .filter(|line| line.starts_with("ena_srd_"))
        .map(|line| line.replace(':', ""))
        .collect();
    if ours.is_empty() { "the driver does not count it".to_owned() } else { ours.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coalescing_is_cut_to_what_matters() {
        let text = "Coalesce parameters for eth0:\nAdaptive RX: on  TX: n/a\n\
                    rx-usecs:\t20\nrx-frames:\t0\nrx-usecs-irq:\tn/a\n\ntx-usecs: 64\n\
                    tx-usecs-high:\t0\n";
        assert_eq!(coalescing(text).as_deref(), Some("adaptive-rx on, rx-usecs 20, tx-usecs 64"));
        assert_eq!(coalescing("rx-usecs:\tn/a\n"), None);
    }

    #[test]
    fn srd_counters_are_found_among_the_others() {
        let text =
            "NIC statistics:\n     tx_timeout: 0\n     ena_srd_mode: 3\n     ena_srd_tx_pkts: 7\n";
        assert_eq!(counters(Some(text)), "ena_srd_mode 3, ena_srd_tx_pkts 7");
        assert_eq!(counters(None), "the driver does not count it");
    }
}
