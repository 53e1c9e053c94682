//! The names of the objects whose figures are on the pages. After a change, the packet thread
//! creates a new directory when a reader needs it, and replaces the old directory as a whole.
//!
//! Bound: one entry for each interface and each other host, and the VPC's file, which is shared.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use srd_card::profile::Profile;
use srd_card::vpc::PortId;
use srd_net::page::Page;
use srd_proto::time::Instant;
use srd_vpc::id::{EniId, InstanceId};
use srd_vpc_file::VpcFile;

use super::Slot;
use crate::cloud::world::Vpc;
use crate::control::protocol::NamespaceName;
use crate::figures::logs::Plan;
use crate::machine::namespace::Device;

/// Maximum number of causes of losses with separate counters; all other causes share one counter.
pub(crate) const LOST_MAX: usize = 64;
/// Name of the counter that all other causes share.
pub(crate) const LOST_OTHERWISE: &str = "other causes";

/// All objects of a card that have names, and the pages with their figures.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) about: About,
    /// Instances, sorted by name.
    pub(crate) instances: Vec<Listed>,
    /// The other hosts, sorted by name.
    pub(crate) hosts: Vec<ListedHost>,
    pub(crate) logs: Arc<Plan>,
    vpc: Option<Vpc>,
    /// All objects of the cloud with their names. The first reader that needs them creates them
    /// from `vpc`.
    file: OnceLock<VpcFile>,
}

/// Properties that do not change while a card runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) host: String,
    pub(crate) scale: u32,
    pub(crate) internet: bool,
    pub(crate) began: Option<Instant>,
    /// Unix time in nanoseconds at which the card began.
    pub(crate) began_unix_ns: u64,
    /// Whether this card has a transport to other hosts.
    pub(crate) has_transport: bool,
}

/// An instance in the directory.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) id: InstanceId,
    pub(crate) namespace: Option<NamespaceName>,
    pub(crate) profile: Profile,
    pub(crate) interfaces: Vec<ListedInterface>,
}

/// An interface in the directory.
#[derive(Clone, Debug)]
pub(crate) struct ListedInterface {
    pub(crate) port: PortId,
    pub(crate) eni: EniId,
    pub(crate) device: Device,
    /// Path of the vhost-user socket; `None` if the interface is in a namespace.
    pub(crate) socket: Option<PathBuf>,
    pub(crate) row: Arc<InterfaceRow>,
}

/// The page with the figures of an interface.
#[derive(Debug)]
pub(crate) struct InterfaceRow {
    pub(crate) page: Page,
    /// Error of the last attempt to create the deleted device of the interface; `None` if no
    /// attempt has failed.
    pub(crate) failed: Slot<Option<Arc<str>>>,
}

/// Another host in the directory.
#[derive(Clone, Debug)]
pub(crate) struct ListedHost {
    pub(crate) name: Arc<str>,
    pub(crate) at: SocketAddr,
    pub(crate) page: Arc<Page>,
}

impl Directory {
    pub(crate) fn new(
        about: About,
        vpc: Vpc,
        logs: Arc<Plan>,
        instances: Vec<Listed>,
        hosts: Vec<ListedHost>,
    ) -> Self {
        Self { about, instances, hosts, logs, vpc: Some(vpc), file: OnceLock::new() }
    }

    /// Returns all objects of the cloud with their names, as from a file.
    pub(crate) fn file(&self) -> Option<&VpcFile> {
        let vpc = self.vpc.as_ref()?;
        Some(self.file.get_or_init(|| vpc.as_file()))
    }

    pub(crate) fn eni_name(&self, eni: EniId) -> String {
        self.vpc.as_ref().map_or_else(|| eni.to_string(), |vpc| vpc.eni_name(eni))
    }

    pub(crate) fn instance(&self, name: &str) -> Option<&Listed> {
        self.instances.iter().find(|of| of.name == name)
    }
}

/// The names of the causes for which packets were lost, at the indices of their counters. Only the
/// packet thread adds names, and no name is ever removed.
#[derive(Debug)]
pub(crate) struct LostNames([OnceLock<Cow<'static, str>>; LOST_MAX]);

impl Default for LostNames {
    fn default() -> Self {
        Self([const { OnceLock::new() }; LOST_MAX])
    }
}

impl LostNames {
    /// Returns the counters of lost packets at the indices of their causes, followed by the counter
    /// that all other causes share.
    pub(crate) fn places(&self, lost: &BTreeMap<Cow<'static, str>, u64>) -> [u64; LOST_MAX + 1] {
        let mut counts = [0; LOST_MAX + 1];
        for (why, packets) in lost {
            let is_its = |place: &OnceLock<_>| place.get_or_init(|| why.clone()) == why;
            let place = self.0.iter().position(is_its).unwrap_or(LOST_MAX);
            counts[place] += packets;
        }
        counts
    }

    /// Returns the names of causes that have occurred, with their counters from
    /// [`LostNames::places`].
    pub(crate) fn with<'a>(
        &'a self,
        counts: &'a [u64; LOST_MAX + 1],
    ) -> impl Iterator<Item = (&'a str, u64)> {
        let named = self.0.iter().map_while(|name| name.get().map(AsRef::as_ref));
        let otherwise = Some(LOST_OTHERWISE).filter(|_| counts[LOST_MAX] > 0);
        named.zip(*counts).chain(otherwise.map(|name| (name, counts[LOST_MAX])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_keep_their_places_and_those_beyond_the_bound_share_one() {
        let names = LostNames::default();
        let mut lost = BTreeMap::from([(Cow::from("b"), 2)]);
        assert_eq!(names.places(&lost)[0], 2);
        // A cause that precedes the first one in alphabetical order.
        lost.insert(Cow::from("a"), 1);
        let counts = names.places(&lost);
        assert_eq!(counts[..2], [2, 1]);
        assert_eq!(names.with(&counts).collect::<Vec<_>>(), [("b", 2), ("a", 1)]);
        for n in 0..LOST_MAX + 1 {
            lost.insert(format!("c{n:02}").into(), 1);
        }
        let counts = names.places(&lost);
        assert_eq!(counts[LOST_MAX], 3, "two places were taken");
        let all: Vec<_> = names.with(&counts).collect();
        assert_eq!((all.len(), all[LOST_MAX]), (LOST_MAX + 1, (LOST_OTHERWISE, 3)));
        assert_eq!(all.iter().map(|(_, n)| n).sum::<u64>(), lost.values().sum::<u64>());
    }
}
