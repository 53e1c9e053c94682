//! Reading a pcapng file in a test: its blocks, and the numbers in them.

/// Returns the number of 32 bits at an offset.
pub(crate) fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Returns the type and the body of each block, and checks their lengths.
pub(crate) fn blocks(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let length = number(bytes, at + 4) as usize;
        assert_eq!(length % 4, 0);
        assert_eq!(number(bytes, at + length - 4) as usize, length, "both lengths agree");
        found.push((number(bytes, at), bytes[at + 8..at + length - 4].to_vec()));
        at += length;
    }
    found
}
