//! Running a measurement with priority over the machine's other load, and measuring CPU use.
//!
//! With autogroup scheduling, plain `nice` has no effect against other sessions. So the *session*
//! gets the nice level, and also the kernel threads for network interrupts, which do half of the
//! fabric's work. Both levels are restored afterwards. Without this, measured times above a
//! millisecond are scheduler noise on a busy machine.

use crate::build::state::{StateLock, Store};
use crate::programs::signals::{self, CleanupId};
use crate::sys::{self, Scheduling};
use anyhow::{Context, Result, bail};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::fs;
use std::marker::PhantomData;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The nice level of a measurement.
const NICE_HIGH: i32 = -19;
/// Permitted real-time priorities of a probe; a higher priority could starve the kernel's own
/// threads.
const FIFO_PRIORITY: std::ops::RangeInclusive<u64> = 1..=50;
const AUTOGROUP: &str = "/proc/self/autogroup";

/// Guard of a measurement. While it exists, these run with priority over other load: this process's
/// session, the calling thread with all threads and processes that it starts, and the kernel's
/// network threads. No second measurement runs on the machine. Dropping the guard, or a signal that
/// ends the process, restores the former levels.
#[derive(Debug)]
pub struct MeasurementPriority {
    undo: Undo,
    cleanup: CleanupId,
    thread_nice: i32,
    /// Lock against a second measurement, held while the guard exists.
    lock: Option<StateLock>,
    /// The nice level belongs to the calling thread, so the guard must not move to another thread.
    _not_send: PhantomData<*const ()>,
}

#[derive(Clone, Debug, Default)]
struct Undo {
    autogroup_nice: Option<i32>,
    kernel_threads: Vec<(Pid, i32)>,
}

/// Guard of a real-time thread: while it exists, the calling thread runs before all normal threads.
#[derive(Debug)]
pub struct FifoThread {
    before: SavedScheduling,
    _not_send: PhantomData<*const ()>,
}

struct SavedScheduling(Scheduling);

impl std::fmt::Debug for SavedScheduling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SavedScheduling")
    }
}

/// Raises priorities for the life of the guard. Waits up to `wait` for another measurement on this
/// machine to end. Levels that the kernel refuses to change (without root or autogroup) stay
/// unchanged.
pub fn raise(wait: Duration) -> Result<MeasurementPriority> {
    let lock = measurement_lock(wait)?;
    let undo = Undo { autogroup_nice: autogroup_nice(), kernel_threads: network_threads() };
    let at_signal = undo.clone();
    let cleanup = signals::on_termination(move || at_signal.apply())?;
    let thread_nice = rustix::process::getpriority_process(None).unwrap_or(0);
    let _ = rustix::process::setpriority_process(None, NICE_HIGH);
    if undo.autogroup_nice.is_some() {
        let _ = fs::write(AUTOGROUP, NICE_HIGH.to_string());
    }
    for (pid, _) in &undo.kernel_threads {
        let _ = rustix::process::setpriority_process(Some(*pid), NICE_HIGH);
    }
    Ok(MeasurementPriority { undo, cleanup, thread_nice, lock: Some(lock), _not_send: PhantomData })
}

impl Drop for MeasurementPriority {
    fn drop(&mut self) {
        let _ = rustix::process::setpriority_process(None, self.thread_nice);
        // The cleanup stays registered until the levels are restored, because a signal may arrive
        // in between.
        self.undo.apply();
        signals::forget(self.cleanup);
        if let (Ok(store), Some(lock)) = (Store::open(), self.lock.take()) {
            store.unlock_measurement(lock);
        }
    }
}

impl Undo {
    fn apply(&self) {
        if let Some(nice) = self.autogroup_nice {
            let _ = fs::write(AUTOGROUP, nice.to_string());
        }
        for (pid, nice) in &self.kernel_threads {
            let _ = rustix::process::setpriority_process(Some(*pid), *nice);
        }
    }
}

/// Makes a command start in a new session with priority over the machine's other load.
pub fn in_own_session(command: &mut Command) {
    sys::own_session(command, sys::Nice::High);
}

/// Makes a command start in a new session with normal priority: for programs that spin on every
/// core. With a higher priority they would starve the kernel's threads, and a program that waits
/// for these (`nft` waits until its rules are in force) would wait for seconds.
pub fn in_own_session_as_others(command: &mut Command) {
    sys::own_session(command, sys::Nice::Normal);
}

/// Makes the calling thread real-time while the guard exists. This is for probes and pacers that
/// sleep most of the time. Threads and processes that the thread starts have normal priority.
pub fn fifo(priority: u8) -> Result<FifoThread> {
    crate::build::config::check("FIFO priority", priority.into(), FIFO_PRIORITY)?;
    let before = sys::scheduling().context("sched_getscheduler")?;
    sys::set_scheduling(Scheduling::fifo(priority))
        .context("SCHED_FIFO needs root (CAP_SYS_NICE)")?;
    Ok(FifoThread { before: SavedScheduling(before), _not_send: PhantomData })
}

impl Drop for FifoThread {
    fn drop(&mut self) {
        let _ = sys::set_scheduling(self.before.0);
    }
}

fn measurement_lock(wait: Duration) -> Result<StateLock> {
    let store = Store::open()?;
    let deadline = Instant::now() + wait;
    loop {
        if let Some(lock) = store.try_lock_measurement()? {
            return Ok(lock);
        }
        if Instant::now() >= deadline {
            bail!("another measurement is running on this machine");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the nice level in `/autogroup-123 nice 0`.
fn autogroup_nice() -> Option<i32> {
    let text = fs::read_to_string(AUTOGROUP).ok()?;
    text.split_whitespace().next_back()?.parse().ok().map(level_before)
}

/// Returns the level to restore for one that is found. A run that was killed may have left the high
/// level; the normal level is zero.
fn level_before(nice: i32) -> i32 {
    if nice == NICE_HIGH { 0 } else { nice }
}

/// Returns the `ksoftirqd` threads and their nice levels.
fn network_threads() -> Vec<(Pid, i32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_string_lossy().parse::<i32>().ok();
        let Some(pid) = number.and_then(Pid::from_raw) else { continue };
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.starts_with("ksoftirqd/") {
            let nice = rustix::process::getpriority_process(Some(pid)).unwrap_or(0);
            found.push((pid, level_before(nice)));
        }
    }
    found
}

/// CPU time of the whole machine in a measured interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Busy CPU seconds of all cores.
    pub busy_s: f64,
    /// CPU seconds in network and other soft interrupts, included in `busy_s`. Work within a system
    /// call is not part of it.
    pub softirq_s: f64,
    /// CPU seconds in programs with a lower priority than usual (`nice`), included in `busy_s`.
    /// Such programs wait for all other programs.
    #[serde(default)]
    pub nice_s: f64,
    /// CPU seconds that the hypervisor gave to other machines.
    pub steal_s: f64,
    /// Available CPU seconds: wall time times cores.
    pub available_s: f64,
}

impl CpuUse {
    /// Returns the busy share of the machine, 0 to 1. Above about 0.7 the CPU limits rates, not the
    /// fabric: reject such a run.
    #[must_use]
    pub fn busy_share(&self) -> f64 {
        if self.available_s > 0.0 { self.busy_s / self.available_s } else { 0.0 }
    }
}

/// Measures [`CpuUse`] from its start.
#[derive(Clone, Debug)]
pub struct CpuMeter {
    start: [u64; 8],
}

impl CpuMeter {
    /// Starts to count the CPU time of the machine.
    pub fn start() -> Result<CpuMeter> {
        Ok(CpuMeter { start: machine_ticks()? })
    }

    /// Returns the CPU use since the start.
    pub fn stop(&self) -> Result<CpuUse> {
        Ok(cpu_use(self.start, machine_ticks()?, sys::clock_ticks_per_s()))
    }
}

/// Returns the clock ticks per second of `/proc`.
#[must_use]
pub fn clock_ticks_per_s() -> u64 {
    sys::clock_ticks_per_s()
}

fn machine_ticks() -> Result<[u64; 8]> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    parse_ticks(&text).context("/proc/stat has no `cpu` line")
}

/// Parses the columns user, nice, system, idle, iowait, irq, softirq and steal; guest time is part
/// of user.
fn parse_ticks(text: &str) -> Option<[u64; 8]> {
    let mut fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let mut ticks = [0; 8];
    for tick in &mut ticks {
        *tick = fields.next()?.parse().ok()?;
    }
    Some(ticks)
}

fn cpu_use(start: [u64; 8], end: [u64; 8], ticks_per_s: u64) -> CpuUse {
    let seconds = |ticks: u64| ticks as f64 / ticks_per_s as f64;
    let spent: Vec<u64> =
        end.iter().zip(start).map(|(end, start)| end.saturating_sub(start)).collect();
    let available: u64 = spent.iter().sum();
    let not_busy = spent[3] + spent[4] + spent[7];
    CpuUse {
        busy_s: seconds(available - not_busy),
        softirq_s: seconds(spent[6]),
        nice_s: seconds(spent[1]),
        steal_s: seconds(spent[7]),
        available_s: seconds(available),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_waiting_and_stolen_time_are_not_busy() {
        let start = parse_ticks("cpu  100 0 50 1000 10 0 5 0 0 0\ncpu0 1 2 3").unwrap();
        let end = parse_ticks("cpu  120 30 70 1100 20 0 15 10 0 0\n").unwrap();
        let used = cpu_use(start, end, 100);
        assert!((used.busy_s - 0.8).abs() < 1e-9, "{used:?}");
        assert!((used.softirq_s - 0.1).abs() < 1e-9);
        assert!((used.nice_s - 0.3).abs() < 1e-9);
        assert!((used.available_s - 2.0).abs() < 1e-9);
        assert!((used.busy_share() - 0.4).abs() < 1e-9);
    }

    /// In an earlier version, a session kept the high level for ever after a run was killed.
    #[test]
    fn regression_the_level_of_a_killed_run_is_not_restored() {
        assert_eq!([NICE_HIGH, -5, 0, 10].map(level_before), [0, -5, 0, 10]);
    }

    #[test]
    fn fifo_priority_is_bounded() {
        let error = fifo(99).expect_err("too high").to_string();
        assert_eq!(error, "FIFO priority = 99: must be 1 to 50");
    }
}
