//! Limit for the headers of a packet that a guest sends.
//!
//! Source: the ENA Linux driver. Headers are written into the device's memory with the descriptor
//! ("low latency queue"): 96 bytes into an entry of 128, 224 into one of 256.

use core::fmt;

/// Largest number of header bytes that a packet may have. The driver writes the headers into the
/// device's memory together with the packet's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HeaderLimit {
    /// 96 bytes, in queue entries of 128 bytes.
    #[default]
    Normal,
    /// 224 bytes, in queue entries of 256 bytes (`force_large_llq_header`).
    Large,
}

/// Error: the requested limit is neither 96 nor 224 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderLimitError {
    /// Requested limit, in bytes.
    pub bytes: u32,
}

impl fmt::Display for HeaderLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a tx-push-buf-len of {} bytes; give 96 or 224", self.bytes)
    }
}

impl core::error::Error for HeaderLimitError {}

impl HeaderLimit {
    /// Returns the limit of this number of bytes (`tx-push-buf-len` of `ethtool -G`).
    ///
    /// # Errors
    /// [`HeaderLimitError`] if the number is neither 96 nor 224.
    pub fn from_bytes(bytes: u32) -> Result<Self, HeaderLimitError> {
        match bytes {
            96 => Ok(Self::Normal),
            224 => Ok(Self::Large),
            _ => Err(HeaderLimitError { bytes }),
        }
    }

    /// Largest number of bytes of all headers of a packet.
    pub fn bytes(self) -> usize {
        match self {
            Self::Normal => 96,
            Self::Large => 224,
        }
    }

    /// Whether a packet with this number of header bytes is sent; otherwise it is dropped (D5).
    pub fn admits(self, header_bytes: usize) -> bool {
        header_bytes <= self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn longer_headers_are_dropped() {
        let (normal, large) =
            (HeaderLimit::from_bytes(96).unwrap(), HeaderLimit::from_bytes(224).unwrap());
        assert!(normal.admits(96) && !normal.admits(97));
        assert!(large.admits(224) && !large.admits(225));
        let error = HeaderLimit::from_bytes(128).unwrap_err();
        assert_eq!(error.to_string(), "a tx-push-buf-len of 128 bytes; give 96 or 224");
    }
}
