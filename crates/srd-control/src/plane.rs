//! Machines behind a card: each region with running instances is the `vpc.toml` of one card.
//!
//! ```text
//!  request --> state --> project --> text --> DataPlane::apply --> the card
//!                           \--> warnings, each is reported once
//! ```
//!
//! A request is answered when the card uses its changes, or when the data plane has waited for its
//! longest time. If the card refuses the new text of its `vpc.toml`, the request fails and changes
//! nothing. A region gets its data plane with its first running instance, and keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::machines::{Machines, RUNNING, TERMINATED};
use crate::project::{Projection, project};
use crate::state::{Instance, Region};

/// Largest number of regions with a data plane.
pub const PLANES_MAX: usize = 8;
/// Largest user data in bytes: the limit of EC2.
pub const USER_DATA_BYTES_MAX: usize = 16 << 10;
/// Largest number of remembered warnings of a region. Beyond it, warnings are reported again.
const WARNINGS_MAX: usize = 4096;

/// Longest text that [`printable`] returns, in characters.
pub const PRINTED_MAX: usize = 400;
/// Longest time for the data planes of all regions to end.
const END_WAIT_MAX: Duration = Duration::from_secs(30);

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
    /// The `vpc.toml` that was applied last is in force.
    InForce,
    /// A `vpc.toml` waits for the card.
    Pending,
    /// The data plane has ended, with the cause.
    Failed(String),
}

/// A card that uses the text of a `vpc.toml`.
pub trait DataPlane: Send {
    /// Applies the text of a `vpc.toml`, and waits until it is in force, for a limited time.
    ///
    /// # Errors
    /// The text is refused, or the data plane has ended.
    fn apply(&self, text: &str) -> Result<Applied, String>;

    /// Runs a script in an instance, after the `vpc.toml` that was applied last is in force.
    ///
    /// # Errors
    /// The script cannot be started.
    fn run(&self, instance: &str, script: Vec<u8>) -> Result<(), String>;

    /// Returns the state of the data plane.
    fn status(&self) -> PlaneStatus;

    /// Makes the data plane end, and does not wait for its end. Afterwards the data plane is not
    /// used any more.
    fn end(&self);

    /// Waits for the end, at most until this time.
    fn wait(&self, until: Instant);

    /// Directory for flow logs; `None` if flow logs cannot be written.
    fn flow_logs(&self) -> Option<&Path> {
        None
    }
}

/// Function that starts the data plane of a region: its arguments are account and region.
pub type Open = Box<dyn FnMut(&str, &str) -> Result<Box<dyn DataPlane>, String> + Send>;
/// Function that reports a warning. The text is [`printable`].
pub type Report = Box<dyn FnMut(&str) + Send>;

/// Returns a text for a terminal. Texts of clients may contain control characters, which are
/// escaped, and may be long: beyond [`PRINTED_MAX`] characters, dots follow.
pub fn printable(text: &str) -> String {
    let mut printed = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == PRINTED_MAX {
            printed.push_str("...");
            break;
        }
        match c {
            '"' | '\'' => printed.push(c),
            _ => printed.extend(c.escape_debug()),
        }
    }
    printed
}

/// Data planes of the regions with running instances.
pub struct CardMachines {
    open: Open,
    report: Report,
    /// Whether user data is run.
    user_data: bool,
    planes: BTreeMap<(String, String), RegionPlane>,
    /// For each region, the instances whose user-data script was started. A script runs at the
    /// first start of its instance only, even if the region gets another data plane.
    started: BTreeMap<(String, String), BTreeSet<String>>,
    /// User-data scripts of the instances that the current request starts: the id of the instance,
    /// and the decoded script.
    scripts: Vec<(String, Vec<u8>)>,
}

/// The data plane of a region.
struct RegionPlane {
    plane: Box<dyn DataPlane>,
    text: String,
    flow_logs: Option<PathBuf>,
    warnings: BTreeSet<String>,
}

impl std::fmt::Debug for CardMachines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("CardMachines");
        fields.field("regions", &self.planes.keys()).field("started", &self.started);
        fields.finish_non_exhaustive()
    }
}

impl CardMachines {
    /// Machines whose data planes the function `open` starts. `user_data`: whether user data is
    /// run.
    pub fn new(open: Open, mut report: Report, user_data: bool) -> Self {
        let report = Box::new(move |text: &str| report(&printable(text)));
        let (planes, started) = (BTreeMap::new(), BTreeMap::new());
        Self { open, report, user_data, planes, started, scripts: Vec::new() }
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
        let (text, warnings) = (String::new(), BTreeSet::new());
        let plane = RegionPlane { plane, text, flow_logs, warnings };
        self.planes.insert(key.clone(), plane);
        Ok(())
    }

    /// Forgets the scripts of instances that were terminated. The current request may fail, so an
    /// instance that it terminates is kept.
    fn forget(&mut self, key: &(String, String), region: &Region) {
        let Some(started) = self.started.get_mut(key) else { return };
        let lives = |instance: &&Instance| instance.state.code != TERMINATED;
        let former = region.instances.changed().filter_map(|(former, _)| former);
        let former: BTreeSet<_> = former.filter(lives).map(|i| i.instance_id.as_str()).collect();
        started.retain(|id| {
            former.contains(id.as_str()) || region.instances.get(id).as_ref().is_some_and(lives)
        });
        if started.is_empty() {
            self.started.remove(key);
        }
    }

    /// Applies the state of a region to its data plane, and starts the scripts of its new
    /// instances.
    fn follow(&mut self, region: &Region) -> Result<(), String> {
        let key = (region.account.clone(), region.name.clone());
        self.forget(&key, region);
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
        of.warn(&projection, &mut self.report);
        for (instance, script) in std::mem::take(&mut self.scripts) {
            let started = self.started.get(&key).is_some_and(|all| all.contains(&instance));
            if started || !projection.instances.contains(&instance) {
                continue;
            }
            match of.plane.run(&instance, script) {
                Ok(()) => _ = self.started.entry(key.clone()).or_default().insert(instance),
                Err(why) => {
                    (self.report)(&format!("{instance}: its user data is not run: {why}"));
                }
            }
        }
        Ok(())
    }
}

impl RegionPlane {
    /// Reports the warnings of a projection that were not reported before.
    fn warn(&mut self, projection: &Projection, report: &mut Report) {
        for warning in &projection.warnings {
            if !self.warnings.contains(warning) {
                report(warning);
            }
        }
        self.warnings = projection.warnings.iter().take(WARNINGS_MAX).cloned().collect();
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

    fn report(&mut self, warning: &str) {
        (self.report)(warning);
    }

    fn flow_logs(&self, region: &Region) -> Option<&Path> {
        let key = (region.account.clone(), region.name.clone());
        self.planes.get(&key)?.flow_logs.as_deref()
    }

    fn clear(&mut self) {
        let until = Instant::now() + END_WAIT_MAX;
        self.planes.values().for_each(|of| of.plane.end());
        self.planes.values().for_each(|of| of.plane.wait(until));
        self.planes.clear();
        self.started.clear();
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
