//! Limits of the transports' parameters that are times or speeds.

use serde::Serialize;
use toml::Value;

use super::Scenario;

/// Unit in which the name of a parameter ends, and smallest and largest value in this unit.
const LIMITS: [(&str, f64, f64); 3] =
    [("_us", 0.0, 1e12), ("_mbps", 0.0, 1e8), ("_gbps", 0.000_01, 1e5)];

/// Checks every time and every speed among the parameters of SRD, TCP, RoCE and the card. Without
/// this check, a negative value would become 0, and a huge value the largest possible one.
///
/// # Errors
/// A description of the first value that is out of range, with its key.
pub(super) fn check(scenario: &Scenario) -> Result<(), String> {
    of_table("srd", &scenario.srd)?;
    of_table("tcp", &scenario.tcp)?;
    of_table("roce", &scenario.roce)?;
    of_table("card", &scenario.card)
}

fn of_table(name: &str, knobs: &impl Serialize) -> Result<(), String> {
    let table = Value::try_from(knobs).map_err(|e| format!("`{name}`: {e}"))?;
    for (key, value) in table.as_table().into_iter().flatten() {
        let limits = LIMITS.iter().find(|(unit, ..)| key.ends_with(unit));
        if let (Some((_, low, high)), Some(given)) = (limits, value.as_float())
            && !(*low..=*high).contains(&given)
        {
            return Err(format!("`{name}.{key}` must be between {low} and {high}, not {given}"));
        }
    }
    Ok(())
}
