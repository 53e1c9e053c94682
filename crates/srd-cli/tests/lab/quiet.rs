//! Decides whether a run had the machine for itself. Other programs change figures of speed, and
//! can cause the overflow of a queue whose reader they delay. Programs of a lower priority (`nice`)
//! do not count, because they wait for the programs of the run.

use serde_json::Value;

/// Share of the machine's processor time that other programs may use in a quiet run, from 0 to 1.
const OTHERS_MAX: f64 = 0.15;
/// Maximum of the 99th percentile of the delay with which threads wake up, in milliseconds. `srd
/// lab run` uses the same limit.
const LATE_MS_MAX: f64 = 5.0;

/// Whether other programs did not delay a run. `run` is the run's object in the JSON of `srd lab
/// run`.
pub(crate) fn is_quiet(run: &Value) -> bool {
    let number = |value: &Value| value.as_f64().unwrap();
    let cpu = &run["cpu"];
    let taken_s = number(&cpu["busy_s"]) + number(&cpu["steal_s"]) - number(&cpu["nice_s"]);
    let others = taken_s / number(&cpu["available_s"]) - number(&run["own_cpu_share"]);
    others <= OTHERS_MAX && number(&run["late"]["p99_ms"]) <= LATE_MS_MAX
}

/// Whether other programs delayed none of the runs of an experiment.
pub(crate) fn are_all_quiet(experiment: &Value) -> bool {
    let cases = experiment["cases"].as_array().unwrap().iter();
    cases.flat_map(|case| case["runs"].as_array().unwrap()).all(is_quiet)
}
