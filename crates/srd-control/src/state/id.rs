//! Identifiers and addresses of hardware, from a seeded generator.

/// Generator of identifiers. It is no source of secrets: the same seed gives the same identifiers.
#[derive(Clone, Debug)]
pub struct IdGenerator(u64);

impl IdGenerator {
    /// Generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (SplitMix64).
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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

    /// A locally administered MAC address that begins with 02, as EC2's do.
    pub fn mac(&mut self) -> String {
        let bytes = self.next_u64().to_be_bytes();
        let [a, b, c, d, e, ..] = bytes;
        format!("02:{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}")
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
