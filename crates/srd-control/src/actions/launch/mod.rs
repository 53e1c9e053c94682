//! Launches of instances: types, templates, and the states after a launch.
//!
//! | module | content |
//! |---|---|
//! | `kind` | instance types and their limits |
//! | `stored` | templates and versions in the state |
//! | `template` | actions on launch templates |
//! | `version` | actions on versions of launch templates |
//! | `data` | parameters of a launch: those of a template, of a request, and of an instance |
//! | `lives` | states of instances: start, stop, reboot, terminate |

pub(super) mod data;
pub(super) mod kind;
pub(super) mod lives;
pub(super) mod stored;
pub(super) mod template;
pub(super) mod version;
