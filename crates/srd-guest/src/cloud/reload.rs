//! Reading the configuration again: to check it without a card, or to apply it to a running card.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use srd_daemon::config::Config;
use srd_net::clock;
use srd_proto::time::Instant;
use srd_vpc_file::VpcFile;

use crate::cloud::file::check_of_controller;
use crate::cloud::guests;
use crate::cloud::world::Vpc;
use crate::control::orders::{Orders, RulesReply};
use crate::control::protocol::Answer;
use crate::control::several;
use crate::state::Options;
use crate::warnings;

/// Longest wait for the repair of instances that other programs have changed. It is shorter than a
/// command waits for the answer to a reload.
const REPAIR_WAIT_MAX: Duration = Duration::from_secs(5);

/// Applies a changed configuration from a thread other than the loop's thread.
#[derive(Clone, Debug)]
pub(crate) struct Reloader {
    orders: Orders,
    /// Whether a controller sends the content of the VPC's file.
    is_of_controller: bool,
}

/// Result of a reload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reloaded {
    /// Whether the VPC's file describes other objects than before. These are now in force.
    pub(crate) is_new: bool,
    /// Keys of changed settings that this process cannot apply. A card that takes over can apply
    /// them.
    pub(crate) others: Vec<String>,
}

impl Reloader {
    pub(crate) fn new(orders: Orders, is_of_controller: bool) -> Self {
        Self { orders, is_of_controller }
    }

    /// Reads the configuration again, and applies the rules of the VPC's file.
    ///
    /// # Errors
    /// A file is wrong, or cannot be applied, or has no instances while some run that no controller
    /// has sent: the previous rules stay in force.
    pub(crate) fn reload(&self) -> Result<Reloaded> {
        let began = clock::now();
        let (file, others) = self.orders.helper()?.reload()?;
        let file = file.map_or_else(|| Vpc::file_of(None), Ok)?;
        Ok(Reloaded { is_new: self.replace(file, began, self.is_of_controller)?, others })
    }

    /// Applies the content of a file that the controller of the host has sent. `own`: the name of
    /// this host in the file, and whether the file may use pods of this host.
    ///
    /// # Errors
    /// The file is wrong, or cannot be applied: the previous rules stay in force.
    pub(crate) fn apply(&self, path: &Path, own: (&str, bool)) -> Result<()> {
        let began = clock::now();
        let file = self.orders.helper()?.vpc(path)?;
        check_of_controller(&file, own)?;
        // If the host has lost its last instance, the controller sends a file without instances.
        self.replace(file, began, true).map(drop)
    }

    /// Returns whether the file describes other objects than before. `removes_all`: whether a file
    /// without instances may end all instances.
    fn replace(&self, file: VpcFile, began: Instant, removes_all: bool) -> Result<bool> {
        let RulesReply { answer, repair } = several::apply(&self.orders, file, began, removes_all)?;
        // The helper has logged changes by other programs that are left.
        if let Some(mut repair) = repair
            && repair.wait(REPAIR_WAIT_MAX).is_none()
        {
            tracing::warn!(
                "what other programs have changed of instances is still being restored after {} s",
                REPAIR_WAIT_MAX.as_secs()
            );
        }
        match answer {
            Answer::Applied { is_new, .. } => Ok(is_new),
            Answer::Failed { what } => bail!(what),
            _ => bail!("the card answers something else"),
        }
    }
}

/// Checks the instances of a configuration, and describes them in lines of text. The function
/// creates no object and needs no privilege.
///
/// # Errors
/// The first mistake in the configuration.
pub fn check(config: Config) -> Result<Vec<String>> {
    let options = &Options::of(config)?;
    let vpc = options.vpc()?;
    for name in options.vhost_user.keys() {
        vpc.instance_here(name)?;
    }
    let world = vpc.world();
    guests::check(&vpc, &world)?;
    let mut lines = Vec::new();
    if let Some(of) = &options.transport {
        let hosts: Vec<&str> = of.hosts.keys().map(String::as_str).collect();
        let plain = if of.is_plain() { ", neither encrypted nor authenticated" } else { "" };
        let from = of.interface.listens_in_words();
        lines.push(format!("other hosts: {} from {from}{plain}", hosts.join(", ")));
    }
    if let Some(of) = &options.metrics {
        lines.push(format!("figures: http://{}/", of.listen));
    }
    lines.push(format!("requests: {}", options.socket.display()));
    let here = world.instances.values();
    for instance in here.filter(|instance| instance.host.as_ref() == Some(&options.host)) {
        let socket = options.vhost_user.get(&instance.name);
        let place = socket.map_or_else(
            || String::from("a namespace"),
            |path| format!("vhost-user at {}", path.display()),
        );
        lines.push(format!("{}: {}, {place}", instance.name, instance.instance_type));
    }
    let warned = warnings::of(options, &world);
    lines.extend(warned.into_iter().map(|text| format!("warning: {text}")));
    Ok(lines)
}
