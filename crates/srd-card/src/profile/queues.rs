//! Number of queue pairs of an ENI.
//!
//! Source: EC2 User Guide, *ENA queues*: the default, the range for types with a flexible number,
//! and the vCPUs, each of which serves at most one pair.

use core::fmt;

use crate::profile::catalogue::InstanceType;

/// Error: an ENI of the type cannot have this number of queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuesError {
    /// Number of queue pairs that was requested.
    pub queues: u16,
    /// Largest number of queue pairs that an ENI of the type may have.
    pub most: u16,
}

impl fmt::Display for QueuesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an ENI with {} queue pairs; give a number from 1 to {}", self.queues, self.most)
    }
}

impl core::error::Error for QueuesError {}

/// Returns the number of queue pairs of an ENI of a type: the requested number, or the type's
/// default (P5). The sum over all ENIs may not exceed [`InstanceType::queues_max`], which the
/// caller checks.
///
/// # Errors
/// [`QueuesError`] if the requested number is zero, or too large for the type.
pub fn queues(kind: &InstanceType, asked: Option<u16>) -> Result<u16, QueuesError> {
    let vcpus = u16::try_from(kind.vcpus).unwrap_or(u16::MAX).max(1);
    let Some(queues) = asked else { return Ok(kind.queues_default.min(vcpus)) };
    let most = kind.queues_max_per_eni.unwrap_or(kind.queues_default).min(vcpus);
    if (1..=most).contains(&queues) { Ok(queues) } else { Err(QueuesError { queues, most }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn queues_are_those_of_the_type_and_no_more_than_vcpus() {
        let of = |name, asked| queues(&InstanceType::find(name).unwrap(), asked);
        assert_eq!(of("c5.large", None), Ok(2), "the default is 8, the vCPUs are 2");
        assert_eq!(of("c7i.24xlarge", None), Ok(8));
        assert_eq!(of("m6i.8xlarge", Some(32)), Ok(32));
        let error = of("c7i.24xlarge", Some(9)).unwrap_err().to_string();
        assert_eq!(error, "an ENI with 9 queue pairs; give a number from 1 to 8");
        assert!(of("c7i.24xlarge", Some(0)).is_err());
        for kind in InstanceType::all() {
            let default = queues(&kind, None).unwrap();
            assert_eq!(queues(&kind, Some(default)), Ok(default), "{}", kind.name);
        }
    }
}
