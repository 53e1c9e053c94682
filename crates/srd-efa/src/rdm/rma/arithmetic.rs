//! Atomic operations on single elements.
//!
//! As in libfabric, comparisons of order are defined for real numbers, bitwise operations for
//! integers, and all other operations for every type. Integers wrap. A truth value is one or zero
//! of the element's type.

use crate::layer::request::{AtomicOp, Datatype};

/// Bytes of the largest element.
const ELEMENT_BYTES_MAX: usize = 16;

const TYPES: [Datatype; 14] = [
    Datatype::Int8,
    Datatype::Uint8,
    Datatype::Int16,
    Datatype::Uint16,
    Datatype::Int32,
    Datatype::Uint32,
    Datatype::Int64,
    Datatype::Uint64,
    Datatype::Float,
    Datatype::Double,
    Datatype::FloatComplex,
    Datatype::DoubleComplex,
    Datatype::Int128,
    Datatype::Uint128,
];

const OPS: [AtomicOp; 19] = [
    AtomicOp::Min,
    AtomicOp::Max,
    AtomicOp::Sum,
    AtomicOp::Prod,
    AtomicOp::LogicalOr,
    AtomicOp::LogicalAnd,
    AtomicOp::BitOr,
    AtomicOp::BitAnd,
    AtomicOp::LogicalXor,
    AtomicOp::BitXor,
    AtomicOp::Read,
    AtomicOp::Write,
    AtomicOp::Cswap,
    AtomicOp::CswapNe,
    AtomicOp::CswapLe,
    AtomicOp::CswapLt,
    AtomicOp::CswapGe,
    AtomicOp::CswapGt,
    AtomicOp::Mswap,
];

impl Datatype {
    /// Every type, in the order of the numbers on the wire.
    pub const ALL: [Self; 14] = TYPES;

    /// Returns the bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 => 1,
            Self::Int16 | Self::Uint16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float => 4,
            Self::Int64 | Self::Uint64 | Self::Double | Self::FloatComplex => 8,
            Self::DoubleComplex | Self::Int128 | Self::Uint128 => 16,
        }
    }

    const fn is_complex(self) -> bool {
        matches!(self, Self::FloatComplex | Self::DoubleComplex)
    }

    const fn is_integer(self) -> bool {
        !self.is_complex() && !matches!(self, Self::Float | Self::Double)
    }

    pub(crate) fn number(self) -> u8 {
        TYPES.iter().position(|t| *t == self).and_then(|n| u8::try_from(n).ok()).unwrap_or(0)
    }

    pub(crate) fn of_number(number: u8) -> Option<Self> {
        TYPES.get(usize::from(number)).copied()
    }
}

impl AtomicOp {
    /// Every operation, in the order of the numbers on the wire.
    pub const ALL: [Self; 19] = OPS;

    /// Whether the operation has comparands: it is a conditional or a masked swap. Such an
    /// operation also returns the former value.
    pub const fn compares(self) -> bool {
        matches!(
            self,
            Self::Cswap
                | Self::CswapNe
                | Self::CswapLe
                | Self::CswapLt
                | Self::CswapGe
                | Self::CswapGt
                | Self::Mswap
        )
    }

    /// Whether the operation is defined for elements of a type.
    pub const fn is_defined(self, datatype: Datatype) -> bool {
        match self {
            Self::Min
            | Self::Max
            | Self::CswapLe
            | Self::CswapLt
            | Self::CswapGe
            | Self::CswapGt => !datatype.is_complex(),
            Self::BitOr | Self::BitAnd | Self::BitXor | Self::Mswap => datatype.is_integer(),
            Self::Sum
            | Self::Prod
            | Self::LogicalOr
            | Self::LogicalAnd
            | Self::LogicalXor
            | Self::Read
            | Self::Write
            | Self::Cswap
            | Self::CswapNe => true,
        }
    }

    pub(crate) fn number(self) -> u8 {
        OPS.iter().position(|o| *o == self).and_then(|n| u8::try_from(n).ok()).unwrap_or(0)
    }

    pub(crate) fn of_number(number: u8) -> Option<Self> {
        OPS.get(usize::from(number)).copied()
    }
}

/// Arithmetic for the elements of every type.
trait Number: Copy + PartialEq {
    fn of(bytes: &[u8]) -> Self;
    fn put(self, into: &mut [u8]);
    fn of_truth(truth: bool) -> Self;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    /// Applies a bitwise operation. Returns `self` for a type without bitwise operations.
    fn bits(self, _: AtomicOp, _: Self, _: Self) -> Self {
        self
    }
    /// Whether the number is less than another number. Always false for a type without an order.
    fn less(self, _: Self) -> bool {
        false
    }
}

/// Reads and writes a number in the byte order of this machine.
macro_rules! native_bytes {
    ($t:ty) => {
        fn of(bytes: &[u8]) -> Self {
            let mut b = [0; size_of::<$t>()];
            b.copy_from_slice(bytes);
            Self::from_ne_bytes(b)
        }
        fn put(self, into: &mut [u8]) {
            into.copy_from_slice(&self.to_ne_bytes());
        }
    };
}

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Number for $t {
            native_bytes!($t);
            fn of_truth(truth: bool) -> Self {
                Self::from(truth)
            }
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn bits(self, op: AtomicOp, s: Self, c: Self) -> Self {
                match op {
                    AtomicOp::BitOr => self | s,
                    AtomicOp::BitAnd => self & s,
                    AtomicOp::BitXor => self ^ s,
                    AtomicOp::Mswap => s & c | self & !c,
                    _ => self,
                }
            }
            fn less(self, other: Self) -> bool {
                self < other
            }
        }
    )*};
}

macro_rules! float {
    ($($t:ty),*) => {$(
        impl Number for $t {
            native_bytes!($t);
            fn of_truth(truth: bool) -> Self {
                if truth { 1.0 } else { 0.0 }
            }
            fn sum(self, other: Self) -> Self {
                self + other
            }
            fn product(self, other: Self) -> Self {
                self * other
            }
            fn less(self, other: Self) -> bool {
                self < other
            }
        }
    )*};
}

integer!(i8, u8, i16, u16, i32, u32, i64, u64, i128, u128);
float!(f32, f64);

/// A complex number: real part, imaginary part.
#[derive(Clone, Copy, PartialEq)]
struct Complex<T>(T, T);

macro_rules! complex {
    ($($t:ty),*) => {$(
        impl Number for Complex<$t> {
            fn of(bytes: &[u8]) -> Self {
                let (re, im) = bytes.split_at(size_of::<$t>());
                Self(<$t>::of(re), <$t>::of(im))
            }
            fn put(self, into: &mut [u8]) {
                let (re, im) = into.split_at_mut(size_of::<$t>());
                self.0.put(re);
                self.1.put(im);
            }
            fn of_truth(truth: bool) -> Self {
                Self(<$t>::of_truth(truth), 0.0)
            }
            fn sum(self, other: Self) -> Self {
                Self(self.0 + other.0, self.1 + other.1)
            }
            fn product(self, other: Self) -> Self {
                let (a, b, c, d) = (self.0, self.1, other.0, other.1);
                Self(a * c - b * d, a * d + b * c)
            }
        }
    )*};
}

complex!(f32, f64);

fn compute<T: Number>(op: AtomicOp, d: T, s: T, c: T) -> T {
    let yes = |n: T| n != T::of_truth(false);
    let swap_if = |condition: bool| if condition { s } else { d };
    match op {
        AtomicOp::Min => swap_if(s.less(d)),
        AtomicOp::Max => swap_if(d.less(s)),
        AtomicOp::Sum => d.sum(s),
        AtomicOp::Prod => d.product(s),
        AtomicOp::LogicalOr => T::of_truth(yes(d) || yes(s)),
        AtomicOp::LogicalAnd => T::of_truth(yes(d) && yes(s)),
        AtomicOp::LogicalXor => T::of_truth(yes(d) != yes(s)),
        AtomicOp::Read => d,
        AtomicOp::Write => s,
        AtomicOp::Cswap => swap_if(c == d),
        AtomicOp::CswapNe => swap_if(c != d),
        AtomicOp::CswapLe => swap_if(c.less(d) || c == d),
        AtomicOp::CswapLt => swap_if(c.less(d)),
        AtomicOp::CswapGe => swap_if(d.less(c) || c == d),
        AtomicOp::CswapGt => swap_if(d.less(c)),
        AtomicOp::BitOr | AtomicOp::BitAnd | AtomicOp::BitXor | AtomicOp::Mswap => d.bits(op, s, c),
    }
}

fn each<T: Number>(op: AtomicOp, size: usize, elements: &mut [u8], s: &[u8], c: &[u8]) {
    let zero = [0; ELEMENT_BYTES_MAX];
    let part = |of: &[u8], at: usize| match of.get(at..at + size) {
        Some(bytes) => T::of(bytes),
        None => T::of(&zero[..size]),
    };
    for (n, element) in elements.chunks_exact_mut(size).enumerate() {
        let at = n * size;
        compute(op, T::of(element), part(s, at), part(c, at)).put(element);
    }
}

/// Applies an operation to elements. There are as many operands as elements (none for a read), and
/// as many comparands if the operation compares. The operation must be defined for the type.
pub(crate) fn apply(op: AtomicOp, datatype: Datatype, elements: &mut [u8], s: &[u8], c: &[u8]) {
    let go = match datatype {
        Datatype::Int8 => each::<i8>,
        Datatype::Uint8 => each::<u8>,
        Datatype::Int16 => each::<i16>,
        Datatype::Uint16 => each::<u16>,
        Datatype::Int32 => each::<i32>,
        Datatype::Uint32 => each::<u32>,
        Datatype::Int64 => each::<i64>,
        Datatype::Uint64 => each::<u64>,
        Datatype::Float => each::<f32>,
        Datatype::Double => each::<f64>,
        Datatype::FloatComplex => each::<Complex<f32>>,
        Datatype::DoubleComplex => each::<Complex<f64>>,
        Datatype::Int128 => each::<i128>,
        Datatype::Uint128 => each::<u128>,
    };
    go(op, datatype.bytes(), elements, s, c);
}
