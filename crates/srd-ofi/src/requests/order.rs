//! Orders between operations: those that always hold, and those that an application requests.
//!
//! Messages and atomic operations always keep their order, and it is always listed. Reads and
//! writes keep an order only on request: a later operation then waits for the end of the earlier
//! operations ([`srd_efa::layer::Order`]). So this order is listed only for applications that
//! request it.

use srd_efa::layer::{Family, Order};

use crate::abi::bits::*;

/// Orders that always hold.
pub const ALWAYS: u64 = FI_ORDER_SAS
    | FI_ORDER_ATOMIC_RAR
    | FI_ORDER_ATOMIC_RAW
    | FI_ORDER_ATOMIC_WAR
    | FI_ORDER_ATOMIC_WAW;

/// Orders that are kept on request. An order of reads or writes after messages (`FI_ORDER_RAS`,
/// `FI_ORDER_WAS`) is not offered: a long message ends only when its receiver posts a receive, and
/// the receiver may wait for the operation behind the message before it posts one.
pub const ON_DEMAND: u64 = FI_ORDER_RAR
    | FI_ORDER_RAW
    | FI_ORDER_WAR
    | FI_ORDER_WAW
    | FI_ORDER_SAR
    | FI_ORDER_SAW
    | FI_ORDER_RMA_RAR
    | FI_ORDER_RMA_RAW
    | FI_ORDER_RMA_WAR
    | FI_ORDER_RMA_WAW;

/// Pairs of families (later, earlier) that each order of libfabric covers. An atomic operation is
/// both a read and a write.
const PAIRS: [(u64, Family, Family); 16] = {
    use Family::{Atomic, Message, Read, Write};
    [
        (FI_ORDER_RAR | FI_ORDER_RMA_RAR, Read, Read),
        (FI_ORDER_RAR, Read, Atomic),
        (FI_ORDER_RAR, Atomic, Read),
        (FI_ORDER_RAW | FI_ORDER_RMA_RAW, Read, Write),
        (FI_ORDER_RAW, Read, Atomic),
        (FI_ORDER_RAW, Atomic, Write),
        (FI_ORDER_WAR | FI_ORDER_RMA_WAR, Write, Read),
        (FI_ORDER_WAR, Write, Atomic),
        (FI_ORDER_WAR, Atomic, Read),
        (FI_ORDER_WAW | FI_ORDER_RMA_WAW, Write, Write),
        (FI_ORDER_WAW, Write, Atomic),
        (FI_ORDER_WAW, Atomic, Write),
        (FI_ORDER_SAR, Message, Read),
        (FI_ORDER_SAR, Message, Atomic),
        (FI_ORDER_SAW, Message, Write),
        (FI_ORDER_SAW, Message, Atomic),
    ]
};

/// Returns the Messaging Layer's order for these bits of `msg_order`.
#[must_use]
pub fn of_bits(bits: u64) -> Order {
    let asked = PAIRS.iter().filter(|(order, ..)| bits & order != 0);
    asked.fold(Order::default(), |order, (_, later, earlier)| order.keeping(*later, *earlier))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_always_kept_costs_nothing_and_each_of_the_others_keeps_something() {
        assert_eq!(of_bits(ALWAYS), Order::default());
        for bit in (0..64).map(|n| 1 << n).filter(|bit| ON_DEMAND & bit != 0) {
            assert_ne!(of_bits(bit), Order::default(), "{bit:#x}");
        }
    }

    #[test]
    fn an_order_of_reads_and_writes_includes_atomic_operations_unless_it_says_rma() {
        let read_after_write = of_bits(FI_ORDER_RMA_RAW);
        let only = Order::default().keeping(Family::Read, Family::Write);
        assert_eq!(read_after_write, only);
        let both = only.keeping(Family::Read, Family::Atomic);
        assert_eq!(of_bits(FI_ORDER_RAW), both.keeping(Family::Atomic, Family::Write));
    }
}
