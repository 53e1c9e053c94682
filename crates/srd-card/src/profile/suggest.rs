//! Names similar to a misspelt name.

use alloc::vec::Vec;

/// Largest number of suggestions.
const SUGGESTIONS_MAX: usize = 3;
/// Largest edit distance of a name that is suggested.
const DISTANCE_MAX: usize = 3;
/// Longest name that is compared; no type has a longer name.
const NAME_BYTES_MAX: usize = 32;

/// Returns the names most similar to `name`, the most similar first.
pub fn like<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return Vec::new();
    }
    let mut found: Vec<(usize, &str)> = names
        .map(|other| (distance(name, other), other))
        .filter(|(distance, _)| *distance <= DISTANCE_MAX)
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, other)| other).take(SUGGESTIONS_MAX).collect()
}

/// Returns the edit distance: the number of letters to insert, remove, replace, or swap with their
/// neighbour, so that one name becomes the other name. Upper and lower case make no difference. The
/// time grows with the product of the lengths.
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i);
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(!a[i - 1].eq_ignore_ascii_case(&b[j - 1]));
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                let swapped: &Vec<usize> = &before;
                least = least.min(swapped[j - 2] + 1);
            }
            row.push(least);
        }
        before = core::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        for (a, b, letters) in [
            ("", "", 0),
            ("", "abc", 3),
            ("c7i.large", "c7i.large", 0),
            ("C7i.Large", "c7i.large", 0),
            ("c7i.lrage", "c7i.large", 1),
            ("c7large", "c7i.large", 2),
            ("m5.xlarge", "m5.2xlarge", 1),
        ] {
            assert_eq!(distance(a, b), letters, "{a} {b}");
        }
    }

    #[test]
    fn at_most_three_the_nearest_first() {
        let names = ["c5.large", "c6i.large", "c7i.large", "c7g.large", "t2.nano"];
        assert_eq!(like("c7.large", names.into_iter()).len(), 3);
        assert_eq!(like("c7h.large", names.into_iter())[0], "c7g.large");
        assert!(like("quite another thing", names.into_iter()).is_empty());
        assert!(like(&"c".repeat(33), names.into_iter()).is_empty());
    }
}
