//! Cost of a run: CPU time of this thread and peak memory of this process, from `/proc`. Values
//! that the system does not report are zero.

use std::os::unix::process::CommandExt;

/// Nanoseconds of CPU time that this thread has used.
pub fn thread_cpu_ns() -> u64 {
    // The kernel updates the value when it schedules, and otherwise only every tick.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Peak memory of this process, in bytes.
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Starts this process again with an allocator that uses huge pages, unless it already has one.
///
/// Large worlds are bound by address translation: on a virtual machine a run of 1024 hosts is twice
/// as fast with pages of 2 MiB. Systems commonly grant such pages only on request. The C library
/// requests them if a variable is set when the process starts. Hence the new start, with the same
/// arguments, terminal and process number. Call this function first in `main`. It returns if
/// nothing has to be done, or if the system refuses the new start.
///
/// The C library requests huge pages for the main arena only: arenas of other threads grow in steps
/// smaller than a huge page. So the variable also selects one arena for all threads. Worlds hardly
/// allocate once they run, so threads do not wait for each other there.
pub fn prefer_huge_pages() {
    const VARIABLE: &str = "GLIBC_TUNABLES";
    const TUNABLE: &str = "glibc.malloc.hugetlb";
    let before = std::env::var(VARIABLE).unwrap_or_default();
    if before.contains(TUNABLE) || cfg!(not(all(target_os = "linux", target_env = "gnu"))) {
        return;
    }
    let separator = if before.is_empty() { "" } else { ":" };
    let value = format!("{before}{separator}{TUNABLE}=1:glibc.malloc.arena_max=1");
    let mut arguments = std::env::args_os();
    let (Some(name), Ok(program)) = (arguments.next(), std::env::current_exe()) else { return };
    let mut command = std::process::Command::new(program);
    // Returns only if it fails; then this process continues as it is.
    let _ = command.arg0(name).args(arguments).env(VARIABLE, value).exec();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_cpu_time() {
        let before = thread_cpu_ns();
        let sum: u64 = (0..200_000_u64).map(|x| std::hint::black_box(x) & 7).sum();
        assert!(sum > 0 && (before == 0 || thread_cpu_ns() > before));
    }
}
