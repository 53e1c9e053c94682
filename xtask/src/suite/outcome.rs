//! Outcome of one test, read from its output: passed, failed or skipped.

use super::process::{End, Stopped};
use super::programs::Test;

/// Outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The test passed.
    Passed,
    /// The test passed, but omitted a comparison, for the given reason.
    Unjudged(String),
    /// The test could not run on this machine, for the given reason.
    Skipped(String),
    /// The test failed or was stopped, with the cause as text.
    Failed(String),
}

/// Returns the outcome of a test whose process has ended.
pub(super) fn read(test: &Test, end: &End) -> Outcome {
    classify(&test.path, end.success, end.stopped, &end.output)
}

/// Returns the outcome. A failure follows from the exit status, or from a reason why the runner
/// stopped the test. For a test that succeeded, a line of the output that begins with `skipped: `
/// or `not compared` contains the reason why the test did not run, or omitted a comparison.
fn classify(path: &str, success: bool, stopped: Option<Stopped>, output: &str) -> Outcome {
    match stopped {
        Some(Stopped::Late(limit)) => {
            return Outcome::Failed(format!("stopped after {} s", limit.as_secs()));
        }
        Some(Stopped::Loud) => return Outcome::Failed("stopped: it prints too much".into()),
        None => {}
    }
    if !success {
        return Outcome::Failed("failed".into());
    }
    // If no test has the given name, libtest runs nothing and reports a success.
    if !output.contains("test result: ok. 1 passed") {
        return Outcome::Failed("did not run: the program knows no test of this name".into());
    }
    let head = format!("---- {path} stdout ----");
    let own = output.lines().skip_while(|line| *line != head).skip(1);
    let own = own.take_while(|line| !matches!(*line, "successes:" | "failures:"));
    let own: Vec<&str> = own.collect();
    let skipped: Vec<_> = own.iter().filter_map(|line| line.strip_prefix("skipped: ")).collect();
    let unjudged: Vec<_> = own.iter().filter(|line| line.starts_with("not compared")).collect();
    match (skipped.is_empty(), unjudged.is_empty()) {
        (false, _) => Outcome::Skipped(skipped.join("; ")),
        (true, false) => {
            Outcome::Unjudged(unjudged.into_iter().copied().collect::<Vec<_>>().join("; "))
        }
        (true, true) => Outcome::Passed,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PASSED: &str = "test result: ok. 1 passed; 0 failed";

    fn output(of: &str, printed: &str) -> String {
        format!(
            "running 1 test\ntest {of} ... ok\n\nsuccesses:\n\n---- {of} stdout ----\n{printed}\n\n\
             \nsuccesses:\n    {of}\n\n{PASSED}\n"
        )
    }

    #[test]
    fn a_test_that_says_so_was_skipped() {
        let output = output("a::b", "looking\nskipped: there is no /dev/net/tun");
        let reason = "there is no /dev/net/tun".to_owned();
        assert_eq!(classify("a::b", true, None, &output), Outcome::Skipped(reason));
    }

    #[test]
    fn a_program_that_a_test_started_skips_nothing() {
        let started = "skipped: a line of a child, which libtest does not capture\n";
        let text = format!("{started}{}", output("a::b", "fine"));
        assert_eq!(classify("a::b", true, None, &text), Outcome::Passed);
    }

    #[test]
    fn a_failure_is_a_failure_whatever_was_printed() {
        let text = output("a", "skipped: this");
        assert_eq!(classify("a", false, None, &text), Outcome::Failed("failed".into()));
        let limit = Some(Stopped::Late(Duration::from_secs(300)));
        let stopped = Outcome::Failed("stopped after 300 s".into());
        assert_eq!(classify("a", false, limit, &text), stopped);
        let loud = classify("a", false, Some(Stopped::Loud), &text);
        assert!(matches!(loud, Outcome::Failed(cause) if cause.contains("too much")));
    }

    #[test]
    fn a_comparison_that_was_not_judged_is_told() {
        let text = output("a", "not compared, for the machine was busy: x");
        let unjudged = "not compared, for the machine was busy: x".to_owned();
        assert_eq!(classify("a", true, None, &text), Outcome::Unjudged(unjudged));
    }

    #[test]
    fn a_name_that_the_program_does_not_know_is_a_failure() {
        let outcome = classify("a", true, None, "test result: ok. 0 passed; 0 failed");
        assert!(matches!(outcome, Outcome::Failed(cause) if cause.contains("no test")));
    }
}
