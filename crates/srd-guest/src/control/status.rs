//! The instances as text, for the output when the card starts. Their state while it runs is on
//! [`crate::pages`].

use srd_vpc::id::EniId;

use crate::interfaces::port::Port;
use crate::state::Service;

impl Service {
    /// Returns the instances as text, one line each.
    pub(crate) fn summary(&self) -> Vec<String> {
        let lines = self.guests.by_name.iter().map(|(name, running)| {
            let devices = running.interfaces.iter().map(|(port, eni, device)| {
                let addresses: Vec<String> =
                    device.addresses.iter().map(|(address, _)| address.to_string()).collect();
                let socket = self.devices.get(port).and_then(Port::socket);
                let mac = mac(self, *eni);
                let socket = socket.map_or_else(String::new, |at| {
                    format!(" at {}, hardware address {mac}", at.display())
                });
                format!("{} {}{socket}", device.name, addresses.join(" "))
            });
            let devices: Vec<String> = devices.collect();
            let (kind, devices) = (running.profile.instance.name, devices.join(", "));
            match &running.namespace {
                Some(namespace) => {
                    format!("{name}: {kind}, namespace {}, {devices}", namespace.name())
                }
                None => format!("{name}: {kind}, {devices}"),
            }
        });
        lines.collect()
    }
}

fn mac(service: &Service, eni: EniId) -> String {
    let mac = service.world.enis.get(&eni).map(|eni| eni.mac).unwrap_or_default();
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
