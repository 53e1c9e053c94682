//! A program of this process in the place of a device, so that what the card takes for a packet can
//! be measured without what a device takes.

use anyhow::{Context, Result, bail};

use crate::port::Port;
use crate::state::Service;

/// An instance whose packets are in this process's memory. Frames are an offload header and a
/// packet.
pub trait MemoryGuest: Send {
    /// The next frame that it sends; `None`: there is none now.
    fn send(&mut self) -> Option<Vec<u8>>;
    /// Takes a frame.
    fn receive(&mut self, frame: Vec<u8>);
}

impl Service {
    /// Gives the first interface of an instance to a program of this process. The instance is one
    /// of those whose interfaces are sockets of vhost-user; the socket is closed.
    ///
    /// # Errors
    /// There is no such instance here, or it has a namespace.
    pub fn set_memory_guest(&mut self, name: &str, guest: Box<dyn MemoryGuest>) -> Result<()> {
        let running = self.guests.by_name.get(name);
        let running = running.with_context(|| format!("instance `{name}` does not run here"))?;
        let (port, ..) = running.interfaces.first().context("it has no interface")?;
        match self.devices.get_mut(port) {
            Some(device @ (Port::Vhost(_) | Port::Memory(_))) => *device = Port::Memory(guest),
            _ => bail!("instance `{name}` has a namespace: name it among those of vhost-user"),
        }
        Ok(())
    }
}
