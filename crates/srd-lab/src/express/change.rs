//! Changing daemons while they run: with `srd reload` and `srd set`, or through their processes.

use super::{Overlay, config_text};
use crate::build::id::HostId;
use crate::programs::command;
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::{Command, ExitStatus};

/// Difference to the initial configuration of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Variation {
    /// A host that is left out of the daemon's peers; `None`: all peers are present.
    pub without: Option<HostId>,
    /// Lines of the section `[expert]`, each with its line end; empty: there is no such section.
    pub expert: &'static str,
}

impl Overlay<'_> {
    /// Returns the process id of a host's daemon; `None` if it does not run.
    #[must_use]
    pub fn pid(&self, host: HostId) -> Option<u32> {
        self.daemons.get(&host)?.pid()
    }

    /// Returns the exit status of a host's daemon, if it has ended.
    pub fn ended(&mut self, host: HostId) -> Result<Option<ExitStatus>> {
        self.daemons.get_mut(&host).map_or(Ok(None), |daemon| daemon.ended())
    }

    /// Replaces a host's configuration at once. Its daemon reads the file at its next start, which
    /// may be at any moment: the old or the new text is there, never a part.
    pub fn configure(&self, host: HostId, variation: &Variation) -> Result<()> {
        let mut keys = self.keys.clone();
        if let Some(without) = variation.without.filter(|without| *without != host) {
            keys.remove(&without);
        }
        let mut text = config_text(self.fabric.config(), host, &keys, &self.options);
        if !variation.expert.is_empty() {
            text = format!("[expert]\n{}\n{text}", variation.expert);
        }
        let file = self.options.file(host, "toml");
        let new = self.options.file(host, "toml.new");
        fs::write(&new, text).with_context(|| new.display().to_string())?;
        fs::rename(&new, &file).with_context(|| file.display().to_string())
    }

    /// Replaces a host's configuration and makes its daemon read it.
    pub fn reload(&self, host: HostId, variation: &Variation) -> Result<()> {
        self.configure(host, variation)?;
        self.ask(host, &["reload"])
    }

    /// Changes a setting of a host's daemon. `words` are the arguments of `srd set`.
    pub fn set_in(&self, host: HostId, words: &[&str]) -> Result<()> {
        let all: Vec<&str> = ["set"].iter().chain(words).copied().collect();
        self.ask(host, &all)
    }

    /// Changes a setting of every daemon until the daemon ends. `words` are the arguments of `srd
    /// set`.
    pub fn set(&self, words: &[&str]) -> Result<()> {
        self.hosts.iter().try_for_each(|host| self.set_in(*host, words))
    }

    fn ask(&self, host: HostId, words: &[&str]) -> Result<()> {
        if !self.daemons.contains_key(&host) {
            bail!("no daemon in {host}");
        }
        let mut command = Command::new(&self.options.program);
        command.args(words).arg("--socket").arg(self.options.file(host, "sock"));
        let what = format!("`srd {}` in {host}", words.join(" "));
        command::run(&mut command, "").map(drop).context(what)
    }
}
