//! The machine, as the first communicator of the process found it.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{self, Device};
use crate::settings::Settings;
use crate::{Fault, Outcome, log};

/// A device and its properties.
#[derive(Debug)]
pub struct DeviceInfo {
    /// The interface.
    pub device: Device,
    /// Its name, for C.
    pub name: CString,
    /// Its place in `/sys`, for C.
    pub pci_path: Option<CString>,
    /// One port to the network.
    pub guid: u64,
    /// Megabits per second.
    pub rate_mbps: u32,
}

/// The machine and its settings.
#[derive(Debug)]
pub struct Machine {
    /// The environment.
    pub settings: Settings,
    /// The devices, in NCCL's order.
    pub devices: Vec<DeviceInfo>,
}

impl Machine {
    fn look() -> Outcome<Self> {
        let settings = Settings::read(|name| std::env::var(name).ok()).map_err(Fault::usage)?;
        let locals = srd_net::local_addresses()
            .map_err(|error| Fault::system(format!("no addresses: {error}")))?;
        let devices =
            device::choose(&locals, &settings, &device::LocalSystem).map_err(Fault::usage)?;
        let info = |(at, device): (usize, Device)| DeviceInfo {
            name: c_string(device.interface.clone().into_bytes()),
            pci_path: device.pci_path().map(|path| c_string(path.into_os_string().into_vec())),
            guid: device.guid(at),
            rate_mbps: device.rate_mbps(&settings),
            device,
        };
        let devices: Vec<_> = devices.into_iter().enumerate().map(info).collect();
        let encrypted = if settings.is_encrypted() { "encrypted" } else { "not encrypted" };
        for info in &devices {
            let Device { interface, ip } = &info.device;
            log::info(&format!("{interface} at {ip}, {} Mb/s, {encrypted}", info.rate_mbps));
        }
        Ok(Self { settings, devices })
    }
}

/// Names of the system's have no zero inside; one that had is left out.
fn c_string(bytes: Vec<u8>) -> CString {
    CString::new(bytes).unwrap_or_default()
}

/// The machine, as the first `init` found it.
///
/// # Errors
/// The environment does not fit; the next call looks again.
pub fn machine() -> Outcome<Arc<Machine>> {
    static MACHINE: Mutex<Option<Arc<Machine>>> = Mutex::new(None);
    let mut info = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(machine) = &*info {
        return Ok(Arc::clone(machine));
    }
    let machine = Arc::new(Machine::look()?);
    *info = Some(Arc::clone(&machine));
    Ok(machine)
}
