//! Whether AF_XDP suits an address: the interface's driver supports zero copy, and this process has
//! the rights.
//!
//! Since Linux 6.3 the kernel reports the XDP features of a driver, through the family `netdev` of
//! generic netlink.
//!
//! ```text
//! question: | nlmsghdr 16 | command, version, 0, 0 | attributes: length 2, kind 2, value |
//! ```

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NlaBuffer, NlasIterator};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use super::netlink::Netlink;
use super::options::{Why, XdpError};
use crate::sys::bpf;
use crate::sys::interface;
use crate::sys::shared::xdp::XdpSocket;

/// The generic netlink family that returns the numbers of the other families.
const CONTROL: u16 = 0x10;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
const NETDEV_DEV_GET: u8 = 1;
const NETDEV_DEV_IFINDEX: u16 = 1;
const NETDEV_DEV_XDP_FEATURES: u16 = 3;
/// Feature bit of zero copy (`NETDEV_XDP_ACT_XSK_ZEROCOPY`).
const ZERO_COPY: u64 = 1 << 3;
/// Bytes of the headers of netlink and generic netlink.
const HEADERS_BYTES: usize = 16 + 4;

/// Checks whether `io = "auto"` uses AF_XDP at this address: the driver supports zero copy, and
/// this process may open the sockets.
///
/// # Errors
/// [`Why`]: the reason why AF_XDP does not suit the address.
pub fn suits(address: IpAddr) -> Result<(), Why> {
    let interface = interface_of(address).map_err(Why::Impossible)?;
    let index = interface::index_of(&interface).map_err(Why::Unknown)?;
    check_kind(&interface, index).map_err(Why::Impossible)?;
    let features = features(index).map_err(Why::Unknown)?;
    if features & ZERO_COPY == 0 {
        return Err(Why::NoZeroCopy { interface });
    }
    let opened = XdpSocket::may_open();
    let step = "opening an AF_XDP socket";
    let refused = |error| XdpError::socket(crate::sys::shared::xdp::Refused { step, error });
    opened.map_err(|error| Why::Impossible(refused(error)))?;
    bpf::may_make_maps().map_err(|refused| {
        Why::Impossible(XdpError::bpf(refused.step, refused.error, String::new()))
    })
}

/// Returns the name of the network interface with this address.
pub(super) fn interface_of(address: IpAddr) -> Result<String, XdpError> {
    let addresses = interface::addresses().map_err(XdpError::Udp)?;
    let found = addresses.into_iter().find(|a| a.ip == address && a.up && !a.loopback);
    found.map(|a| a.interface).ok_or(XdpError::NoInterface(address))
}

/// Returns an error if AF_XDP cannot work on this kind of interface.
pub(super) fn check_kind(interface: &str, index: u32) -> Result<(), XdpError> {
    let objection = Netlink::open().and_then(|mut netlink| netlink.objection(index));
    match objection.map_err(XdpError::Udp)? {
        Some(why) => Err(XdpError::Unsuitable { interface: interface.to_string(), why }),
        None => Ok(()),
    }
}

/// Returns the XDP features of an interface's driver, as bits.
fn features(index: u32) -> io::Result<u64> {
    let family = ask(CONTROL, CONTROL_GET_FAMILY, CONTROL_FAMILY_NAME, b"netdev\0")?;
    let family = attribute(&family, CONTROL_FAMILY_ID)?;
    let family = u16::from_ne_bytes(family.as_slice().try_into().map_err(io::Error::other)?);
    let device = ask(family, NETDEV_DEV_GET, NETDEV_DEV_IFINDEX, &index.to_ne_bytes())?;
    let features = attribute(&device, NETDEV_DEV_XDP_FEATURES)?;
    Ok(u64::from_ne_bytes(features.as_slice().try_into().map_err(io::Error::other)?))
}

/// Sends a request with one attribute to a family. Returns the answer's attributes.
fn ask(family: u16, command: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
    let question = question(family, command, kind, value);
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // The answer has arrived when the call that sends the request returns.
    socket.set_non_blocking(true)?;
    socket.send(&question, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let short = || io::Error::other("the kernel's answer is too short");
    let kind = u16::from_ne_bytes(*answer[4..].first_chunk().ok_or_else(short)?);
    if kind == ERROR {
        let code = i32::from_ne_bytes(*answer[16..].first_chunk().ok_or_else(short)?);
        return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
    }
    answer.get(HEADERS_BYTES..).map(<[u8]>::to_vec).ok_or_else(short)
}

/// Type of a netlink message that reports an error number (`NLMSG_ERROR`).
const ERROR: u16 = 2;

fn question(family: u16, command: u8, kind: u16, value: &[u8]) -> Vec<u8> {
    /// Flag of a netlink message that is a request (`NLM_F_REQUEST`).
    const REQUEST: u16 = 1;
    let attribute_bytes = 4 + value.len();
    let length = HEADERS_BYTES + attribute_bytes.next_multiple_of(4);
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(0).to_ne_bytes());
    bytes.extend_from_slice(&family.to_ne_bytes());
    bytes.extend_from_slice(&REQUEST.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]); // sequence and port
    bytes.extend_from_slice(&[command, 1, 0, 0]);
    bytes.extend_from_slice(&u16::try_from(attribute_bytes).unwrap_or(0).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(length, 0);
    bytes
}

/// Returns the value of the attribute of this kind in a list of netlink attributes.
fn attribute(attributes: &[u8], kind: u16) -> io::Result<Vec<u8>> {
    for attribute in NlasIterator::new(attributes) {
        let attribute: NlaBuffer<&[u8]> = attribute.map_err(io::Error::other)?;
        if attribute.kind() == kind {
            return Ok(attribute.value().to_vec());
        }
    }
    Err(io::Error::other("the kernel's answer lacks what was asked for"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_strange_addresses_do_not_suit() {
        for ip in ["127.0.0.1", "::1", "192.0.2.77", "0.0.0.0"] {
            let why = suits(ip.parse().unwrap()).unwrap_err();
            assert!(matches!(why, Why::Impossible(XdpError::NoInterface(_))), "{why}");
        }
    }

    #[test]
    fn the_kernel_says_what_loopback_can_do() {
        match features(1) {
            Ok(features) => assert_eq!(features & ZERO_COPY, 0),
            Err(error) => assert!(error.raw_os_error() == Some(libc::ENOENT), "{error}"),
        }
        assert!(features(0x7fff_fff0).is_err());
    }
}
