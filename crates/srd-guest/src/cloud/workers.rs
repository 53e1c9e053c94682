//! The workers of this host, each of which runs a card with some of the instances. All workers
//! share the assignment of instances to workers. An instance keeps its worker until this process
//! ends. A process that takes over keeps the workers of the instances that exist at that time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use srd_card::profile::InstanceType;
use srd_card::vpc::workers::{Beside, Partition};
use srd_vpc::id::InstanceId;
use srd_vpc::object::{Instance, World};

/// The assignment of instances to the workers of this host.
#[derive(Clone, Debug)]
pub(crate) struct Workers(Arc<Mutex<Partition>>);

impl Workers {
    /// Creates the assignment of a host with this number of workers.
    pub(crate) fn new(host: &str, count: u8) -> Self {
        Self(Arc::new(Mutex::new(Partition::new(host, count))))
    }

    fn lock(&self) -> MutexGuard<'_, Partition> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the names of the workers, which the world has in place of the name of the host.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.lock().names().to_vec()
    }

    /// Replaces the host of each instance of this host by the name of its worker. Instances weigh
    /// as much as they have vCPUs. The assignment stays as it is until [`Workers::keep`].
    pub(crate) fn divide(&self, world: &mut World) {
        self.lock().divide(world, weight);
    }

    /// Remembers the workers of the instances of divided objects, which are in force everywhere.
    pub(crate) fn keep(&self, world: &World) {
        self.lock().keep(world);
    }

    /// Gives instances to the worker that had them in the process before.
    pub(crate) fn assign(&self, instances: BTreeSet<InstanceId>, worker: u8) {
        let mut partition = self.lock();
        for instance in instances {
            partition.assign(instance, worker);
        }
    }

    /// Returns the view that a worker has of the others. `world`: the divided objects.
    pub(crate) fn view(&self, worker: u8, world: &World) -> Beside {
        self.lock().view(worker, world)
    }
}

fn weight(instance: &Instance) -> u32 {
    InstanceType::find(&instance.instance_type).map_or(1, |kind| kind.vcpus)
}
