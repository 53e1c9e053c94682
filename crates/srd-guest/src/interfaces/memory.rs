//! A program of this process in place of a device, to measure the card's cost for a packet without
//! that of a device.

/// An instance whose packets are in this process's memory. A frame is an offload header and a
/// packet.
pub trait MemoryGuest: Send {
    /// Returns the next frame that the instance sends; `None` if there is no frame now.
    fn send(&mut self) -> Option<Vec<u8>>;
    /// Takes a frame that the card delivers to the instance.
    fn receive(&mut self, frame: Vec<u8>);
}
