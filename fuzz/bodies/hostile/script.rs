//! A script: a sequence of bytes, each of which selects a choice.

/// The bytes of a script that were not read yet. After their end, reads return zeros.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(crate) fn bit(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Returns a number below `many`.
    pub(crate) fn below(&mut self, many: usize) -> usize {
        usize::from(self.byte()) % many.max(1)
    }

    pub(crate) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}
