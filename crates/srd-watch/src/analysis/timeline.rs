//! Rates over time for a chart. Columns become wider with time, so that there are never more than
//! [`COLUMNS_MAX`].

/// Largest number of columns.
pub const COLUMNS_MAX: usize = 1024;

/// Content of a column of a chart, which covers one or several bins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Column {
    /// Bytes of all bins of the column.
    pub bytes: u64,
    /// Largest number of bytes of a bin of the column.
    pub bin_bytes_max: u64,
}

/// Columns of a chart, each with the same number of bins.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Number of the first bin.
    first: u64,
    /// Number of bins of a column.
    width: u64,
    columns: Vec<Column>,
}

impl Timeline {
    /// Returns an empty timeline whose first bin is `first`.
    pub fn new(first: u64) -> Self {
        Self { first, width: 1, columns: Vec::new() }
    }

    /// Returns the number of the first bin.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number of bins of a column.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Returns the columns from the first bin up to the last bin with bytes.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Adds the bytes of the bin with the number `bin`. A bin before the first bin counts as the
    /// first bin.
    pub fn add(&mut self, bin: u64, bytes: u64) {
        let offset = bin.saturating_sub(self.first);
        while offset / self.width >= COLUMNS_MAX as u64 {
            self.widen();
        }
        let at = usize::try_from(offset / self.width).unwrap_or(0);
        if self.columns.len() <= at {
            self.columns.resize(at + 1, Column::default());
        }
        let column = &mut self.columns[at];
        column.bytes += bytes;
        column.bin_bytes_max = column.bin_bytes_max.max(bytes);
    }

    fn widen(&mut self) {
        let halves = self.columns.chunks(2);
        self.columns = halves
            .map(|pair| Column {
                bytes: pair.iter().map(|column| column.bytes).sum(),
                bin_bytes_max: pair.iter().map(|column| column.bin_bytes_max).max().unwrap_or(0),
            })
            .collect();
        self.width = self.width.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_widen_and_lose_neither_bytes_nor_peaks() {
        let mut line = Timeline::new(100);
        for bin in 100..100_100 {
            line.add(bin, if bin == 5000 { 77 } else { 1 });
            assert!(line.columns().len() <= COLUMNS_MAX);
        }
        assert_eq!(line.width(), 128);
        assert_eq!(line.columns().iter().map(|column| column.bytes).sum::<u64>(), 100_076);
        assert_eq!(line.columns().iter().map(|column| column.bin_bytes_max).max(), Some(77));
        line.add(u64::MAX, 1);
        assert!(line.columns().len() <= COLUMNS_MAX);
        line.add(0, 1);
        assert!(line.columns()[0].bytes > 1);
    }
}
