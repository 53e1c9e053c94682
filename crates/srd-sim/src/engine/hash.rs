//! Equal-cost multipath: the hash of a packet's outer 5-tuple, and a switch's choice of a link from
//! this hash.

/// Mixes the bits of a word with the SplitMix64 finaliser (Stafford's variant 13).
#[inline]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the hash of a packet's outer 5-tuple. It is computed once, when the packet enters the
/// network.
#[allow(clippy::cast_possible_truncation)] // half of a mixed word is as good as the whole
#[inline]
pub const fn five_tuple(src: u32, dst: u32, src_port: u16, dst_port: u16, protocol: u8) -> u32 {
    let hosts = (src as u64) << 32 | dst as u64;
    let ports = (src_port as u64) << 32 | (dst_port as u64) << 16 | protocol as u64;
    mix(mix(hosts.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ ports) as u32
}

/// Chooses one of `ways` equal links for a packet, from the packet's hash and the switch's salt.
/// Returns a number below `ways`.
#[allow(clippy::cast_possible_truncation)] // the product's high half is below `ways`
#[inline]
pub const fn choose(hash: u32, salt: u32, ways: u32) -> u32 {
    let mixed = mix((salt as u64) << 32 | hash as u64);
    (((mixed >> 32) * ways as u64) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropies_spread_evenly_and_independently_over_two_switches() {
        let ways = 8;
        let mut joint = [[0_u32; 8]; 8];
        for entropy in 0..6400_u16 {
            let hash = five_tuple(3, 77, 49152 + entropy, 7471, 17);
            let first = choose(hash, 0x1234_5678, ways) as usize;
            let second = choose(hash, 0x1234_5679, ways) as usize;
            joint[first][second] += 1;
        }
        for count in joint.into_iter().flatten() {
            assert!((60..=145).contains(&count), "100 expected, {count} found");
        }
    }

    #[test]
    fn every_field_of_the_tuple_counts() {
        let base = five_tuple(1, 2, 3, 4, 17);
        assert_ne!(base, five_tuple(2, 1, 3, 4, 17));
        assert_ne!(base, five_tuple(1, 2, 4, 3, 17));
        assert_ne!(base, five_tuple(1, 2, 3, 4, 6));
        assert_ne!(base, five_tuple(1, 2, 3, 5, 17));
    }
}
