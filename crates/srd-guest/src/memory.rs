//! A program of this process in the place of a device, so that what the card takes for a packet can
//! be measured without what a device takes.

/// An instance whose packets are in this process's memory. Frames are an offload header and a
/// packet.
pub trait MemoryGuest: Send {
    /// The next frame that it sends; `None`: there is none now.
    fn send(&mut self) -> Option<Vec<u8>>;
    /// Takes a frame.
    fn receive(&mut self, frame: Vec<u8>);
}
