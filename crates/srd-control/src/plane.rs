//! Machines behind a card: each region with running instances is the `vpc.toml` of one card.
//!
//! ```text
//!  request --> state --> project --> text --> DataPlane::apply --> the card
//!                           \--> warnings, each is reported once
//! ```
//!
//! A request is answered when the card uses its changes, or when the data plane has waited for its
//! longest time. If the card refuses a text, the request fails and changes nothing. A region gets
//! its data plane with its first running instance, and keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::machines::{Machines, RUNNING};
use crate::project::{Projection, project};
use crate::state::{Instance, Region};

/// Largest number of regions with a data plane.
pub const PLANES_MAX: usize = 8;
/// Largest user data in bytes: the limit of EC2.
pub const USER_DATA_BYTES_MAX: usize = 16 << 10;
/// Largest number of remembered warnings of a region. Beyond it, warnings are reported again.
const WARNINGS_MAX: usize = 4096;

/// Outcome of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// The change is in force.
    InForce,
    /// The data plane has waited for its longest time, and continues in the background.
    Pending,
}

/// State of a data plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlaneStatus {
    /// Nothing was applied yet.
    Idle,
    /// The text that was applied last is in force.
    InForce,
    /// A text waits for the card.
    Pending,
    /// The data plane has ended, with the cause.
    Failed(String),
}

/// A card that uses the text of a `vpc.toml`.
pub trait DataPlane: Send {
    /// Applies a text, and waits until it is in force, for a bounded time.
    ///
    /// # Errors
    /// The text is refused, or the data plane has ended.
    fn apply(&self, text: &str) -> Result<Applied, String>;

    /// Runs a script in an instance, after the text that was applied last is in force.
    ///
    /// # Errors
    /// The script cannot be started.
    fn run(&self, instance: &str, script: Vec<u8>) -> Result<(), String>;

    /// Returns the state.
    fn status(&self) -> PlaneStatus;

    /// Directory for flow logs; `None` if flow logs cannot be written.
    fn flow_logs(&self) -> Option<&Path> {
        None
    }
}

/// Function that starts the data plane of a region: its arguments are account and region.
pub type Open = Box<dyn FnMut(&str, &str) -> Result<Box<dyn DataPlane>, String> + Send>;
/// Function that reports a warning.
pub type Report = Box<dyn FnMut(&str) + Send>;

/// Data planes of the regions with running instances.
pub struct CardMachines {
    open: Open,
    report: Report,
    /// Whether user data is run.
    user_data: bool,
    planes: BTreeMap<(String, String), RegionPlane>,
    /// Scripts of instances of the current request.
    scripts: Vec<(String, Vec<u8>)>,
}

/// The data plane of a region.
struct RegionPlane {
    plane: Box<dyn DataPlane>,
    text: String,
    flow_logs: Option<PathBuf>,
    warnings: BTreeSet<String>,
    /// Instances whose script was started: a script runs at the first start only.
    started: BTreeSet<String>,
}

impl std::fmt::Debug for CardMachines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CardMachines").field("regions", &self.planes.keys()).finish_non_exhaustive()
    }
}

impl CardMachines {
    /// Machines whose data planes the function `open` starts. `user_data`: whether user data is
    /// run.
    pub fn new(open: Open, report: Report, user_data: bool) -> Self {
        Self { open, report, user_data, planes: BTreeMap::new(), scripts: Vec::new() }
    }

    /// The state of the data plane of a region; `None` if the region has no data plane.
    pub fn status(&self, account: &str, region: &str) -> Option<PlaneStatus> {
        let key = (account.to_owned(), region.to_owned());
        self.planes.get(&key).map(|of| of.plane.status())
    }

    /// Starts the data plane of a region, unless it runs.
    fn open(&mut self, key: &(String, String)) -> Result<(), String> {
        let failed = self.planes.get(key).and_then(|of| match of.plane.status() {
            PlaneStatus::Failed(why) => Some(why),
            _ => None,
        });
        if let Some(why) = failed {
            (self.report)(&format!("the card of {} starts again: {why}", key.1));
            self.planes.remove(key);
        }
        if self.planes.contains_key(key) {
            return Ok(());
        }
        if self.planes.len() == PLANES_MAX {
            return Err(format!("at most {PLANES_MAX} regions have running instances"));
        }
        let plane = (self.open)(&key.0, &key.1)?;
        let flow_logs = plane.flow_logs().map(Path::to_owned);
        let (text, warnings, started) = (String::new(), BTreeSet::new(), BTreeSet::new());
        let plane = RegionPlane { plane, text, flow_logs, warnings, started };
        self.planes.insert(key.clone(), plane);
        Ok(())
    }

    /// Applies a region, and starts the scripts of its new instances.
    fn follow(&mut self, region: &Region) -> Result<(), String> {
        let key = (region.account.clone(), region.name.clone());
        if !self.planes.contains_key(&key)
            && !region.instances.iter().any(|instance| instance.state.code == RUNNING)
        {
            return Ok(());
        }
        self.open(&key)?;
        let Some(of) = self.planes.get_mut(&key) else { return Ok(()) };
        let projection = project(region, of.flow_logs.as_deref());
        if projection.text != of.text {
            // The card would refuse the text later, perhaps when it starts again.
            srd_vpc_file::parse(&projection.text, Path::new("the state"))
                .map_err(|error| format!("the card cannot have this: {error}"))?;
            let applied = of.plane.apply(&projection.text)?;
            if applied == Applied::Pending {
                let what = "is not in force yet; the card gets it as soon as it answers";
                (self.report)(&format!("a change of {} {what}", key.1));
            }
            of.text.clone_from(&projection.text);
        }
        of.settle(&projection, std::mem::take(&mut self.scripts), &mut self.report);
        Ok(())
    }
}

impl RegionPlane {
    /// Reports new warnings, and starts scripts.
    fn settle(
        &mut self,
        projection: &Projection,
        scripts: Vec<(String, Vec<u8>)>,
        report: &mut Report,
    ) {
        for warning in &projection.warnings {
            if !self.warnings.contains(warning) {
                report(warning);
            }
        }
        self.warnings = projection.warnings.iter().take(WARNINGS_MAX).cloned().collect();
        for (instance, script) in scripts {
            if !projection.instances.contains(&instance) || self.started.contains(&instance) {
                continue;
            }
            if let Err(why) = self.plane.run(&instance, script) {
                report(&format!("{instance}: its user data is not run: {why}"));
            }
            self.started.insert(instance);
        }
    }
}

impl Machines for CardMachines {
    fn start(&mut self, region: &Region, instance: &Instance) -> Result<(), String> {
        let Some(data) = instance.user_data.as_deref().filter(|data| !data.is_empty()) else {
            return Ok(());
        };
        let id = &instance.instance_id;
        match script(data) {
            Ok(_) if !self.user_data => {
                let what = "its user data is not run, which needs the option --user-data";
                (self.report)(&format!("{id}: {what}"));
            }
            Ok(script) => self.scripts.push((id.clone(), script)),
            Err(why) => (self.report)(&format!("{id} in {}: {why}", region.name)),
        }
        Ok(())
    }

    fn stop(&mut self, _: &Region, instance: &Instance) {
        // The projection of a region contains running instances only, so its last application has
        // removed this one. A script that was not started belongs to a request that fails.
        self.scripts.retain(|(id, _)| id != &instance.instance_id);
    }

    fn apply(&mut self, region: &Region) -> Result<(), String> {
        let applied = self.follow(region);
        self.scripts.clear();
        applied
    }

    fn clear(&mut self) {
        self.planes.clear();
    }
}

/// Returns the script in user data, which is base64. The error is the reason why there is no
/// script.
fn script(data: &str) -> Result<Vec<u8>, String> {
    let data: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let script = STANDARD.decode(data).map_err(|_| "its user data is not base64".to_owned())?;
    if script.len() > USER_DATA_BYTES_MAX {
        return Err(format!("its user data has more than {USER_DATA_BYTES_MAX} bytes"));
    }
    if !script.starts_with(b"#!") {
        return Err("its user data does not begin with `#!`, so it is not run".to_owned());
    }
    Ok(script)
}
