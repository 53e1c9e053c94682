//! Waits until the interfaces of a new fabric pass packets.
//!
//! An interface that is set up gets its carrier, and then its queue, from a work queue of the
//! kernel (linkwatch). Until the work queue has run, which takes up to a second while many
//! interfaces change, the interface discards each packet without an error. The step of the work
//! queue that gives the interface its queue also sets the operational state.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::programs::command;

/// Time limit for all interfaces of a fabric.
const READY_MAX: Duration = Duration::from_secs(30);
/// Time between two checks of the interfaces of a namespace.
const PAUSE: Duration = Duration::from_millis(5);

/// An interface in the output of `ip -j link show`.
#[derive(Deserialize)]
struct Interface {
    ifname: String,
    flags: Vec<String>,
    operstate: String,
}

/// Returns when every interface of these namespaces that is set up is operational.
///
/// # Errors
/// An error with the interface's name, if an interface is not operational after 30 seconds; an
/// error of `ip`, if the interfaces cannot be listed.
pub(super) fn wait<'a>(namespaces: impl Iterator<Item = &'a str>) -> Result<()> {
    let deadline = Instant::now() + READY_MAX;
    for namespace in namespaces {
        while let Some(interface) = first_down(&command::links_json(namespace)?)? {
            if Instant::now() >= deadline {
                bail!("{interface} in {namespace} has no carrier after {READY_MAX:?}");
            }
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Returns the name of the first interface that is set up and not operational.
fn first_down(json: &str) -> Result<Option<String>> {
    let interfaces: Vec<Interface> =
        serde_json::from_str(json).context("output of ip -j link show")?;
    // The loopback interface has no operational state, and a new veth lacks one at first.
    let is_down = |of: &Interface| {
        let has = |wanted: &str| of.flags.iter().any(|flag| flag == wanted);
        has("UP") && !has("LOOPBACK") && of.operstate != "UP"
    };
    Ok(interfaces.into_iter().find(is_down).map(|of| of.ifname))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_carrier_is_waited_for_and_one_that_is_set_down_is_not() {
        let of = |flags: &str, state: &str| {
            let lo =
                r#"{"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"operstate":"UNKNOWN"}"#;
            format!(r#"[{lo},{{"ifname":"up0","flags":[{flags}],"operstate":"{state}"}}]"#)
        };
        let down = |json: &str| first_down(json).unwrap();
        assert_eq!(down(&of(r#""UP","NO-CARRIER""#, "LOWERLAYERDOWN")), Some("up0".to_owned()));
        assert_eq!(down(&of(r#""UP","LOWER_UP""#, "DOWN")), Some("up0".to_owned()));
        assert_eq!(down(&of(r#""UP","LOWER_UP""#, "UNKNOWN")), Some("up0".to_owned()));
        assert_eq!(down(&of(r#""UP","LOWER_UP""#, "UP")), None);
        assert_eq!(down(&of(r#""BROADCAST""#, "DOWN")), None);
    }
}
