//! Which atomic operations there are, by libfabric's numbers.

use std::ffi::c_int;

use srd_efa::rdm::{AtomicOp, Datatype};

/// How an operation is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// It changes.
    Change,
    /// It changes, and fetches what was there.
    Fetch,
    /// It changes under a condition, and fetches what was there.
    Compare,
}

/// An operation on elements of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// What happens.
    pub op: AtomicOp,
    /// To what.
    pub datatype: Datatype,
    /// Bytes of an element.
    pub size: usize,
}

/// `enum fi_datatype`, with the bytes of an element. The two of `long double`, which differ from
/// machine to machine, are left out.
const DATATYPES: [Option<(Datatype, usize)>; 16] = [
    Some((Datatype::Int8, 1)),
    Some((Datatype::Uint8, 1)),
    Some((Datatype::Int16, 2)),
    Some((Datatype::Uint16, 2)),
    Some((Datatype::Int32, 4)),
    Some((Datatype::Uint32, 4)),
    Some((Datatype::Int64, 8)),
    Some((Datatype::Uint64, 8)),
    Some((Datatype::Float, 4)),
    Some((Datatype::Double, 8)),
    Some((Datatype::FloatComplex, 8)),
    Some((Datatype::DoubleComplex, 16)),
    None,
    None,
    Some((Datatype::Int128, 16)),
    Some((Datatype::Uint128, 16)),
];

/// `enum fi_op`.
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

impl Operation {
    /// From libfabric's numbers; `None` for what makes no sense or is not offered.
    #[must_use]
    pub fn from_numbers(form: Form, op: c_int, datatype: c_int) -> Option<Self> {
        let op = *OPS.get(usize::try_from(op).ok()?)?;
        let (datatype, size) = (*DATATYPES.get(usize::try_from(datatype).ok()?)?)?;
        let fits = form.has(op) && is_defined(op, datatype);
        fits.then_some(Self { op, datatype, size })
    }

    /// Whether it takes operands.
    #[must_use]
    pub fn has_operand(self) -> bool {
        self.op != AtomicOp::Read
    }
}

impl Form {
    fn has(self, op: AtomicOp) -> bool {
        let conditional = matches!(
            op,
            AtomicOp::Cswap
                | AtomicOp::CswapNe
                | AtomicOp::CswapLe
                | AtomicOp::CswapLt
                | AtomicOp::CswapGe
                | AtomicOp::CswapGt
                | AtomicOp::Mswap
        );
        match self {
            Self::Change => !conditional && op != AtomicOp::Read,
            Self::Fetch => !conditional,
            Self::Compare => conditional,
        }
    }
}

/// Bits belong to integers, and complex numbers have no order.
fn is_defined(op: AtomicOp, datatype: Datatype) -> bool {
    let complex = matches!(datatype, Datatype::FloatComplex | Datatype::DoubleComplex);
    let integer = !complex && !matches!(datatype, Datatype::Float | Datatype::Double);
    match op {
        AtomicOp::BitOr | AtomicOp::BitAnd | AtomicOp::BitXor | AtomicOp::Mswap => integer,
        AtomicOp::Min
        | AtomicOp::Max
        | AtomicOp::CswapLe
        | AtomicOp::CswapLt
        | AtomicOp::CswapGe
        | AtomicOp::CswapGt => !complex,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_there(form: Form, op: c_int, datatype: c_int) -> bool {
        Operation::from_numbers(form, op, datatype).is_some()
    }

    #[test]
    fn each_form_has_its_operations() {
        let count = |form| (0..19).filter(|op| is_there(form, *op, 7)).count();
        assert_eq!([count(Form::Change), count(Form::Fetch), count(Form::Compare)], [11, 12, 7]);
        assert!(!is_there(Form::Change, 10, 7), "a read that fetches nothing");
    }

    #[test]
    fn types_have_the_operations_that_make_sense() {
        let count = |datatype| {
            let forms = [Form::Fetch, Form::Compare];
            let all = forms.into_iter().flat_map(|form| (0..19).map(move |op| (form, op)));
            all.filter(|(form, op)| is_there(*form, *op, datatype)).count()
        };
        assert_eq!([count(0), count(15), count(9), count(11), count(12)], [19, 19, 15, 9, 0]);
    }

    #[test]
    fn numbers_beyond_are_refused() {
        for (op, datatype) in [(19, 0), (-1, 0), (0, 16), (0, -1), (c_int::MAX, c_int::MIN)] {
            assert!(!is_there(Form::Fetch, op, datatype));
        }
    }
}
