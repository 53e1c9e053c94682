//! Runs a command of the user with SRD and without, in turns, and compares the results.
//!
//! The comparison measures the user's own command instead of a fixed benchmark. The figures are the
//! command's duration and the numbers that the user selects in its output. Every second repetition
//! runs the transports in the opposite order.
//!
//! | module | contents |
//! |---|---|
//! | [`figure`] | finds numbers in the output of a command |
//! | [`command`] | the command: its arguments, its time limit, its output |
//! | [`lab`] | a comparison between two hosts of a fabric of network namespaces |
//! | [`hosts`] | a comparison between two real machines: only the address differs |
//! | [`verdict`] | differences that are larger than the spread of the repetitions |
//! | [`page`] | the result, charts and every run as a page |

pub mod command;
pub mod figure;
pub mod hosts;
pub mod lab;
pub mod page;
pub mod verdict;

use crate::experiment::Variant;
use crate::experiment::measure::result::{Figure, Measured};
use anyhow::{Result, anyhow};
use command::{CommandLine, Ended};
use figure::Source;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Settings of a comparison, in the lab and between real machines.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The command with its arguments.
    pub words: CommandLine,
    /// The numbers to find in the command's output.
    pub figures: Vec<Source>,
    /// The transports, in the order of the first repetition.
    pub variants: Vec<Variant>,
    /// Number of runs with each transport.
    pub repetitions: u32,
    /// Longest time of one run; a command that takes longer has failed.
    pub time_limit: Duration,
    /// Whether a failed run is counted as a figure, and the comparison continues. If false, it ends
    /// the comparison.
    pub keep_going: bool,
    /// A flag that another thread sets to end the command and the comparison.
    pub stop: Arc<AtomicBool>,
}

/// Summary of a comparison, which is printed.
const SUMMARY: &str = "The same command over each transport, in turns.";
/// Description of the method, for the page.
const ABOUT: &str = "The command runs once for each transport and repetition, every second \
                     repetition in the opposite order. Its time is that from its start to its \
                     end; the other figures are what it printed itself.";

/// Returns the figures of a command that has ended. A failed command has only the figure `failed`.
///
/// # Errors
/// If the command failed or a number is missing in its output, unless failures are counted.
fn measured(settings: &Settings, ended: &Ended) -> Result<Measured> {
    let outcome = match ended.failure(settings.time_limit) {
        Some(failure) => Err(anyhow!("the command {failure}")),
        None => figures(settings, ended),
    };
    let mut measured = Measured::default();
    match outcome {
        Ok(figures) => measured.figures = figures,
        Err(failure) if settings.keep_going => measured.notes.push(format!("{failure:#}")),
        Err(failure) => {
            return Err(failure.context("a run failed; --keep-going counts failures and goes on"));
        }
    }
    if settings.keep_going {
        measured.figures.push(Measured::failed(measured.figures.is_empty()));
    }
    let cut = ended.out.cut_bytes();
    if cut > 0 {
        measured.notes.push(format!("the first {cut} bytes that it printed were not kept"));
    }
    Ok(measured)
}

/// Returns the command's duration, and the numbers found in its output.
fn figures(settings: &Settings, ended: &Ended) -> Result<Vec<Figure>> {
    let printed = ended.out.text();
    let mut figures = vec![Figure::new("time", "s", ended.seconds)];
    for source in &settings.figures {
        figures.push(Figure::new(source.name.clone(), "", source.find(&printed)?));
    }
    Ok(figures)
}

/// Formats the first three figures, for a line of progress.
fn headline(measured: &Measured) -> String {
    let figures = measured.figures.iter().take(3);
    let said = figures.map(|f| format!("{} {:.3} {}", f.name, f.value, f.unit).trim().to_owned());
    said.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn settings(keep_going: bool) -> Settings {
        Settings {
            words: CommandLine::new(vec!["true".into()]).unwrap(),
            figures: vec!["rate, Mb/s=rate ([0-9.]+)".parse().unwrap()],
            variants: vec![Variant::Plain],
            repetitions: 1,
            time_limit: Duration::from_secs(60),
            keep_going,
            stop: Arc::default(),
        }
    }

    fn of(shell: &str, keep_going: bool) -> Result<Measured> {
        let settings = settings(keep_going);
        let child = command::piped(Command::new("sh").args(["-c", shell])).spawn()?;
        measured(&settings, &Ended::wait(child, settings.time_limit, &settings.stop)?)
    }

    #[test]
    fn a_command_has_a_time_and_the_numbers_that_it_printed() {
        let measured = of("echo rate 1; echo rate 7.5", false).unwrap();
        let names: Vec<&str> = measured.figures.iter().map(|figure| &*figure.name).collect();
        assert_eq!(names, ["time", "rate, Mb/s"]);
        assert_eq!(measured.figures[1].value, 7.5, "the last one");
        let error = format!("{:#}", of("echo nothing", false).unwrap_err());
        assert!(error.contains("rate, Mb/s") && error.contains(": nothing:"), "{error}");
        let error = format!("{:#}", of("true", false).unwrap_err());
        assert!(
            error.contains("`rate, Mb/s` is not there: the command printed nothing"),
            "{error}"
        );
    }

    #[test]
    fn a_failure_ends_the_comparison_or_is_counted() {
        let error = format!("{:#}", of("echo oh >&2; exit 3", false).unwrap_err());
        assert!(error.contains("exit status: 3") && error.contains("oh"), "{error}");
        let counted = of("exit 3", true).unwrap();
        assert_eq!(counted.figures.len(), 1);
        assert_eq!((&*counted.figures[0].name, counted.figures[0].value), ("failed", 1.0));
        assert_eq!(of("echo rate 1", true).unwrap().figures[2].value, 0.0);
        let counted = of("true", true).unwrap();
        assert!(counted.is_failure() && counted.notes[0].contains("printed nothing"));
    }
}
