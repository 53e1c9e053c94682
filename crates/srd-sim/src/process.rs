//! What a run costs: CPU time of this thread and peak memory of this process, from `/proc`.
//! Zero where the system does not say.

use std::os::unix::process::CommandExt;

/// Nanoseconds of CPU time that this thread has used.
pub fn thread_cpu_ns() -> u64 {
    // The kernel brings the figure up to date when it schedules, else only every tick.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// The most memory that this process ever had, in bytes.
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Starts this process again with an allocator that asks for huge pages, unless it has one.
///
/// Large worlds are bound by address translation: on a virtual machine a run of 1024 hosts
/// is twice as fast with pages of 2 MiB, and systems commonly grant those only to who asks.
/// The C library asks if it is told so when a process starts, hence the new start: same
/// arguments, same terminal, same process number. Call it first thing in `main`. It returns
/// if there is nothing to do or the system will not have it.
///
/// The C library asks for the main arena only: those of other threads grow in steps below a
/// huge page. So it is also told to keep one arena for all threads. Worlds hardly allocate
/// once they run, so threads do not wait for each other there.
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
    // Comes back only if it fails, and then we go on as we are.
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
