//! Devices of instances' interfaces.
//!
//! | module | content |
//! |---|---|
//! | `port`, `kernel`, `memory` | the device of an interface: TUN, vhost-user, or memory |
//! | `adapter`, `devices` | queues, steering and interrupts of a device, and changes of them |
//! | `processors` | threads that give packets to instances |
//! | `gone`, `remake` | deleted devices, and their repair |
//! | `kernel_counts` | the kernel's counters of a device |

pub(crate) mod adapter;
pub(crate) mod devices;
pub(crate) mod gone;
pub(crate) mod kernel;
pub(crate) mod kernel_counts;
pub(crate) mod memory;
pub(crate) mod port;
#[cfg(test)]
mod port_example;
pub(crate) mod processors;
pub(crate) mod remake;
