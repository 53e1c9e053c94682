//! Plain tables for people: text is aligned to the left, numbers to the right.

use std::fmt;

/// A table with a header row.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns an empty table with these column names.
    pub fn new<const N: usize>(columns: [&str; N]) -> Self {
        Self { rows: vec![columns.map(str::to_owned).to_vec()] }
    }

    /// Returns an empty table with these column names.
    pub fn with_columns(columns: Vec<String>) -> Self {
        Self { rows: vec![columns] }
    }

    /// Appends a row of any length.
    pub fn push(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Appends a row; missing cells stay empty.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &'_ Vec<String>, column: usize| row.get(column).cloned();
        let width = |column| {
            let cells = self.rows.iter().filter_map(|row| cell(row, column));
            cells.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        // Columns of words are aligned to the left, columns of numbers to the right.
        let is_number = |text: &str| {
            let digits = text.strip_prefix('-').unwrap_or(text);
            digits.is_empty() || digits.starts_with(|c: char| c.is_ascii_digit())
        };
        let right = |column: usize| {
            column > 0
                && self.rows[1..].iter().filter_map(|r| cell(r, column)).all(|t| is_number(&t))
        };
        let rights: Vec<bool> = (0..columns).map(right).collect();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, (width, right)) in widths.iter().zip(&rights).enumerate() {
                let text = cell(row, column).unwrap_or_default();
                let gap = if column == 0 { "" } else { "  " };
                let padded =
                    if *right { format!("{text:>width$}") } else { format!("{text:<width$}") };
                line = line + gap + &padded;
            }
            if number > 0 {
                writeln!(f)?;
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_left_numbers_right() {
        let mut table = Table::new(["name", "Mb/s", "verdict"]);
        table.row(["a".into(), "1.5".into(), "met".into()]);
        table.row(["longer".into(), "1000.0".into(), String::new()]);
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "name      Mb/s  verdict");
        assert_eq!(lines[1], "a          1.5  met");
        assert_eq!(lines[2], "longer  1000.0");
    }

    #[test]
    fn numbers_below_zero_are_numbers() {
        let mut table = Table::new(["", "change, %"]);
        table.row(["a".into(), "-0.060".into()]);
        table.row(["b".into(), "30.5".into()]);
        let text = table.to_string();
        assert_eq!(text.lines().nth(2), Some("b       30.5"), "{text}");
    }
}
