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
use srd_daemon::plane::{ApplyInstances, InstanceChanges, ReloadInstances, ReloadedInstances};
use srd_daemon::run::{Daemon, FirstWorker, Hosted, HostedCard, Instances, Prepared, Succession};
use srd_trust::privileges;

use crate::cloud::reload::{Reloaded, Reloader, check_of_controller};
use crate::control::config::KEYS_OF_NODE;
use crate::failure::Missing;
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
        prepare_cloud(&enrol.directory)?;
    }
    let options = Options::of(config.clone(), crate::SOCKET_DEFAULT.as_ref())?;
    let opening = Opening::begin(Options { metrics: None, ..options }, false)?;
    let prepared = match Prepared::new(config) {
        Ok(prepared) => prepared,
        Err(error) => {
            opening.give_up();
            return Err(error);
        }
    };
    prepared.start(Some(hosted(opening)))
}

/// Makes the file with the part of the cloud of the controller readable: a file that is missing, or
/// that a failure of the machine has damaged, becomes one without instances.
fn prepare_cloud(state: &StateDirectory) -> Result<()> {
    let path = state.file(CLOUD);
    let read = srd_vpc_file::read(&path).map_err(anyhow::Error::from);
    if let Err(error) = read.and_then(|file| check_of_controller(&file)) {
        if path.exists() {
            // The error may quote the file.
            tracing::debug!("{error:#}");
            tracing::warn!("{} is damaged: the controller sends it again", path.display());
        }
        state.write_cloud("").map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

/// Prepares a process that takes over from the node that runs a configuration. That node goes on
/// until the result is started.
///
/// # Errors
/// An error of the configuration or of the operating system, or the refusal of the node that runs,
/// which goes on as before.
pub fn take_over(config: Config) -> Result<Succession> {
    Prepared::take_over(config)
}

fn hosted(opening: Opening) -> Hosted {
    let wake = opening.wake();
    let (reloader, figures, serve) = (opening.reloader(), opening.figures(), opening.serve());
    let begin = |first: FirstWorker| {
        let service = opening.finish(|| Transport::of_node(first).map(Some), None)?;
        for warning in service.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(Box::new(Hosting(service)) as Box<dyn Instances>)
    };
    let card = HostedCard { wake, begin: Box::new(begin) };
    let apply = reloader.clone();
    let apply: ApplyInstances =
        Arc::new(move |file| apply.apply(file).map_err(|error| format!("{error:#}")));
    let changes = InstanceChanges { reload: reload(reloader), apply };
    Hosted { card, changes, figures, serve }
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
