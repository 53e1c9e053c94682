//! An assembler of eBPF, for programs of a few dozen instructions that are written at run time.
//!
//! It supports the instructions that the programs of this crate use, and labels whose position is
//! fixed after the jump to them was written. The kernel's verifier checks each assembled program.

use crate::sys::bpf::Instruction;

/// Register 0 of eBPF, which holds the result of a call, and the result of the program at its end.
pub(crate) const RESULT: u8 = 0;
/// Register of the first argument of a call. At the start of a program it holds the program's
/// context.
pub(crate) const ARGUMENT_1: u8 = 1;
pub(crate) const ARGUMENT_2: u8 = 2;
pub(crate) const ARGUMENT_3: u8 = 3;
pub(crate) const ARGUMENT_4: u8 = 4;

/// A width of memory access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
    Double = 0x18,
}

impl Width {
    /// Bytes that an access of this width reads or writes.
    pub(crate) fn bytes(self) -> i16 {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
            Self::Double => 8,
        }
    }
}

/// Condition of a jump on a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum If {
    /// All 64 bits of the register equal this value.
    Equals(i32),
    /// The lower 32 bits of the register differ from this value.
    Low32Differs(u32),
    /// The register is above this value (unsigned comparison).
    Above(i32),
    /// The register is at most this value (unsigned comparison).
    AtMost(i32),
    /// The register is above the register with this number (unsigned comparison).
    AboveRegister(u8),
    /// The register equals the register with this number.
    EqualsRegister(u8),
}

/// A label: a position in a program that jumps can refer to before the position is fixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label(usize);

/// An eBPF program that is being assembled.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// Position of each label; `None` until [`Assembler::here`] fixes the position.
    places: Vec<Option<usize>>,
    /// Jumps: the index of each jump instruction, and the label that it jumps to.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn add(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        let registers =
            if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        self.code.push(Instruction { code, registers, offset, immediate });
    }

    /// Returns a new label, whose position [`Assembler::here`] fixes later.
    pub(crate) fn place(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Sets the position of a label to the position of the next instruction.
    pub(crate) fn here(&mut self, place: Label) {
        self.places[place.0] = Some(self.code.len());
    }

    /// Adds the instruction `to = *(width *)(from + offset)`.
    pub(crate) fn load(&mut self, width: Width, to: u8, from: u8, offset: i16) {
        self.add(0x61 | width as u8, to, from, offset, 0);
    }

    /// Adds the instruction `*(width *)(to + offset) = from`.
    pub(crate) fn store(&mut self, width: Width, to: u8, offset: i16, from: u8) {
        self.add(0x63 | width as u8, to, from, offset, 0);
    }

    /// Adds the instruction `*(width *)(to + offset) = value`.
    pub(crate) fn store_value(&mut self, width: Width, to: u8, offset: i16, value: i32) {
        self.add(0x62 | width as u8, to, 0, offset, value);
    }

    /// Adds the instruction `*(u64 *)to += from`, as an atomic operation.
    pub(crate) fn count_up(&mut self, to: u8, from: u8) {
        self.add(0xdb, to, from, 0, 0);
    }

    /// Adds the instruction `to = from`.
    pub(crate) fn copy(&mut self, to: u8, from: u8) {
        self.add(0xbf, to, from, 0, 0);
    }

    /// Adds the instruction `to = value`.
    pub(crate) fn set(&mut self, to: u8, value: i32) {
        self.add(0xb7, to, 0, 0, value);
    }

    /// Adds instructions that set `to` to the map with the descriptor `map`, for calls with a map
    /// as argument.
    pub(crate) fn set_map(&mut self, to: u8, map: i32) {
        // This load takes two instructions. Source 1 means that the constant is the descriptor of a
        // map.
        self.add(0x18, to, 1, 0, map);
        self.add(0, 0, 0, 0, 0);
    }

    /// Adds instructions that set `to` to the address of the only value of a map.
    pub(crate) fn set_map_value(&mut self, to: u8, map: i32) {
        self.add(0x18, to, 2, 0, map);
        self.add(0, 0, 0, 0, 0);
    }

    /// Adds the instruction `to += from`.
    pub(crate) fn add_register(&mut self, to: u8, from: u8) {
        self.add(0x0f, to, from, 0, 0);
    }

    /// Adds the instruction `to += value`.
    pub(crate) fn add_value(&mut self, to: u8, value: i32) {
        self.add(0x07, to, 0, 0, value);
    }

    /// Adds the instruction `to &= value`.
    pub(crate) fn and(&mut self, to: u8, value: i32) {
        self.add(0x57, to, 0, 0, value);
    }

    /// Adds the instruction `to >>= bits`.
    pub(crate) fn shift_right(&mut self, to: u8, bits: i32) {
        self.add(0x77, to, 0, 0, bits);
    }

    /// Adds an instruction that converts the low 16 bits of `to` from network byte order to the
    /// byte order of the machine.
    pub(crate) fn swap_from_network_16(&mut self, to: u8) {
        self.add(0xdc, to, 0, 0, 16);
    }

    /// Adds the instruction `r0 = function(r1, r2, ...)`. `function` is the number of a BPF helper
    /// function of the kernel.
    pub(crate) fn call(&mut self, function: i32) {
        self.add(0x85, 0, 0, 0, function);
    }

    /// Adds a jump to a label.
    pub(crate) fn jump(&mut self, place: Label) {
        self.jumps.push((self.code.len(), place));
        self.add(0x05, 0, 0, 0, 0);
    }

    /// Adds a jump to a label, which is taken if the comparison of `register` is true.
    pub(crate) fn jump_if(&mut self, register: u8, comparison: If, place: Label) {
        self.jumps.push((self.code.len(), place));
        match comparison {
            If::Equals(value) => self.add(0x15, register, 0, 0, value),
            If::Low32Differs(value) => self.add(0x56, register, 0, 0, value.cast_signed()),
            If::Above(value) => self.add(0x25, register, 0, 0, value),
            If::AtMost(value) => self.add(0xb5, register, 0, 0, value),
            If::AboveRegister(other) => self.add(0x2d, register, other, 0, 0),
            If::EqualsRegister(other) => self.add(0x1d, register, other, 0, 0),
        }
    }

    /// Adds the instruction `return r0`.
    pub(crate) fn leave(&mut self) {
        self.add(0x95, 0, 0, 0, 0);
    }

    /// Returns the finished program. Every label that a jump uses must have a position.
    ///
    /// # Panics
    /// If the label of a jump has no position, lies before the jump, or lies too many instructions
    /// after it. Each is a mistake of the code that wrote the program.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for (at, place) in self.jumps {
            let to = self.places[place.0].expect("every place that is jumped to is somewhere");
            let distance = to.checked_sub(at + 1).and_then(|n| i16::try_from(n).ok());
            self.code[at].offset = distance.expect("jumps go forward, and not far");
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_go_where_their_places_are() {
        let mut program = Assembler::default();
        let (near, far) = (program.place(), program.place());
        program.jump_if(RESULT, If::Equals(1), far);
        program.jump(near);
        program.set(RESULT, 7);
        program.here(near);
        program.leave();
        program.here(far);
        program.leave();
        let offsets: Vec<i16> = program.finish().iter().map(|it| it.offset).collect();
        assert_eq!(offsets, [3, 1, 0, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "every place")]
    fn a_place_that_is_nowhere_is_a_mistake() {
        let mut program = Assembler::default();
        let nowhere = program.place();
        program.jump(nowhere);
        program.finish();
    }
}
