//! Whether a run had the machine for itself. If other programs used it, they may have caused the
//! figures of speed, or the overflow of a queue whose reader was delayed. Programs of a lower
//! priority (`nice`) do not count, because they wait for everything that runs here.

use serde_json::Value;

/// Share of the machine that other programs may use, 0 to 1.
const OTHERS_MAX: f64 = 0.15;
/// Maximum delay of a wake-up of threads, 99th percentile; `srd lab run` uses the same limit.
const LATE_MS_MAX: f64 = 5.0;

/// Whether other programs did not delay a run, which is given in the JSON of `srd lab run`.
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
