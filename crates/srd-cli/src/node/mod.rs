//! Machines for `srd control up`: a card for each region with running instances.
//!
//! ```text
//!  srd control up --pipe--> srd control-keeper --pipe--> srd card up
//!    |                        restarts the card,            namespaces srd-i-ID
//!    |                        and clears the directory
//!    +--> directory: vpc.toml, card.sock, user data and its output
//! ```
//!
//! A pipe ends with the process that writes it, also if that process is killed. So the keeper
//! outlives the server only until everything is given back, and the card ends in order.
//!
//! | file | content |
//! |---|---|
//! | `directory` | directories of cards, and directories that killed keepers have left |
//! | [`keeper`] | the process that keeps a card running |
//! | `plane` | applying texts to the card |
//! | `program` | writing and starting programs |
//! | `script` | user data |

mod directory;
pub(crate) mod keeper;
mod plane;
mod program;
mod script;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use srd_control::plane::{CardMachines, DataPlane};

use crate::signals::AtEnd;
use keeper::{KEEPER_END_MAX, Keeper};

/// The keepers of this process, for its end.
type Keepers = Arc<Mutex<Vec<Arc<Keeper>>>>;

/// Returns machines that are namespaces behind a card. `user_data`: whether user data is run.
/// `at_end` gives everything back. `again`: the instances may be those of a killed server, so the
/// call waits until its machines have ended.
///
/// # Errors
/// Another user can change the directory of cards, or machines of a killed server do not end.
pub(crate) fn machines(user_data: bool, again: bool, at_end: &AtEnd) -> Result<CardMachines> {
    directory::sweep()?;
    if again {
        directory::wait_for_keepers(Instant::now() + KEEPER_END_MAX)?;
    }
    let keepers = Keepers::default();
    let all = Arc::clone(&keepers);
    at_end.add(move || {
        let all = std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner));
        all.iter().for_each(|keeper| keeper.end());
        let until = Instant::now() + KEEPER_END_MAX;
        all.iter().for_each(|keeper| keeper.wait(until));
        directory::remove_base();
    });
    let open = move |account: &str, region: &str| -> Result<Box<dyn DataPlane>, String> {
        let plane = plane::CardPlane::open(account, region);
        let plane = plane.map_err(|error| format!("{error:#}"))?;
        let mut all = keepers.lock().unwrap_or_else(PoisonError::into_inner);
        // A keeper that a signal has ended starts again.
        all.retain(|keeper| !keeper.is_over());
        all.push(plane.keeper());
        Ok(Box::new(plane))
    };
    let report = |what: &str| tracing::warn!("{what}");
    Ok(CardMachines::new(Box::new(open), Box::new(report), user_data))
}
