//! A node, which is one service that contains the interface of `srd up`, the sessions with the
//! other hosts, and the card of the instances. The card's loop drives the node's first worker, so
//! that packets of instances and of the interface share sockets, sessions and queues.
//!
//! ```text
//!   main thread: control (srd-daemon)     thread srd-worker-0: loop of the card + first worker
//!   children: srd network (routes of the interface), srd card-helper (instances)
//! ```

use std::sync::Arc;

use anyhow::Result;
use srd_daemon::config::Config;
use srd_daemon::control_plane::state::{CLOUD, StateDirectory};
use srd_daemon::plane::{
    ApplyInstances, FreezeInstances, FrozenInstances, InstanceChanges, ReloadInstances,
    ReloadedInstances,
};
use srd_daemon::run::{
    BeginCard, Daemon, FirstWorker, Hosted, HostedCard, Instances, Prepared, Succession,
};
use srd_trust::privileges;

use crate::cloud::file::{check_of_controller, open};
use crate::cloud::guests;
use crate::cloud::reload::{Reloaded, Reloader};
use crate::cloud::world::Vpc;
use crate::control::config::KEYS_OF_NODE;
use crate::failure::Missing;
use crate::handover::node::hand_over;
use crate::helper::Starting;
use crate::service::Opening;
use crate::state::{Options, Service};
use crate::traffic::transport::Transport;

/// Starts the node that a configuration describes: its interface, and its instances if there are
/// any.
///
/// # Errors
/// An error of the configuration, of the operating system, or of the instances: nothing runs, and
/// objects that were already created are removed.
pub fn start(config: Config) -> Result<Daemon> {
    if config.cloud.is_none() {
        return Daemon::new(config);
    }
    if !privileges::may_make_namespaces() {
        return Err(Missing(String::from(
            "instances take root (CAP_SYS_ADMIN and CAP_NET_ADMIN) at the start: run it with sudo. \
             The unit srd@ gets these rights by /usr/share/srd/cloud.conf: its first lines contain \
             the commands",
        ))
        .into());
    }
    if let (Some(enrol), Some(cloud)) = (&config.enrol, &config.cloud)
        && cloud.is_of_controller
    {
        prepare_cloud(&enrol.directory, (&cloud.host, cloud.pods))?;
    }
    let options = Options::of(config.clone(), crate::SOCKET_DEFAULT.as_ref())?;
    let own = (options.host.clone(), options.pods);
    let opening = Opening::begin(Options { metrics: None, ..options }, false)?;
    let prepared = match Prepared::new(config) {
        Ok(prepared) => prepared,
        Err(error) => {
            opening.give_up();
            return Err(error);
        }
    };
    let owner = prepared.owner();
    prepared.start(Some(hosted(opening, owner, own)))
}

/// Makes the file with the part of the cloud of the controller usable. A file is replaced by one
/// without instances if it is missing, if a failure of the machine has damaged it, or if this host
/// cannot run its instances.
fn prepare_cloud(state: &StateDirectory, own: (&str, bool)) -> Result<()> {
    let (host, _) = own;
    let path = state.file(CLOUD);
    let usable = open(&path, false).and_then(|(_, file)| {
        check_of_controller(&file, own)?;
        let vpc = Vpc::of(file, host, false);
        guests::check(&vpc, &vpc.world())
    });
    if let Err(error) = usable {
        if path.exists() {
            let shown = path.display();
            tracing::warn!("{shown} is not used, and the controller sends it again: {error:#}");
        }
        state.write_cloud("").map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

/// Result of [`take_over`].
#[derive(Debug)]
pub enum TakenOver {
    /// This process continues.
    Here(Box<Daemon>),
    /// The process with this number continues: a child of the node that ran, in the unit of that
    /// node.
    InUnit(u32),
}

/// Takes over from the node that runs a configuration. `by_input`: whether that node has started
/// this process, with a connection to it as standard input.
///
/// # Errors
/// An error of the configuration or of the operating system, or the refusal of the node that runs,
/// which goes on as before.
pub fn take_over(config: Config, by_input: bool) -> Result<TakenOver> {
    let mut prepared = match Prepared::take_over(config, by_input)? {
        Succession::InUnit(process) => return Ok(TakenOver::InUnit(process)),
        Succession::Here(prepared) => *prepared,
    };
    let config = prepared.config().clone();
    let of_cloud = config.cloud.is_some();
    let options = of_cloud.then(|| Options::of(config, crate::SOCKET_DEFAULT.as_ref()));
    let options = options.transpose()?;
    let own = options.as_ref().map(|options| (options.host.clone(), options.pods));
    let adopt = |options| {
        let starting = Starting::adopt(prepared.take_instances())?;
        Opening::adopt(Options { metrics: None, ..options }, starting)
    };
    let opening = options.map(adopt).transpose()?;
    let owner = prepared.owner();
    let card = opening.zip(own).map(|(opening, own)| hosted(opening, owner, own));
    let daemon = prepared.start(card)?;
    Ok(TakenOver::Here(Box::new(daemon)))
}

/// Returns the card of a node. `owner`: the user that has started the node; `own`: the name of this
/// host in the file of its controller, and whether that file may use pods of this host.
fn hosted(opening: Opening, owner: u32, own: (String, bool)) -> Hosted {
    let wake = opening.wake();
    let (reloader, figures) = (opening.reloader(), opening.figures());
    let (serve, hand_over) = (opening.serve(owner), hand_over(opening.orders()));
    let gate = opening.orders().gate;
    let freeze: FreezeInstances = Arc::new(move || Ok(FrozenInstances(Box::new(gate.close()?))));
    let prepare = || {
        let service = opening.prepare()?;
        Ok(Box::new(|first| begin(service, first)) as BeginCard)
    };
    let card = HostedCard { wake, prepare: Box::new(prepare) };
    let apply = reloader.clone();
    let apply: ApplyInstances = Arc::new(move |file| {
        let applied = apply.apply(file, (&own.0, own.1));
        applied.map_err(|error| format!("{error:#}"))
    });
    let changes = InstanceChanges { reload: reload(reloader), apply, freeze };
    Hosted { card, changes, figures, serve, hand_over }
}

/// Starts the instances, or continues with those of the node that runs.
fn begin(mut service: Service, mut first: FirstWorker) -> Result<Box<dyn Instances>> {
    let state = first.take_state();
    let transport = Transport::of_node(first)?;
    match state {
        Some(state) => service.take_state(transport, state)?,
        None => service.begin_new(Some(transport))?,
    }
    for warning in service.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(Box::new(Hosting(service)))
}

/// Returns the function that reloads the instances. Its list of changed settings omits those of the
/// node.
fn reload(reloader: Reloader) -> ReloadInstances {
    Arc::new(move || {
        let Reloaded { is_new, others } =
            reloader.reload().map_err(|error| format!("{error:#}"))?;
        let waits = others.into_iter().filter(|key| !KEYS_OF_NODE.contains(&key.as_str()));
        Ok(ReloadedInstances { is_new, waits: waits.collect() })
    })
}

/// The card of a node.
struct Hosting(Service);

impl Instances for Hosting {
    fn run(&mut self) -> Result<()> {
        self.0.run().map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::*;

    /// Such a part kept the node from starting, so it could not get another part either.
    #[test]
    fn regression_a_part_that_this_host_cannot_run_does_not_keep_a_node_from_starting() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::new(directory.path().to_owned());
        let after = |text: &str| {
            state.write_cloud(text).unwrap();
            prepare_cloud(&state, ("here", false)).unwrap();
            std::fs::read_to_string(state.file(CLOUD)).unwrap()
        };
        let of = |kind: &str, host: &str| {
            format!("[instance.i]\ntype = \"{kind}\"\nhost = \"{host}\"\n")
        };
        let good = of("c7i.large", "here");
        assert_eq!(after(&good), good);
        assert_eq!(after(&of("nonsense", "here")), "");
        let elsewhere = of("nonsense", "there");
        assert_eq!(after(&elsewhere), elsewhere);
        assert_eq!(after("hush = 1\n"), "");
    }
}
