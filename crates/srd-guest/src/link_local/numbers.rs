//! Numbers that even an observer of many earlier numbers cannot predict: a pseudo-random function
//! of a counter.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use srd_proto::Secret;

#[derive(Debug)]
pub(super) struct Numbers {
    secret: Secret,
    count: u64,
}

impl Numbers {
    pub(super) fn new(secret: Secret) -> Self {
        Self { secret, count: 0 }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.count += 1;
        let mut hasher = SipHasher13::new_with_key(self.secret.bytes());
        hasher.write_u64(self.count);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_once_and_follow_from_their_secret() {
        let mut numbers = Numbers::new(Secret::known(1));
        let first: Vec<u64> = (0..100).map(|_| numbers.next()).collect();
        let mut others = Numbers::new(Secret::known(2));
        assert!(first.iter().all(|number| others.next() != *number));
        let distinct: std::collections::BTreeSet<&u64> = first.iter().collect();
        assert_eq!(distinct.len(), first.len());
    }
}
