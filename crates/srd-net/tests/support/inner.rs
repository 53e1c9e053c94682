//! Calls that a back end of a test forwards to an inner back end.

/// Implements all of [`srd_net::PacketIo`] except `send` and `receive`, by calls to the field
/// `inner`.
macro_rules! inner_io {
    () => {
        fn clock(&self) -> &srd_net::Clock {
            self.inner.clock()
        }

        fn local_address(&self) -> std::net::SocketAddr {
            self.inner.local_address()
        }

        fn paths(&self) -> u16 {
            self.inner.paths()
        }

        fn batch_segments_max(&self) -> usize {
            self.inner.batch_segments_max()
        }

        fn take_notice(&mut self) -> Option<srd_net::Notice> {
            self.inner.take_notice()
        }

        fn stats(&self) -> srd_net::IoStats {
            self.inner.stats()
        }

        fn waker(&mut self) -> std::io::Result<std::sync::Arc<srd_net::IoWaker>> {
            self.inner.waker()
        }
    };
}
