//! A listener, which accepts connections.

use std::sync::Arc;

use crate::port::Port;
use crate::receiver::Receiver;
use crate::sink::Backlog;
use crate::wire::Target;
use crate::{Fault, Outcome};

/// A listener at an endpoint.
#[derive(Debug)]
pub struct Listener {
    port: Arc<Port>,
    target: Target,
}

impl Listener {
    /// Opens a listener at an endpoint.
    ///
    /// # Errors
    /// A [`Fault`], if the endpoint has ended.
    pub fn open(port: Arc<Port>) -> Outcome<Self> {
        let number = port.call(|submitter| {
            let number = submitter.sink.number()?;
            submitter.sink.listeners.insert(number, Backlog::default());
            Some(number)
        })?;
        let listener = number.ok_or_else(|| Fault::internal("all numbers were used"))?;
        let target = Target { listener, ..port.target() };
        Ok(Self { port, target })
    }

    /// Returns the address of the listener, to which senders connect.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Accepts the next connection; `None` if no connection is waiting.
    ///
    /// # Errors
    /// A [`Fault`], if the endpoint has ended.
    pub fn accept(&self) -> Outcome<Option<Receiver>> {
        self.port.drive();
        let number = self.target.listener;
        let next = self.port.call(|submitter| {
            let backlog = submitter.sink.listeners.get_mut(&number)?;
            backlog.0.pop_front()
        })?;
        Ok(next.map(|(flow, peer)| Receiver::new(Arc::clone(&self.port), flow, peer)))
    }

    /// Closes the listener, and its connections that were not accepted.
    pub fn close(&self) {
        let number = self.target.listener;
        // An endpoint that has ended has no listeners.
        let _ = self.port.call(|submitter| {
            let backlog = submitter.sink.listeners.remove(&number).unwrap_or_default();
            for (flow, peer) in backlog.0 {
                submitter.sink.flows.remove(&flow.id());
                submitter.close_end(&flow, peer);
            }
        });
    }
}
