//! Cost of a run: CPU time of this thread and peak memory of this process, from `/proc`. Values
//! that the system does not report are zero.

use std::os::unix::process::CommandExt;

/// Returns the CPU time that this thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    // The kernel updates the value at a switch of threads, and otherwise only at a timer tick.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Returns the peak memory of this process, in bytes.
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Restarts this process with huge pages for the memory that it allocates, unless the environment
/// already sets this.
///
/// Large worlds are bound by address translation: on a virtual machine a run of 1024 hosts is twice
/// as fast with pages of 2 MiB. Linux commonly grants such pages only on request. The C library
/// requests them if the variable `GLIBC_TUNABLES` contains a setting when the process starts. So
/// this function sets the variable and executes the program again, with the same arguments,
/// terminal and process number. Call this function first in `main`. It returns if nothing has to be
/// done, or if the system refuses to execute the program.
///
/// The C library requests huge pages for the main arena only: arenas of other threads grow in steps
/// smaller than a huge page. So the variable also selects one arena for all threads. A running
/// world hardly allocates memory, so threads rarely wait for each other in that arena.
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
    // `exec` returns only if it fails. Then this process continues without huge pages.
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
