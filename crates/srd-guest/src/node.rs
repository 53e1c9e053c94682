//! A node, which is one service that contains the interface of `srd up`, the sessions with the
//! other hosts, and the cards of the instances. The loop of a card drives each of the node's
//! workers, so that packets of instances and of the interface share sockets, sessions and queues.
//! `srd card up` is a node without an interface, and without sockets if it has no other hosts
//! either.
//!
//! ```text
//!   main thread: control (srd-daemon)     thread srd-worker-0: loop of a card + first worker
//!                                         thread srd-worker-1: loop of a card + second worker ...
//!   children: srd network (routes of the interface), srd card-helper (instances)
//! ```

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use srd_daemon::config::Config;
use srd_daemon::control_plane::state::{CLOUD, StateDirectory};
use srd_daemon::plane::{
    ApplyInstances, FreezeInstances, FrozenInstances, InstanceChanges, ReloadInstances,
    ReloadedInstances,
};
use srd_daemon::run::{
    BeginCards, CardWorker, Daemon, Hosted, HostedCards, Instances, Prepared, Succession,
};
use srd_trust::privileges;

use crate::cloud::file::{CloudFile, check_instances, check_of_controller, open};
use crate::cloud::guests;
use crate::cloud::reload::{Reloaded, Reloader};
use crate::cloud::world::Vpc;
use crate::control::config::KEYS_OF_NODE;
use crate::failure::Missing;
use crate::handover::give::hand_over;
use crate::handover::take::Handed;
use crate::helper::Starting;
use crate::interfaces::memory::MemoryGuest;
use crate::service::Opening;
use crate::state::{Options, Service};
use crate::traffic::transport::Transport;

/// A node that is set up.
#[derive(Debug)]
pub struct Node {
    /// The process that moves packets.
    pub daemon: Daemon,
    /// Text about its instances.
    pub instances: Introduction,
}

/// Lines of text about the instances of a node at its start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Introduction {
    /// The instances, one line each.
    pub summary: Vec<String>,
    /// Permitted settings that are usually a mistake, each with a remedy.
    pub warnings: Vec<String>,
}

/// Starts the node that a configuration describes: its interface, and its instances if there are
/// any.
///
/// # Errors
/// An error of the configuration, of the operating system, or of the instances: nothing runs, and
/// objects that were already created are removed.
pub fn start(config: Config) -> Result<Node> {
    start_with(config, None)
}

/// Starts a node as [`start`] does. `guest`: the name of an instance at a vhost-user socket, and
/// the guest in memory that takes the place of its front end.
///
/// # Errors
/// As [`start`].
pub fn start_with(config: Config, guest: Option<(&str, Box<dyn MemoryGuest>)>) -> Result<Node> {
    if config.cloud.is_none() {
        return Ok(Node { daemon: Daemon::new(config)?, instances: Introduction::default() });
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
    let (options, about) = settings(&config)?;
    let opening = Opening::begin(options)?;
    let prepared = match Prepared::new(config) {
        Ok(prepared) => prepared,
        Err(error) => {
            opening.give_up();
            return Err(error);
        }
    };
    let said = SharedIntroduction::default();
    let guest = guest.map(|(name, guest)| (name.to_owned(), guest));
    let hosted = hosted(opening, about, (prepared.owner(), guest, Arc::clone(&said)));
    Ok(Node { daemon: prepared.start(Some(hosted))?, instances: taken(&said) })
}

/// Properties of a node that its parts need.
struct NodeProperties {
    /// The name of this host in the file of its controller, and whether that file may use pods of
    /// this host.
    own: (String, bool),
    /// Whether the node has neither an interface nor other hosts.
    is_alone: bool,
    /// The controller that sends the instances of the node; `None`: they come from a local file.
    controller: Option<String>,
}

/// Returns the settings of the card of a node.
fn settings(config: &Config) -> Result<(Options, NodeProperties)> {
    let options = Options::of(config.clone())?;
    let own = (options.host.clone(), options.pods);
    let enrol = config.enrol.as_ref().filter(|_| options.is_of_controller);
    let controller = enrol.map(|enrol| enrol.controller.to_string());
    Ok((options, NodeProperties { own, is_alone: config.interface.is_alone(), controller }))
}

/// A guest in memory, with the name of its instance.
type NamedGuest = (String, Box<dyn MemoryGuest>);

/// The introduction, once the card has begun.
type SharedIntroduction = Arc<Mutex<Introduction>>;

fn taken(said: &SharedIntroduction) -> Introduction {
    std::mem::take(&mut *said.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Makes the file with the part of the cloud of the controller usable. A file is replaced by one
/// without instances if it is missing, if a failure of the machine has damaged it, or if this host
/// cannot run its instances.
fn prepare_cloud(state: &StateDirectory, own: (&str, bool)) -> Result<()> {
    let (host, _) = own;
    let path = state.file(CLOUD);
    let usable = open(&path, false).and_then(|CloudFile { file, .. }| {
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
    Here(Box<Node>),
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
    if !by_input {
        check_file(&config)?;
    }
    let mut prepared = match Prepared::take_over(config, by_input)? {
        Succession::InUnit(process) => return Ok(TakenOver::InUnit(process)),
        Succession::Here(prepared) => *prepared,
    };
    let config = prepared.config();
    let of_instances = config.cloud.is_some().then(|| settings(config)).transpose()?;
    let said = SharedIntroduction::default();
    let card = match of_instances {
        Some((options, about)) => {
            let starting = Starting::adopt(prepared.take_instances())?;
            let opening = Opening::adopt(options, starting)?;
            Some(hosted(opening, about, (prepared.owner(), None, Arc::clone(&said))))
        }
        None => None,
    };
    let daemon = prepared.start(card)?;
    Ok(TakenOver::Here(Box::new(Node { daemon, instances: taken(&said) })))
}

/// Reads the VPC's file of a configuration, as a start does, so that an error has a position and a
/// remedy. The helper of the node that runs reads the file again, and quotes nothing of it.
fn check_file(config: &Config) -> Result<()> {
    let cloud = config.cloud.as_ref().filter(|of| !of.is_of_controller);
    let Some(path) = cloud.and_then(|of| of.vpc.as_deref()) else { return Ok(()) };
    match rustix::fs::access(path, rustix::fs::Access::READ_OK) {
        // Only the helper may be permitted to read the file.
        Err(rustix::io::Errno::ACCESS) => Ok(()),
        _ => Vpc::file_of(Some(path)).map(drop),
    }
}

/// Returns the card of a node. `owner`: the user that has started the node; `guest`: a guest in
/// memory, by the name of its instance; `said` receives the introduction.
fn hosted(
    opening: Opening,
    NodeProperties { own, is_alone, controller }: NodeProperties,
    (owner, guest, said): (u32, Option<NamedGuest>, SharedIntroduction),
) -> Hosted {
    let wakes = opening.wakes();
    let (reloader, figures) = (opening.reloader(), opening.figures(is_alone));
    let (serve, hand_over) = (opening.serve(owner, controller), hand_over(opening.orders()));
    let gate = opening.orders().gate;
    let freeze: FreezeInstances = Arc::new(move || Ok(FrozenInstances(Box::new(gate.close()?))));
    let prepare = move || {
        let services = opening.prepare()?;
        Ok(Box::new(move |workers| begin(services, workers, guest, &said)) as BeginCards)
    };
    let card = HostedCards { wakes, prepare: Box::new(prepare) };
    let apply = reloader.clone();
    let apply: ApplyInstances = Arc::new(move |file: &Path| {
        let applied = apply.apply(file, (&own.0, own.1));
        applied.map_err(|error| format!("{error:#}"))
    });
    let changes = InstanceChanges { reload: reload(reloader), apply, freeze };
    Hosted { card, changes, figures, serve, hand_over }
}

/// Starts the instances, or continues with those of the node that runs. Each worker gets the card
/// of one service.
fn begin(
    mut services: Vec<Service>,
    mut workers: Vec<CardWorker>,
    guest: Option<NamedGuest>,
    said: &SharedIntroduction,
) -> Result<Vec<Box<dyn Instances>>> {
    let state = workers.first_mut().and_then(CardWorker::take_state);
    let transports = workers.into_iter().map(Transport::new);
    let transports: Vec<Transport> = transports.collect::<Result<_>>()?;
    match state {
        Some(state) => take_states(&mut services, transports, state)?,
        None => {
            for (service, transport) in services.iter_mut().zip(transports) {
                service.begin_new(transport)?;
            }
        }
    }
    // All workers have the same objects.
    services.iter().take(1).for_each(Service::keep_workers);
    if let Some((name, guest)) = guest {
        let owner = services.iter_mut().find(|of| of.guests.by_name.contains_key(&name));
        let owner = owner.with_context(|| format!("there is no instance `{name}`"))?;
        owner.set_memory_guest(&name, guest)?;
    }
    let mut introduction = Introduction::default();
    for service in &services {
        introduction.summary.extend(service.summary());
        let warnings = service.warnings();
        let known = &introduction.warnings;
        let new: Vec<String> = warnings.into_iter().filter(|of| !known.contains(of)).collect();
        introduction.warnings.extend(new);
    }
    introduction.summary.sort_unstable();
    *said.lock().unwrap_or_else(PoisonError::into_inner) = introduction;
    Ok(services.into_iter().map(|of| Box::new(Hosting(of)) as Box<dyn Instances>).collect())
}

/// Continues with the cards of the node that runs. An instance stays at the worker with the number
/// of its worker there.
fn take_states(
    services: &mut [Service],
    transports: Vec<Transport>,
    state: Vec<OwnedFd>,
) -> Result<()> {
    let mut all = state.into_iter();
    let states = services.iter().map(|_| Handed::read(&mut all));
    let states: Vec<Handed> = states.collect::<Result<_>>()?;
    // The node that runs goes on if this process ends here.
    if let Some(first) = services.first().filter(|of| !of.options.is_of_controller) {
        let ends_some = states.iter().any(|state| !state.instances().is_empty());
        check_instances(&first.vpc.file(), ends_some)?;
    }
    for (number, (service, state)) in (0..).zip(services.iter().zip(&states)) {
        if let Some(workers) = service.vpc.workers() {
            workers.assign(state.instances(), number);
        }
    }
    let all = services.iter_mut().zip(transports).zip(states);
    for ((service, transport), state) in all {
        service.take_state(transport, state)?;
    }
    Ok(())
}

/// Returns the function that reloads the instances.
fn reload(reloader: Reloader) -> ReloadInstances {
    Arc::new(move || {
        let Reloaded { is_new, others } =
            reloader.reload().map_err(|error| format!("{error:#}"))?;
        let is_of_daemon = |key: &String| KEYS_OF_NODE.contains(&key.as_str());
        let (of_daemon, waits) = others.into_iter().partition(is_of_daemon);
        Ok(ReloadedInstances { is_new, waits, of_daemon })
    })
}

/// The card of a worker of a node.
struct Hosting(Service);

impl Instances for Hosting {
    fn run(&mut self) -> Result<()> {
        self.0.run()
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
