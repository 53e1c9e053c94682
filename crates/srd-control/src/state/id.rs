//! Identifiers from a seeded generator.

use std::collections::BTreeSet;

use ring::digest::{SHA256, digest};

/// Generator of identifiers. A seed determines all identifiers; without the seed, no identifier can
/// be derived from other identifiers.
#[derive(Clone)]
pub struct IdGenerator {
    seed: u64,
    count: u64,
    /// Numbers that identifiers of a restored state contain.
    kept: BTreeSet<u64>,
}

impl std::fmt::Debug for IdGenerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdGenerator").field("count", &self.count).finish_non_exhaustive()
    }
}

impl IdGenerator {
    /// Generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, count: 0, kept: BTreeSet::new() }
    }

    /// Takes care that no identifier is made again that this text contains: text in JSON, in which
    /// quotation marks enclose identifiers.
    pub fn keep(&mut self, text: &str) {
        for id in text.split('"').filter_map(|text| Some(text.rsplit_once('-')?.1)) {
            if id.len() == 17 && id.bytes().all(|b| b.is_ascii_hexdigit()) {
                self.kept.extend(u64::from_str_radix(id, 16));
            }
        }
    }

    /// The next number: the first bytes of a SHA-256 of the seed and a counter.
    pub fn next_u64(&mut self) -> u64 {
        loop {
            let mut input = [0; 16];
            input[..8].copy_from_slice(&self.seed.to_le_bytes());
            input[8..].copy_from_slice(&self.count.to_le_bytes());
            self.count = self.count.wrapping_add(1);
            let hash = digest(&SHA256, &input);
            let bytes = hash.as_ref().iter().take(8);
            let number = bytes.fold(0, |number, byte| number << 8 | u64::from(*byte));
            if !self.kept.contains(&number) {
                return number;
            }
        }
    }

    /// An identifier in EC2's form: the prefix, and 17 hexadecimal digits that begin with 0.
    pub fn id(&mut self, prefix: &str) -> String {
        format!("{prefix}-0{:016x}", self.next_u64())
    }

    /// A UUID, the form of EC2's request identifiers.
    pub fn uuid(&mut self) -> String {
        let (a, b) = (self.next_u64(), self.next_u64());
        let (time, mid, version) = (a >> 32, (a >> 16) & 0xffff, (a & 0x0fff) | 0x4000);
        let (variant, node) = (((b >> 48) & 0x3fff) | 0x8000, b & 0xffff_ffff_ffff);
        format!("{time:08x}-{mid:04x}-{version:04x}-{variant:04x}-{node:012x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_the_form_of_ec2_and_follow_from_the_seed() {
        let id = IdGenerator::new(7).id("vpc");
        assert_eq!(id, IdGenerator::new(7).id("vpc"));
        let digits = id.strip_prefix("vpc-0").unwrap();
        assert_eq!(digits.len(), 16);
        assert!(digits.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()));
        let uuid = IdGenerator::new(1).uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
    }
}
