//! Measures the CPU time that an experiment itself used, without other load of the machine.
//!
//! A measurement has priority over other load, so other load does not distort it. But if the
//! measurement itself uses all CPU time, its figures are those of the machine. The following are
//! counted: this process and the children that it has waited for, the processes inside of the
//! fabric, and network interrupts, nearly all of which belong to the fabric.

use anyhow::{Context, Result};
use srd_lab::fabric::Fabric;
use srd_lab::priority::{CpuMeter, CpuUse};
use srd_lab::{namespace, plan};
use std::collections::BTreeMap;
use std::fs;

/// Counters at the start of a measurement.
pub(in crate::experiment) struct OwnCpu {
    machine: CpuMeter,
    own_ticks: u64,
    inside: BTreeMap<i32, u64>,
}

impl OwnCpu {
    /// Starts to count.
    pub(in crate::experiment) fn start(fabric: &Fabric) -> Result<OwnCpu> {
        let (machine, own_ticks, inside) = (CpuMeter::start()?, own_ticks()?, inside(fabric));
        Ok(OwnCpu { machine, own_ticks, inside })
    }

    /// Returns the machine's CPU use since the start, and the part of it that the experiment used,
    /// from 0 to 1.
    pub(in crate::experiment) fn stop(&self, fabric: &Fabric) -> Result<(CpuUse, f64)> {
        let machine = self.machine.stop()?;
        let before = |pid: &i32| self.inside.get(pid).copied().unwrap_or(0);
        let inside = inside(fabric);
        let inside: u64 = inside.iter().map(|(pid, now)| now.saturating_sub(before(pid))).sum();
        let ticks = own_ticks()?.saturating_sub(self.own_ticks) + inside;
        let programs_s = ticks as f64 / srd_lab::priority::clock_ticks_per_s() as f64;
        Ok((machine, own_share(programs_s, &machine)))
    }
}

/// Returns the part of the machine's CPU time that the experiment used. A kernel without
/// `CONFIG_IRQ_TIME_ACCOUNTING` adds the time of an interrupt to the interrupted program too, so
/// that it is counted twice. Therefore the result is at most the busy share of the machine.
fn own_share(programs_s: f64, machine: &CpuUse) -> f64 {
    let ours_s = (programs_s + machine.softirq_s).min(machine.busy_s);
    if machine.available_s > 0.0 { (ours_s / machine.available_s).min(1.0) } else { 0.0 }
}

/// Returns the CPU ticks of this process, and of the children that it has waited for.
fn own_ticks() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    ticks(&stat, 4).context("/proc/self/stat")
}

/// Returns the CPU time in seconds of a process that this process has started.
pub(in crate::experiment) fn of_process(pid: u32) -> Result<f64> {
    let file = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&file).with_context(|| file.clone())?;
    let ticks = ticks(&stat, 2).context(file)?;
    Ok(ticks as f64 / srd_lab::priority::clock_ticks_per_s() as f64)
}

/// Returns the CPU ticks of each running process inside of the fabric.
fn inside(fabric: &Fabric) -> BTreeMap<i32, u64> {
    let names = plan::namespace_names(fabric.config());
    let pids = namespace::processes(&names).into_iter().map(|(pid, _)| pid.as_raw_nonzero().get());
    let known = pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, ticks(&stat, 2)?))
    });
    known.collect()
}

/// Returns the sum of the first `count` of these four fields of `/proc/PID/stat`: user time, system
/// time, and both times of children that were waited for (fields 14 to 17). The name in field 2 may
/// contain any characters, even parentheses.
fn ticks(stat: &str, count: usize) -> Option<u64> {
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    let times: Vec<u64> =
        fields.skip(11).take(count).map_while(|field| field.parse().ok()).collect();
    (times.len() == count).then(|| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of a run on a kernel that counts soft interrupts twice.
    #[test]
    fn regression_interrupts_that_are_counted_twice_do_not_exceed_the_busy_time() {
        let machine =
            CpuUse { busy_s: 409.0, softirq_s: 91.0, available_s: 792.0, ..CpuUse::default() };
        assert!((own_share(426.0, &machine) - 409.0 / 792.0).abs() < 1e-9);
        assert!((own_share(100.0, &machine) - 191.0 / 792.0).abs() < 1e-9, "other load is apart");
        assert!(own_share(1.0, &CpuUse::default()).abs() < 1e-9, "no time has passed");
    }

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1";
        assert_eq!(ticks(stat, 2), Some(120));
        assert_eq!(ticks(stat, 4), Some(127));
        assert_eq!(ticks("7 (a) S 1", 2), None);
        assert!(own_ticks().is_ok());
    }
}
