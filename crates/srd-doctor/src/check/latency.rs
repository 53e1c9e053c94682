//! Rules about settings that cause delays: idle states of CPUs, interrupt moderation, and polling.

use super::finding::{Class, Fix, Outcome, Step, Subject};
use super::system::System;

/// Largest acceptable time that a CPU needs to leave an idle state, in microseconds.
const EXIT_US_MAX: u64 = 20;
/// Recommended busy-poll time of sockets, in microseconds.
const BUSY_POLL_US: u64 = 50;
const CPUS: &str = "sys/devices/system/cpu";

const FOR_DELAYS: &str = "costs CPU and power: only where delays matter more (--latency)";

pub(super) fn idle_states(system: &System, subject: &Subject) -> Outcome {
    if !subject.latency {
        return Outcome::not_applicable(FOR_DELAYS);
    }
    let (mut deepest, mut slow) = (None::<(u64, String)>, Vec::new());
    for cpu in cpus(system) {
        for state in system.entries(&format!("{CPUS}/{cpu}/cpuidle")) {
            let of = |name: &str| format!("{CPUS}/{cpu}/cpuidle/{state}/{name}");
            let Some(exit_us) = system.number(&of("latency")) else { continue };
            if system.number(&of("disable")).is_some_and(|value| value != 0) {
                continue;
            }
            if deepest.as_ref().is_none_or(|(most, _)| exit_us > *most) {
                let name = system.read(&of("name")).unwrap_or_else(|| state.clone());
                deepest = Some((exit_us, name));
            }
            if exit_us > EXIT_US_MAX {
                slow.push(Step::Write { file: of("disable"), value: "1".to_owned() });
            }
        }
    }
    let Some((exit_us, name)) = deepest else {
        return Outcome::not_applicable(
            "the kernel shows no idle states: the hypervisor keeps them, or they are off",
        );
    };
    let (found, wanted) = (format!("{name}, {exit_us} us"), format!("at most {EXIT_US_MAX} us"));
    let class = Class::Recommended;
    if slow.is_empty() {
        return Outcome::ok(class, found, wanted);
    }
    let fix = Fix {
        command: "sudo cpupower idle-set --disable-by-latency 20".to_owned(),
        steps: slow,
        by_hand: None,
        lasting: Some(
            "`intel_idle.max_cstate=1 processor.max_cstate=1` on the kernel's command line"
                .to_owned(),
        ),
    };
    Outcome::failed(class, found, wanted, fix)
}

/// Returns the names of all CPUs, such as `cpu0`.
pub(super) fn cpus(system: &System) -> Vec<String> {
    let is_cpu = |name: &String| {
        let digits = name.strip_prefix("cpu").unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    system.entries(CPUS).into_iter().filter(is_cpu).collect()
}

pub(super) fn interrupt_moderation(system: &System, subject: &Subject) -> Outcome {
    let text = match system.run(&["ethtool", "-c", &subject.interface]) {
        Ok(text) => text,
        Err(error) => return Outcome::not_applicable(format!("{error:#}")),
    };
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(known, _)| known.trim() == name)?;
        value.split_whitespace().next().filter(|word| *word != "n/a").map(str::to_owned)
    };
    let Some(rx_us) = value("rx-usecs").and_then(|word| word.parse::<u64>().ok()) else {
        return Outcome::not_applicable("the driver does not hold interrupts back");
    };
    let tx_us = value("tx-usecs").and_then(|word| word.parse::<u64>().ok());
    let adaptive = value("Adaptive RX");
    let is_adaptive = adaptive.as_deref() == Some("on");
    let found = format!(
        "adaptive-rx {}, rx-usecs {rx_us}, tx-usecs {}",
        adaptive.as_deref().unwrap_or("n/a"),
        tx_us.map_or("n/a".to_owned(), |us| us.to_string())
    );
    let class = Class::Recommended;
    let fix = |words: &[&str]| {
        let argv: Vec<&str> = ["ethtool", "-C", &subject.interface]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        let lasting = "a unit that runs it at boot, as `srd check --fix --persist` sets up";
        Fix::run(&argv, lasting.to_owned())
    };
    if subject.latency {
        let wanted = "adaptive-rx off, rx-usecs 0, tx-usecs 0";
        if !is_adaptive && rx_us == 0 && tx_us.unwrap_or(0) == 0 {
            return Outcome::ok(class, found, wanted);
        }
        let mut words = Vec::new();
        if adaptive.is_some() {
            words.extend(["adaptive-rx", "off"]);
        }
        words.extend(["rx-usecs", "0"]);
        if tx_us.is_some() {
            words.extend(["tx-usecs", "0"]);
        }
        return Outcome::failed(class, found, wanted, fix(&words));
    }
    let wanted = "adaptive-rx on, or rx-usecs above 0";
    if is_adaptive || rx_us > 0 {
        return Outcome::ok(class, found, wanted);
    }
    let words = if adaptive.is_some() { ["adaptive-rx", "on"] } else { ["rx-usecs", "20"] };
    Outcome::failed(class, found, wanted, fix(&words))
}

pub(super) fn busy_poll(system: &System, subject: &Subject) -> Outcome {
    if !subject.latency {
        return Outcome::not_applicable(FOR_DELAYS);
    }
    let (mut found, mut short) = (Vec::new(), Vec::new());
    for key in ["net.core.busy_read", "net.core.busy_poll"] {
        let Some(value) = system.sysctl(key).and_then(|value| value.parse::<u64>().ok()) else {
            return Outcome::not_applicable(format!("this kernel has no {key}"));
        };
        found.push(format!("{} {value}", key.rsplit('.').next().unwrap_or(key)));
        if value < BUSY_POLL_US {
            short.push((key, BUSY_POLL_US.to_string()));
        }
    }
    let (found, wanted) = (found.join(" "), format!("at least {BUSY_POLL_US} us each"));
    if short.is_empty() {
        Outcome::ok(Class::Recommended, found, wanted)
    } else {
        Outcome::failed(Class::Recommended, found, wanted, Fix::sysctls(short))
    }
}
