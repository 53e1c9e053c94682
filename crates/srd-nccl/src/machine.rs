//! The machine's settings and devices, as the process's first communicator found them.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Mutex, PoisonError};

use srd_host::OfProcess;

use crate::device::{self, Device};
use crate::settings::Settings;
use crate::{Fault, Outcome, log};

/// A device and its properties.
#[derive(Debug)]
pub struct DeviceInfo {
    /// The network interface.
    pub device: Device,
    /// Name of the interface, for C.
    pub name: CString,
    /// Path of the interface's PCI device in `/sys`, for C; `None` for an interface without PCI
    /// device.
    pub pci_path: Option<CString>,
    /// Number that identifies the network port.
    pub guid: u64,
    /// Link rate in megabits per second.
    pub rate_mbps: u32,
}

/// Settings and devices of this machine.
#[derive(Debug)]
pub struct Machine {
    /// Settings from the environment.
    pub settings: Settings,
    /// Devices in NCCL's order.
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

/// Returns a C string. Names from the system contain no zero; a name with a zero becomes empty.
fn c_string(bytes: Vec<u8>) -> CString {
    CString::new(bytes).unwrap_or_default()
}

/// Returns settings and devices of the machine, as the first successful call found them.
///
/// # Errors
/// A [`Fault`], if the environment is not suitable; the next call tries again.
pub fn machine() -> Outcome<Arc<Machine>> {
    static MACHINE: OfProcess<Mutex<Option<Arc<Machine>>>> = OfProcess::new();
    let mut info = MACHINE.get(|_| Mutex::new(None)).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(machine) = &*info {
        return Ok(Arc::clone(machine));
    }
    let machine = Arc::new(Machine::look()?);
    *info = Some(Arc::clone(&machine));
    Ok(machine)
}
