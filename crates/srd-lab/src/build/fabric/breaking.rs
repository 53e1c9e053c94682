//! Setting faults in the fabric, and removing them: see [`crate::faults::fault`].

use super::Fabric;
use crate::build::config::{RATE_MBPS, check};
use crate::build::id::LinkId;
use crate::faults::fault::{Change, Faults, Lost, changes, counted};
use crate::{build::plan, programs::command};
use anyhow::{Context, Result};

impl Fabric {
    /// Makes a spine silently drop all packets that it should forward.
    pub fn fail_spine(&self, spine: u16) -> Result<()> {
        self.config().check_spine(spine)?;
        self.change_faults(|faults| {
            faults.failed_spines.insert(spine);
        })
    }

    /// Removes the faults of [`Fabric::fail_spine`] and [`Fabric::loss`] from a spine; its links
    /// keep their faults.
    pub fn heal_spine(&self, spine: u16) -> Result<()> {
        self.config().check_spine(spine)?;
        self.change_faults(|faults| {
            faults.failed_spines.remove(&spine);
            faults.loss_permille.remove(&spine);
            faults.loss_spares_bytes.remove(&spine);
        })
    }

    /// Makes one link silently drop all packets in both directions.
    pub fn fail_link(&self, link: LinkId) -> Result<()> {
        self.config().check_link(link)?;
        self.change_faults(|faults| {
            faults.failed_links.insert(link);
        })
    }

    /// Changes the rate of one link in both directions.
    pub fn slow_link(&self, link: LinkId, rate_mbps: u32) -> Result<()> {
        self.config().check_link(link)?;
        check("rate_mbps", rate_mbps.into(), RATE_MBPS)?;
        self.change_faults(|faults| {
            faults.slowed_links.insert(link, rate_mbps);
        })
    }

    /// Removes the faults of [`Fabric::fail_link`] and [`Fabric::slow_link`] from a link.
    pub fn heal_link(&self, link: LinkId) -> Result<()> {
        self.config().check_link(link)?;
        self.change_faults(|faults| {
            faults.failed_links.remove(&link);
            faults.slowed_links.remove(&link);
        })
    }

    /// Makes a spine randomly drop `permille` of a thousand packets that it forwards; zero ends the
    /// loss. Needs `nft`.
    pub fn loss(&self, spine: u16, permille: u16) -> Result<()> {
        self.loss_above(spine, permille, 0)
    }

    /// Works like [`Fabric::loss`], but packets of up to `spares_bytes` bytes, including the IP
    /// header, are never dropped. So the loss can be restricted to one of several encrypted flows,
    /// if their packets differ in size. Hosts must not send super-packets
    /// ([`offloads`](crate::FabricConfig::offloads)), because these are longer than the packets in
    /// them.
    pub fn loss_above(&self, spine: u16, permille: u16, spares_bytes: u32) -> Result<()> {
        self.config().check_spine(spine)?;
        check("loss permille", permille.into(), 0..=1000)?;
        command::program("nft").context("packet loss needs nftables")?;
        self.change_faults(|faults| {
            faults.loss_permille.remove(&spine);
            faults.loss_spares_bytes.remove(&spine);
            if permille > 0 {
                faults.loss_permille.insert(spine, permille);
            }
            if permille > 0 && spares_bytes > 0 {
                faults.loss_spares_bytes.insert(spine, spares_bytes);
            }
        })
    }

    /// Returns the packets that the spines have randomly dropped since the loss was set.
    pub fn lost(&self) -> Result<Lost> {
        let mut all = Lost::default();
        for spine in self.state()?.faults.loss_permille.into_keys() {
            let space = plan::spine_namespace(self.name(), spine);
            let one = counted(&command::nft_list_in(&space, "chain inet srdlab loss")?)?;
            (all.packets, all.bytes) = (all.packets + one.packets, all.bytes + one.bytes);
        }
        Ok(all)
    }

    /// Removes every fault.
    pub fn heal_all(&self) -> Result<()> {
        self.change_faults(|faults| *faults = Faults::default())
    }

    /// Returns the current faults.
    pub fn faults(&self) -> Result<Faults> {
        Ok(self.state()?.faults)
    }

    fn change_faults(&self, change: impl FnOnce(&mut Faults)) -> Result<()> {
        self.update(|state| {
            let mut new = state.faults.clone();
            change(&mut new);
            let made = changes(&state.config, &state.faults, &new).iter().try_for_each(make);
            if made.is_err() {
                // A part of the change may be in force. It is undone, because the state does not
                // contain it and nothing else would. Commands for the other part fail.
                for undoing in changes(&state.config, &new, &state.faults) {
                    let _ = make(&undoing);
                }
                return made;
            }
            state.faults = new;
            Ok(())
        })
    }
}

fn make(change: &Change) -> Result<()> {
    command::ip_batch_in(&change.namespace, &change.ip)?;
    command::ip_v6_batch_in(&change.namespace, &change.ip_v6)?;
    command::tc_batch_in(&change.namespace, &change.tc)?;
    if !change.nft.is_empty() {
        command::nft_in(&change.namespace, &change.nft)?;
    }
    Ok(())
}
