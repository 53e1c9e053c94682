//! Reads fields of `/proc/PID/status`, such as memory and number of threads.

use anyhow::{Context, Result};
use std::fs;

/// The text of `/proc/PID/status` at one moment.
pub(in crate::experiment) struct Status(String);

impl Status {
    /// Reads the status of a process.
    pub(in crate::experiment) fn of(pid: u32) -> Result<Status> {
        let file = format!("/proc/{pid}/status");
        fs::read_to_string(&file).map(Status).context(file)
    }

    /// Returns the number after a field name, which is given with its colon, as in `VmRSS:`. Memory
    /// is in KB.
    pub(in crate::experiment) fn number(&self, name: &str) -> Result<u64> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        number.with_context(|| format!("no {name} in /proc/PID/status"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_process_are_numbers() {
        let status = Status("Name:\tsrd\nVmRSS:\t   12345 kB\nThreads:\t5\n".into());
        assert_eq!(status.number("VmRSS:").unwrap(), 12345);
        assert_eq!(status.number("Threads:").unwrap(), 5);
        assert!(status.number("VmSwap:").is_err());
        let text = "Name:\tsrd\nVmPeak:\t   9 kB\nVmRSS:\t   18432 kB\nThreads:\t3\n";
        assert_eq!(Status(text.into()).number("VmRSS:").unwrap(), 18432);
        assert!(Status("Name:\tsrd\n".into()).number("VmRSS:").is_err());
    }
}
