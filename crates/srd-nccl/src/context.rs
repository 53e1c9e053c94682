//! The context of one of NCCL's communicators: an endpoint on each interface that the communicator
//! uses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::machine::Machine;
use crate::port::Port;
use crate::{Fault, Outcome};

/// Endpoints of one communicator. Bound: one endpoint for each device.
#[derive(Debug)]
pub struct Context {
    machine: Arc<Machine>,
    ports: Mutex<BTreeMap<usize, Arc<Port>>>,
}

impl Context {
    /// Returns a context without endpoints. Each endpoint is opened when it is first needed.
    #[must_use]
    pub fn new(machine: Arc<Machine>) -> Self {
        Self { machine, ports: Mutex::new(BTreeMap::new()) }
    }

    /// Returns the endpoint on a device. An endpoint that has ended is replaced.
    ///
    /// # Errors
    /// A [`Fault`], if there is no such device, or no endpoint can be opened on it.
    pub fn port(&self, device: i32) -> Outcome<Arc<Port>> {
        let devices = &self.machine.devices;
        let at = usize::try_from(device).ok().filter(|at| *at < devices.len());
        let at = at.ok_or_else(|| {
            Fault::argument(format!("device {device}: there are {}", devices.len()))
        })?;
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = ports.get(&at).filter(|port| !port.is_over()) {
            return Ok(Arc::clone(port));
        }
        let options = self.machine.settings.options(devices[at].device.ip);
        let port = Arc::new(Port::open(&options)?);
        ports.insert(at, Arc::clone(&port));
        Ok(port)
    }
}
