//! Supported atomic operations, by libfabric's numbers.

use std::ffi::c_int;

use srd_efa::layer::{AtomicOp, Datatype};

/// Form of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The operation changes the elements.
    Change,
    /// The operation changes the elements, and fetches their former values.
    Fetch,
    /// The operation changes the elements under a condition, and fetches their former values.
    Compare,
}

/// An operation on elements of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Operation on each element.
    pub op: AtomicOp,
    /// Type of the elements.
    pub datatype: Datatype,
    /// Bytes of an element.
    pub size: usize,
}

/// Element types in the order of `enum fi_datatype`. The two types of `long double` are `None`,
/// because their layout differs between machines.
const DATATYPES: [Option<Datatype>; 16] = [
    Some(Datatype::Int8),
    Some(Datatype::Uint8),
    Some(Datatype::Int16),
    Some(Datatype::Uint16),
    Some(Datatype::Int32),
    Some(Datatype::Uint32),
    Some(Datatype::Int64),
    Some(Datatype::Uint64),
    Some(Datatype::Float),
    Some(Datatype::Double),
    Some(Datatype::FloatComplex),
    Some(Datatype::DoubleComplex),
    None,
    None,
    Some(Datatype::Int128),
    Some(Datatype::Uint128),
];

impl Operation {
    /// Converts libfabric's numbers; `None` for a combination that is invalid or not supported.
    #[must_use]
    pub fn from_numbers(form: Form, op: c_int, datatype: c_int) -> Option<Self> {
        // The Messaging Layer numbers operations as `enum fi_op` does.
        let op = *AtomicOp::ALL.get(usize::try_from(op).ok()?)?;
        let datatype = (*DATATYPES.get(usize::try_from(datatype).ok()?)?)?;
        let fits = form.has(op) && op.is_defined(datatype);
        fits.then_some(Self { op, datatype, size: datatype.bytes() })
    }

    /// Whether the operation takes operands.
    #[must_use]
    pub fn has_operand(self) -> bool {
        self.op != AtomicOp::Read
    }
}

impl Form {
    fn has(self, op: AtomicOp) -> bool {
        match self {
            Self::Change => !op.compares() && op != AtomicOp::Read,
            Self::Fetch => !op.compares(),
            Self::Compare => op.compares(),
        }
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
    fn operations_have_the_numbers_of_libfabric() {
        let op = |form, op| Operation::from_numbers(form, op, 7).map(|operation| operation.op);
        assert_eq!(op(Form::Change, 2), Some(AtomicOp::Sum));
        assert_eq!(op(Form::Change, 9), Some(AtomicOp::BitXor));
        assert_eq!(op(Form::Fetch, 10), Some(AtomicOp::Read));
        assert_eq!(op(Form::Compare, 12), Some(AtomicOp::Cswap));
        assert_eq!(op(Form::Compare, 14), Some(AtomicOp::CswapLe));
        assert_eq!(op(Form::Compare, 18), Some(AtomicOp::Mswap));
    }

    #[test]
    fn numbers_beyond_are_refused() {
        for (op, datatype) in [(19, 0), (-1, 0), (0, 16), (0, -1), (c_int::MAX, c_int::MIN)] {
            assert!(!is_there(Form::Fetch, op, datatype));
        }
    }
}
