//! The rule about the driver of the ENA card: it has to support the features of the instance type's
//! Nitro version.

use super::finding::{Class, Fix, Outcome, Purpose, Subject};
use super::system::System;
use super::version::version;
use srd_card::profile::{Generation, InstanceType};

/// File that contains the type of a Nitro instance.
const TYPE: &str = "sys/devices/virtual/dmi/id/product_name";
/// First version of the ENA driver with the counters of exceeded allowances. [`EXPRESS`] also has
/// ENA Express and the counter of tracked connections; [`FRAGMENTS`] also has the counter of
/// fragments beyond their limit.
const COUNTERS: [u64; 3] = [2, 2, 10];
const EXPRESS: [u64; 3] = [2, 8, 1];
const FRAGMENTS: [u64; 3] = [2, 13, 3];

/// Returns the Nitro version of this instance; `None` if its type is unknown, or has no Nitro
/// system.
pub(super) fn of_instance(system: &System) -> Option<Generation> {
    InstanceType::find(&system.read(TYPE)?).ok()?.generation()
}

pub(super) fn driver_generation(system: &System, subject: &Subject) -> Outcome {
    if subject.purpose == Purpose::Daemon {
        return Outcome::not_applicable("for ENA cards only");
    }
    let name = system.read(TYPE).unwrap_or_default();
    let Ok(instance) = InstanceType::find(&name) else {
        return Outcome::not_applicable(format!("`{name}` is no known instance type"));
    };
    let Some(generation) = instance.generation() else {
        return Outcome::not_applicable(format!("{name} has no Nitro system"));
    };
    let Some(found) = system.read("sys/module/ena/version") else {
        return Outcome::not_applicable("the driver does not say its version: it is the kernel's");
    };
    let Some(version) = version(&found).filter(|_| !found.ends_with('K')) else {
        return Outcome::not_applicable(format!("{found} is the kernel's own, numbered apart"));
    };
    let (least, why) = wanted(generation);
    let number = |of: [u64; 3]| format!("{}.{}.{}", of[0], of[1], of[2]);
    let number_of = match generation {
        Generation::V1 => 1,
        Generation::V2 => 2,
        Generation::V3 => 3,
        Generation::V4 => 4,
        Generation::V5 => 5,
        Generation::V6 => 6,
    };
    let found = format!("{found} on {name} (Nitro v{number_of})");
    let wanted = format!("at least {} ({why})", number(least));
    if version >= least {
        return Outcome::ok(Class::Recommended, found, wanted);
    }
    let command = "see https://github.com/amzn/amzn-drivers, or install a newer kernel".to_owned();
    let fix = Fix::by_hand(command, "the driver has to be installed");
    Outcome::failed(Class::Recommended, found, wanted, fix)
}

/// Returns the least version of the ENA driver that an instance of this Nitro version needs, and
/// the features that need it.
fn wanted(generation: Generation) -> ([u64; 3], &'static str) {
    match generation {
        Generation::V1 | Generation::V2 | Generation::V3 => (COUNTERS, "counters of allowances"),
        Generation::V4 => (EXPRESS, "ENA Express, tracked connections"),
        Generation::V5 | Generation::V6 => (FRAGMENTS, "fragments, large tables of queues"),
    }
}
