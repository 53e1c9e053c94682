//! Whether a run had the machine for itself. Where other programs took it, figures of speed are
//! theirs and not those of the transport, and so is a queue that ran over because nobody read it.
//! Programs of a lower priority (`nice`) do not count: they wait for everything that runs here.

use serde_json::Value;

/// The part of the machine that others may take, 0 to 1.
const OTHERS_MAX: f64 = 0.15;
/// How late threads may wake up, 99th percentile, as `srd lab run` itself judges.
const LATE_MS_MAX: f64 = 5.0;

/// Whether a run, as the JSON of `srd lab run` has it, was not held up by others.
pub(crate) fn is_quiet(run: &Value) -> bool {
    let number = |value: &Value| value.as_f64().unwrap();
    let cpu = &run["cpu"];
    let taken_s = number(&cpu["busy_s"]) + number(&cpu["steal_s"]) - number(&cpu["nice_s"]);
    let others = taken_s / number(&cpu["available_s"]) - number(&run["own_cpu_share"]);
    others <= OTHERS_MAX && number(&run["late"]["p99_ms"]) <= LATE_MS_MAX
}

/// Whether all runs of an experiment were quiet.
pub(crate) fn are_all_quiet(experiment: &Value) -> bool {
    let cases = experiment["cases"].as_array().unwrap().iter();
    cases.flat_map(|case| case["runs"].as_array().unwrap()).all(is_quiet)
}
