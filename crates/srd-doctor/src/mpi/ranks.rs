//! The measuring program that each rank of a job runs. It is compiled on the machine where it runs,
//! by the MPI's own compiler, because every MPI has its own binary interface. The module also
//! parses the program's output.

use super::{Mpi, ask_for};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const SOURCE: &str = include_str!("ranks.c");
/// Time limit of the compiler. It needs a second, or a minute on a busy machine.
const COMPILE_MAX: Duration = Duration::from_secs(120);
/// Messages of one window of the operation `bandwidth`; the program `ranks.c` has the same
/// constant.
pub const WINDOW: u64 = 16;
/// Largest number of lines of a compiler's errors that are shown.
const COMPLAINT_LINES: usize = 6;

/// Measurements of one run of the measuring program.
#[derive(Clone, PartialEq, Debug)]
pub struct Measurements {
    /// Time at which the program began to count iterations, in ns of the monotonic clock.
    pub begin_ns: u64,
    /// Name and version of the MPI library.
    pub mpi: String,
    /// The host name of each rank.
    pub hosts: Vec<String>,
    /// Time of each iteration, in us.
    pub us: Vec<f64>,
    /// End of each iteration, in ms since `begin_ns`.
    pub at_ms: Vec<f64>,
}

#[derive(Deserialize)]
struct Begin {
    begin_ns: u64,
    mpi: String,
    hosts: Vec<String>,
}

#[derive(Deserialize)]
struct End {
    wrong_words: u64,
    us: Vec<f64>,
    at_ms: Vec<f64>,
}

/// Returns the path of an MPI's C compiler, `mpicc`.
///
/// # Errors
/// A text for the user, if the MPI has no compiler.
pub fn compiler(mpi: &Mpi) -> Result<PathBuf> {
    mpi.sibling("mpicc").with_context(|| {
        format!(
            "there is no mpicc beside {}: on Debian, libopenmpi-dev has it",
            mpi.mpirun.display()
        )
    })
}

/// Compiles the measuring program into a directory, unless the directory contains it already.
/// Returns the program's path.
///
/// # Errors
/// A text for the user, if there is no compiler or it fails.
pub fn compile(mpi: &Mpi, directory: &Path) -> Result<PathBuf> {
    let program = directory.join("ranks");
    if program.exists() {
        return Ok(program);
    }
    let source = directory.join("ranks.c");
    fs::write(&source, SOURCE).with_context(|| source.display().to_string())?;
    let compiler = compiler(mpi)?;
    let mut command = Command::new(&compiler);
    command.args(["-std=c11", "-O2", "-o"]).arg(&program).arg(&source);
    let answer = ask_for(command.stdin(Stdio::null()), COMPILE_MAX)?;
    if !answer.succeeded {
        let lines: Vec<&str> = answer.err.lines().take(COMPLAINT_LINES).collect();
        bail!("{} failed: {}", compiler.display(), lines.join("\n"));
    }
    Ok(program)
}

/// Returns the time at which the program began to count iterations, in ns of the monotonic clock;
/// `None` if its output does not contain it yet.
#[must_use]
pub fn begun(printed: &str) -> Option<u64> {
    let whole = printed.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.filter_map(|line| serde_json::from_str::<Begin>(line).ok()).map(|b| b.begin_ns).next()
}

/// Parses the output of the measuring program. Other lines, which some MPIs add, are skipped.
///
/// # Errors
/// A text for the user, if the program did not reach its end or received wrong data.
pub fn parse(printed: &str) -> Result<Measurements> {
    let lines = || printed.lines().filter(|line| line.starts_with('{'));
    let begin = lines().find_map(|line| serde_json::from_str::<Begin>(line).ok());
    let end = lines().find_map(|line| serde_json::from_str::<End>(line).ok());
    let begin = begin.context("the ranks never began")?;
    let end = end.context("the ranks did not come to their end")?;
    if end.wrong_words > 0 {
        bail!("{} words of 8 bytes arrived wrong", end.wrong_words);
    }
    if end.us.is_empty() || end.us.len() != end.at_ms.len() {
        bail!("{} times and {} moments", end.us.len(), end.at_ms.len());
    }
    let Begin { begin_ns, mpi, hosts } = begin;
    Ok(Measurements { begin_ns, mpi, hosts, us: end.us, at_ms: end.at_ms })
}

impl Measurements {
    /// Returns the median time of an iteration, in us.
    #[must_use]
    pub fn median_us(&self) -> f64 {
        let mut sorted = self.us.clone();
        sorted.sort_by(f64::total_cmp);
        // `parse` refuses a run without times.
        let last = sorted.len().saturating_sub(1);
        sorted.get(last / 2).map_or(0.0, |low| f64::midpoint(*low, sorted[sorted.len() / 2]))
    }

    /// Returns the longest time in which no iteration ended, in ms.
    #[must_use]
    pub fn silence_ms(&self) -> f64 {
        let mut before = 0.0;
        let mut longest = 0.0f64;
        for at in &self.at_ms {
            longest = longest.max(at - before);
            before = *at;
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "{\"begin_ns\":7,\"mpi\":\"Open MPI v4\",\"hosts\":[\"a\",\"b\"]}\n";
    const END: &str = "{\"wrong_words\":0,\"us\":[2.0,9.0,4.0],\"at_ms\":[1.0,5.5,6.0]}\n";

    #[test]
    fn times_come_out_and_what_mpis_add_does_not() {
        let seen = parse(&format!("WARNING: a note\n{BEGIN}{{noise}}\n{END}")).unwrap();
        assert_eq!((seen.begin_ns, seen.hosts.len()), (7, 2));
        assert_eq!(seen.median_us(), 4.0);
        assert_eq!(seen.silence_ms(), 4.5);
    }

    #[test]
    fn a_run_that_breaks_off_or_brings_wrong_data_is_an_error() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert!(error("").contains("never began"));
        assert!(error(BEGIN).contains("end"));
        let wrong = END.replace(":0,", ":3,");
        assert_eq!(error(&format!("{BEGIN}{wrong}")), "3 words of 8 bytes arrived wrong");
        let uneven = END.replace("[2.0,", "[");
        assert!(error(&format!("{BEGIN}{uneven}")).contains("2 times and 3 moments"));
        let nothing = "{\"wrong_words\":0,\"us\":[],\"at_ms\":[]}";
        assert!(error(&format!("{BEGIN}{nothing}")).contains("0 times"));
    }

    #[test]
    fn a_line_counts_once_it_is_whole() {
        assert_eq!(begun(BEGIN), Some(7));
        assert_eq!(begun(BEGIN.trim_end()), None);
        assert_eq!(begun("{\"begin"), None);
    }

    #[test]
    fn the_window_is_that_of_the_program() {
        assert!(SOURCE.contains(&format!("WINDOW = {WINDOW},")));
    }
}
