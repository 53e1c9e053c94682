//! Results of the ranks, and the check that all ranks trained the same network.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::cmp::Ordering;
use std::fs;
use std::path::Path;

/// Results of one rank, as the training program writes them to a file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct Rank {
    /// Start of the first counted step, in ns of the monotonic clock.
    pub(super) begin_ns: u64,
    /// Duration of each step, in microseconds.
    us: Vec<f64>,
    /// The loss in each step, averaged over the samples of all ranks.
    losses: Vec<f64>,
    /// Digest of the weights and biases at the end; equal digests mean equal networks.
    digest: String,
    /// Name and version of the software that the rank used.
    by: String,
}

/// Results of all ranks together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TrainingResults {
    /// Duration of each step at the slowest rank, in microseconds.
    pub(super) us: Vec<f64>,
    pub(super) first_loss: f64,
    pub(super) last_loss: f64,
    pub(super) by: String,
}

/// Reads the results of a rank from its result file.
pub(super) fn read(file: &Path) -> Result<Rank> {
    let what = || file.display().to_string();
    let text = fs::read_to_string(file).with_context(what)?;
    serde_json::from_str(&text).with_context(what)
}

/// Combines the results of the ranks. Fails unless every rank made all steps, all ranks computed
/// the same losses and have the same network in the end, and the loss decreased.
pub(super) fn together(ranks: &[Rank], steps: usize) -> Result<TrainingResults> {
    let first = ranks.first().context("no rank wrote what it saw")?;
    for (number, rank) in ranks.iter().enumerate() {
        if rank.us.len() != steps || rank.losses.len() != steps {
            bail!("rank {number} made {} steps in place of {steps}", rank.us.len());
        }
        let pairs = rank.losses.iter().zip(&first.losses);
        let other = pairs.enumerate().find(|(_, (own, other))| own.to_bits() != other.to_bits());
        if let Some((step, (own, other))) = other {
            bail!("step {step}: rank {number} has a loss of {own}, rank 0 of {other}");
        }
        if rank.digest != first.digest {
            bail!("rank {number} has another network than rank 0 in the end");
        }
    }
    let (Some(&first_loss), Some(&last_loss)) = (first.losses.first(), first.losses.last()) else {
        bail!("no step was made");
    };
    // A batch is small, so the losses of single steps vary widely.
    let (early, late) = first.losses.split_at(steps / 2);
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let (early, late) = (mean(early), mean(late));
    if early.partial_cmp(&late) != Some(Ordering::Greater) {
        bail!("the loss was {early} in the first half, {late} in the second: nothing was learnt");
    }
    let slowest = |step| ranks.iter().map(|rank| rank.us[step]).fold(0.0, f64::max);
    let us = (0..steps).map(slowest).collect();
    Ok(TrainingResults { us, first_loss, last_loss, by: first.by.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(us: [f64; 2], losses: [f64; 2]) -> Rank {
        Rank {
            begin_ns: 1,
            us: us.to_vec(),
            losses: losses.to_vec(),
            digest: "d".into(),
            by: "b".into(),
        }
    }

    #[test]
    fn a_step_takes_as_long_as_its_slowest_rank() {
        let ranks = [rank([1.0, 5.0], [2.0, 1.0]), rank([3.0, 4.0], [2.0, 1.0])];
        let seen = together(&ranks, 2).unwrap();
        assert_eq!(seen.us, [3.0, 5.0]);
        assert_eq!((seen.first_loss, seen.last_loss), (2.0, 1.0));
    }

    #[test]
    fn ranks_that_disagree_are_refused() {
        let good = rank([1.0, 5.0], [2.0, 1.0]);
        let refused = |other: Rank, why: &str| {
            let error = together(&[good.clone(), other], 2).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(rank([1.0, 5.0], [2.0, 1.5]), "step 1: rank 1 has a loss of 1.5, rank 0 of 1");
        refused(Rank { digest: "e".into(), ..good.clone() }, "rank 1 has another network");
        refused(Rank { us: vec![1.0], ..good.clone() }, "rank 1 made 1 steps in place of 2");
        let lazy = rank([1.0, 1.0], [2.0, 2.0]);
        let error = together(&[lazy.clone(), lazy], 2).expect_err("nothing learnt").to_string();
        assert!(error.contains("nothing was learnt"), "{error}");
        assert!(
            together(&[], 2).is_err() && together(&[rank([0.0; 2], [f64::NAN; 2])], 2).is_err()
        );
    }
}
