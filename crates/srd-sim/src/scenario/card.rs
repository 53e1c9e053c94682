//! Parameters of the ENA Express card in a scenario.

use serde::{Deserialize, Serialize};

use super::{set, set_us};

/// Parameters of [`srd_card::Config`] that a scenario may set.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the names and meanings are those of the card's configuration
pub struct CardKnobs {
    pub order_wait_us: Option<f64>,
    pub queue_target_us: Option<f64>,
    pub queue_interval_us: Option<f64>,
    pub queue_bytes_max: Option<usize>,
    pub receive_bytes_max: Option<usize>,
    pub flows_max: Option<u32>,
}

impl CardKnobs {
    /// Returns the configuration of every card.
    pub(super) fn config(&self) -> srd_card::Config {
        let mut config = srd_card::Config::default();
        set_us(&mut config.order_wait, self.order_wait_us);
        set_us(&mut config.queue_target, self.queue_target_us);
        set_us(&mut config.queue_interval, self.queue_interval_us);
        set(&mut config.queue_bytes_max, self.queue_bytes_max);
        set(&mut config.receive_bytes_max, self.receive_bytes_max);
        set(&mut config.flows_max, self.flows_max);
        config
    }
}
