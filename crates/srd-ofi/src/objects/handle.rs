//! Calls of an endpoint's host ([`srd_host::Host`]), for the endpoint and for the objects of its
//! domain.

use srd_efa::layer::Shared;
use srd_host::{Handle, RegionNumber, Span};

use crate::abi::errno::FI_ENOSPC;
use crate::abi::fid::FI_ADDR_NOTAVAIL;
use crate::objects::hosts::Driven;
use crate::results::sink::EndpointSink;
use crate::{Errno, Outcome};

/// Handle by which the application's calls reach the [`srd_host`] of an endpoint: the object with
/// its sockets, its transport and its progress thread.
pub type HostHandle = Handle<EndpointSink>;

#[allow(unsafe_code, reason = "every call of a host is unsafe")]
impl Driven for HostHandle {
    fn id(&self) -> usize {
        Handle::id(self)
    }

    fn poll(&self) {
        Handle::poll(self);
    }

    fn hand_over(&self) {
        Handle::hand_over(self);
    }

    unsafe fn share(&self, number: RegionNumber, spans: Box<[Span]>, shared: Shared) -> Outcome {
        // SAFETY: the caller meets the requirements of this function.
        let called = unsafe {
            self.call(|call| {
                call.memory.add(number, spans);
                call.layer.share(shared)
            })
        };
        match called {
            Ok(Err(_)) => Err(Errno(FI_ENOSPC)),
            // A closed endpoint does not need the registration.
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    fn unshare(&self, key: u64, number: RegionNumber) {
        // SAFETY: names no memory.
        let _ = unsafe {
            self.call(|call| {
                call.layer.unshare(key);
                call.memory.remove(number);
            })
        };
    }

    fn forget(&self, number: u64) {
        // SAFETY: names no memory.
        let _ = unsafe {
            self.call(|mut call| {
                let (layer, mut world, sink) = call.parts();
                let at = usize::try_from(number).ok();
                let peer = at.and_then(|at| sink.peers.get_mut(at)).and_then(Option::take);
                if let Some(peer) = peer {
                    sink.numbers[peer.0 as usize] = FI_ADDR_NOTAVAIL;
                    layer.remove_peer(&mut world, peer);
                }
            })
        };
    }
}
