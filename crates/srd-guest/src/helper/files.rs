//! Files that the helper opens for the card: flow logs, and the file of a cloud. The files of
//! clouds determine the directories of flow logs, and the public addresses that may be routed.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::process::geteuid;
use srd_trust::place;
use srd_vpc_file::VpcFile;

use super::Spec;
use super::publics::Publics;
use crate::cloud::file::{CloudFile, check_of_controller, open};
use crate::control::config;
use crate::figures::logs::files;
use crate::state::Options;

/// Mode of a file of a flow log. The card writes the file, so the file never counts as one that
/// only root may change, whatever its name is.
const LOG_MODE: u32 = 0o664;
/// Maximum number of files that have been standard output or error of the helper.
const OUTPUTS_MAX: usize = 1024;
/// Error of a reload, if the command line contains all settings.
const NO_FILE: &str =
    "no file contains the settings of this card: `srd card apply FILE` gives it other rules";
/// Error of a reload that would replace the content that the controller sends.
const OF_CONTROLLER: &str = "the controller sends the instances of this node, and the settings \
    have no [enrol.instances] any more: end the node, and start it again, to use other instances";

/// The files that the helper may open for the card.
#[derive(Debug)]
pub(super) struct Files {
    /// Directories of flow logs.
    logs: BTreeSet<String>,
    publics: Publics,
    /// Whether the controller of the host sends the content of the VPC's file.
    is_of_controller: bool,
    /// The settings at the start of the card; `None` if they came from no file.
    runs: Option<Options>,
    /// Device and inode of each file that is or was standard output or error of the helper. The
    /// card could write to it as well, so it never counts as one that only root may change. At most
    /// [`OUTPUTS_MAX`].
    outputs: BTreeSet<(u64, u64)>,
}

/// Returns the directories of all flow logs of a cloud.
pub(crate) fn directories(file: &VpcFile) -> BTreeSet<String> {
    file.world.flow_logs.values().map(|log| log.directory.clone()).collect()
}

impl Files {
    /// # Errors
    /// The file of the cloud at the start names too many public addresses, or an error of the
    /// operating system.
    pub(super) fn new(spec: &Spec) -> Result<Self> {
        let read = |path: &std::path::PathBuf| config::read(path).ok();
        let is_of_controller = spec.is_of_controller;
        let runs = spec.config.as_ref().and_then(read);
        let publics = Publics::new(&spec.publics)?;
        let (logs, outputs) = (spec.logs.clone(), BTreeSet::new());
        let mut files = Self { logs, publics, is_of_controller, runs, outputs };
        files.add_output(io::stdout().as_fd())?;
        files.add_output(io::stderr().as_fd())?;
        Ok(files)
    }

    /// Records a file that is, or is to be, standard output or error of the helper.
    ///
    /// # Errors
    /// There were too many such files, or an error of the operating system.
    pub(super) fn add_output(&mut self, output: BorrowedFd<'_>) -> Result<()> {
        let facts = rustix::fs::fstat(output)?;
        self.outputs.insert((facts.st_dev, facts.st_ino));
        if self.outputs.len() > OUTPUTS_MAX {
            self.outputs.remove(&(facts.st_dev, facts.st_ino));
            bail!("messages were written to {OUTPUTS_MAX} files since the start of the helper");
        }
        Ok(())
    }

    /// Returns the public addresses that may be routed.
    pub(super) fn publics(&self) -> &Publics {
        &self.publics
    }

    /// Opens a new file of a flow log. The directory is created if it is missing. Also returns the
    /// file's name.
    pub(super) fn log(&self, directory: &str, stem: &str, ending: &str) -> Result<(File, String)> {
        self.check(directory)?;
        let (file, path) = files::create(Path::new(directory), stem, ending)?;
        if let Err(error) = file.set_permissions(Permissions::from_mode(LOG_MODE)) {
            let _ = fs::remove_file(&path); // it is empty
            return Err(error.into());
        }
        let name = path.file_name().and_then(|name| name.to_str()).context("a file's name")?;
        Ok((file, name.to_owned()))
    }

    /// Completes a file of a flow log, which removes the ending `.part` from its name. If
    /// `is_whole` is false, the file is removed.
    pub(super) fn log_ended(&self, directory: &str, name: &str, is_whole: bool) -> Result<()> {
        self.check(directory)?;
        let path = Path::new(directory).join(name);
        if !is_whole {
            return Ok(fs::remove_file(path)?);
        }
        Ok(fs::rename(&path, path.with_extension(""))?)
    }

    fn check(&self, directory: &str) -> Result<()> {
        if !self.logs.contains(directory) {
            bail!(
                "the card was not started with {directory} as a directory of flow logs, and no \
                 file named it that root alone may change"
            );
        }
        Ok(())
    }

    /// Returns a copy of a file that describes a cloud, and refuses any other file. If only root
    /// may change the file, the directories of its flow logs and its public addresses are permitted
    /// from then on.
    pub(super) fn vpc(&mut self, path: &Path) -> Result<File> {
        // The file may be one that the card may not read, so an error does not quote it.
        let CloudFile { facts, copy, file } = open(path, false)?;
        if !self.is_of_controller && self.is_roots_alone(path, &facts) {
            self.publics.add_of(&file)?;
            self.logs.extend(directories(&file));
        }
        Ok(copy)
    }

    /// Reads the configuration with which another process has taken the node over.
    pub(super) fn renew(&mut self, spec: &Spec) -> Result<()> {
        let path = spec.config.as_ref().context(NO_FILE)?;
        self.runs = Some(config::read(path)?);
        Ok(())
    }

    /// Reads the configuration again, and copies the file of its cloud.
    pub(super) fn reload(&mut self, spec: &Spec) -> Result<Reloaded> {
        let path = spec.config.as_ref().context(NO_FILE)?;
        let new = config::read(path)?;
        let others = match &self.runs {
            Some(runs) => config::other_settings(runs, &new),
            None => Vec::new(),
        };
        let others = others.into_iter().map(str::to_owned).collect();
        let is_replaced = self.is_of_controller && !new.is_of_controller;
        let vpc = match new.file {
            Some(path) => {
                let is_of_controller = self.is_of_controller || new.is_of_controller;
                let own = is_of_controller.then_some((new.host.as_str(), new.pods));
                Some((self.reloaded_vpc(&path, own)?, path))
            }
            None => None,
        };
        if is_replaced {
            bail!(OF_CONTROLLER);
        }
        Ok(Reloaded { vpc, others })
    }

    /// Returns a copy of the file of a cloud that the configuration names. So an error may quote
    /// it, and the directories of its flow logs and its public addresses are permitted, unless a
    /// controller sends its content. `own`: the name of this host in the file of a controller, and
    /// whether this file may use pods of this host; `None`: it is no file of a controller.
    fn reloaded_vpc(&mut self, path: &Path, own: Option<(&str, bool)>) -> Result<File> {
        let CloudFile { copy, file, .. } = open(path, own.is_none())?;
        match own {
            Some(own) => check_of_controller(&file, own)?,
            None => {
                let file = file.for_card(path)?;
                self.publics.add_of(&file)?;
                self.logs.extend(directories(&file));
            }
        }
        Ok(copy)
    }

    /// Whether only root or this process's user can change a file and the path that leads to it.
    /// `facts` are those of the open file, because the path may have led to another file before.
    fn is_roots_alone(&self, path: &Path, facts: &fs::Metadata) -> bool {
        let is_own = facts.uid() == 0 || facts.uid() == geteuid().as_raw();
        let is_output = self.outputs.contains(&(facts.dev(), facts.ino()));
        is_own && facts.mode() & 0o022 == 0 && !is_output && place::is_roots_alone(path)
    }
}

/// Result of reading a configuration again.
pub(super) struct Reloaded {
    /// A copy of the file of the cloud, and the path of the file.
    pub(super) vpc: Option<(File, std::path::PathBuf)>,
    /// Keys of changed settings that are not applied.
    pub(super) others: Vec<String>,
}
