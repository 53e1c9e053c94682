//! A comparison between two hosts of a fabric of network namespaces, with the same links and queues
//! for every transport.

use super::command::{Ended, Server, piped};
use super::{ABOUT, SUMMARY, Settings, measured};
use crate::experiment::measure::programs::{self, MPTCPIZE, Program};
use crate::experiment::measure::result::{Measured, Outcome};
use crate::experiment::run::{Title, in_turns};
use crate::experiment::{Case, Options, Stage, Variant, describe, load::elephants};
use anyhow::{Context, Result, bail};
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use std::process::Command;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait until a server listens.
const READY_MAX: Duration = Duration::from_secs(30);
/// Pause between the start of a server and that of the command, if the server's port is not known.
const HEAD_START: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The hosts of the command and its server, and the load on the network beside them.
#[derive(Clone, Debug)]
pub struct Lab {
    /// Description of the fabric: hosts, links and queues.
    pub fabric: FabricConfig,
    /// The host in which the command runs.
    pub client: HostId,
    /// The host of the server, whose address the command gets.
    pub server: HostId,
    /// Shell command that starts the server; `None`: no server is started.
    pub serve: Option<String>,
    /// TCP port at which the server listens when it is ready; `None`: the port is not known.
    pub port: Option<u16>,
    /// Load on the links while the command runs.
    pub beside: Beside,
}

/// Long TCP flows between other hosts while the command runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beside {
    /// There are no other flows.
    #[default]
    Nothing,
    /// Six flows between three other pairs of hosts, so that some uplinks are full.
    Collisions,
    /// Four flows from two other hosts to the server's host, so that the link of this host is full.
    Incast,
}

impl Beside {
    const ALL: [(Beside, &str); 3] = [
        (Beside::Nothing, "nothing"),
        (Beside::Collisions, "collisions"),
        (Beside::Incast, "incast"),
    ];

    fn name(self) -> &'static str {
        Beside::ALL.into_iter().find(|(beside, _)| *beside == self).map_or("", |(_, name)| name)
    }

    fn pairs(self, server: HostId) -> Vec<(HostId, HostId)> {
        match self {
            Beside::Nothing => Vec::new(),
            Beside::Collisions => elephants::collisions(),
            Beside::Incast => elephants::incast(server),
        }
    }
}

impl FromStr for Beside {
    type Err = String;

    fn from_str(text: &str) -> Result<Beside, String> {
        let found = Beside::ALL.into_iter().find(|(_, name)| *name == text);
        let names = || Beside::ALL.map(|(_, name)| name).join(", ");
        found.map(|(beside, _)| beside).ok_or_else(|| format!("`{text}` is none of {}", names()))
    }
}

/// Runs the command over each transport in turn, and calls `say` with a line after each run.
///
/// # Errors
/// If a program is missing, the fabric cannot be built, the server does not start, or a run failed.
pub fn run(
    settings: &Settings,
    lab: &Lab,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome> {
    options.validate()?;
    lab.check()?;
    let mut needed: Vec<Program> = programs::of_variants(options);
    needed.extend(settings.variants.contains(&Variant::Mptcp).then_some(MPTCPIZE));
    programs::require(&needed)?;
    let title = Title { name: "compare", summary: SUMMARY, about: ABOUT };
    let case = lab.case(settings);
    in_turns(&title, &[case], &settings.variants, settings.repetitions, options, say)
}

impl Lab {
    /// Checks that the fabric has all hosts of the command and of the load, and that they differ.
    ///
    /// # Errors
    /// If a host is missing or is used twice, or the fabric cannot be built.
    pub fn check(&self) -> Result<()> {
        self.fabric.validate()?;
        let elephants = self.beside.pairs(self.server);
        let all = elephants::with_hosts(&[self.client, self.server], &elephants);
        for host in all {
            self.fabric.check_host(host).with_context(|| {
                format!("the command and the load `{}` need this host", self.beside.name())
            })?;
        }
        if self.client == self.server {
            bail!("{}: the command and the server need a host each", self.client);
        }
        if elephants.iter().any(|(from, to)| [*from, *to].contains(&self.client)) {
            bail!("{}: the load `{}` uses this host", self.client, self.beside.name());
        }
        Ok(())
    }

    fn case(&self, settings: &Settings) -> Case {
        let (lab, settings) = (self.clone(), settings.clone());
        let elephants = self.beside.pairs(self.server);
        let server = self.serve.as_ref().map_or(String::new(), |line| format!("; `{line}`"));
        Case {
            name: settings.words.shown(),
            setting: format!(
                "{} to {}{server}; beside it: {}; {}",
                self.client,
                self.server,
                self.beside.name(),
                describe(&self.fabric)
            ),
            fabric: self.fabric.clone(),
            hosts: elephants::with_hosts(&[self.client, self.server], &elephants),
            only: None,
            measure: Box::new(move |stage| lab.measure(stage, &settings)),
        }
    }

    fn measure(&self, stage: &Stage<'_>, settings: &Settings) -> Result<Measured> {
        let _subflows = stage.subflows()?;
        let mut server = self.start_server(stage)?;
        let address = stage.address(self.server)?;
        let mptcp = if stage.variant == Variant::Mptcp { &["mptcpize", "run"][..] } else { &[] };
        let mut command = settings.words.command(mptcp, address)?;
        let elephants = self.beside.pairs(self.server);
        let (ended, _) = elephants::beside(stage, &elephants, || {
            let child = stage.fabric.spawn(self.client, &mut command)?;
            Ended::wait(child, settings.time_limit, &settings.stop)
        })?;
        // A server for a single client may end with the command, which is not an error. If the
        // command failed, the error contains the server's failure.
        let served = server.as_mut().map(Server::failure).transpose()?.flatten();
        measured(settings, &ended).with_context(|| match served {
            Some(failure) => format!("the server {failure}"),
            None => format!("in {}", self.client),
        })
    }

    fn start_server(&self, stage: &Stage<'_>) -> Result<Option<Server>> {
        let Some(line) = &self.serve else { return Ok(None) };
        let mut command = Command::new("sh");
        if stage.variant == Variant::Mptcp {
            command = Command::new("mptcpize");
            command.args(["run", "sh"]);
        }
        command.args(["-c", line]).env("SRD_SERVER", stage.address(self.server)?.to_string());
        let child = stage.fabric.spawn(self.server, piped(&mut command))?;
        let mut server = Server::new(child)?;
        let begun = Instant::now();
        loop {
            if let Some(failure) = server.failure()? {
                bail!("the server `{line}` {failure}");
            }
            let is_ready = match self.port {
                Some(port) => programs::is_listening(stage, self.server, port)?,
                None => begun.elapsed() > HEAD_START,
            };
            if is_ready {
                return Ok(Some(server));
            }
            if begun.elapsed() > READY_MAX {
                let port = self.port.unwrap_or_default();
                bail!("the server `{line}` does not listen on TCP port {port}");
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab(beside: Beside) -> Lab {
        Lab {
            fabric: FabricConfig::default(),
            client: HostId { leaf: 0, host: 0 },
            server: HostId { leaf: 1, host: 0 },
            serve: None,
            port: None,
            beside,
        }
    }

    #[test]
    fn a_load_has_a_name_and_leaves_the_client_alone() {
        for (beside, name) in Beside::ALL {
            assert_eq!(name.parse(), Ok(beside));
            lab(beside).check().unwrap();
        }
        assert!("none".parse::<Beside>().unwrap_err().contains("nothing, collisions, incast"));
        let client = HostId { leaf: 0, host: 1 };
        let error = Lab { client, ..lab(Beside::Incast) }.check().unwrap_err().to_string();
        assert!(error.contains("the load `incast` uses this host"), "{error}");
    }

    #[test]
    fn hosts_must_be_two_and_there() {
        let client = lab(Beside::Nothing).server;
        assert!(Lab { client, ..lab(Beside::Nothing) }.check().is_err());
        let fabric = FabricConfig { hosts_per_leaf: 1, ..FabricConfig::default() };
        lab(Beside::Nothing).check().unwrap();
        Lab { fabric: fabric.clone(), ..lab(Beside::Nothing) }.check().unwrap();
        assert!(Lab { fabric, ..lab(Beside::Collisions) }.check().is_err());
    }
}
