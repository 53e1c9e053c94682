//! Distributions of flow sizes: four from published measurements, and further distributions from
//! tables in CSV files.

use std::path::Path;

use srd_proto::rng::Rng;

use super::WorkloadError;

/// A distribution of flow sizes, as points of its cumulative distribution. Between two points the
/// distribution is linear.
#[derive(Clone, PartialEq, Debug)]
pub struct Sizes {
    // Sizes in bytes and cumulative probabilities, both ascending; the last probability is one.
    points: Vec<(f64, f64)>,
}

/// Sizes of web-search traffic: partition-aggregate traffic of a production cluster, from Alizadeh
/// et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, as later simulators tabulate it.
const WEB_SEARCH: [(f64, f64); 12] = [
    (1.0, 0.0),
    (10e3, 0.15),
    (20e3, 0.20),
    (30e3, 0.30),
    (50e3, 0.40),
    (80e3, 0.53),
    (200e3, 0.60),
    (1e6, 0.70),
    (2e6, 0.80),
    (5e6, 0.90),
    (10e6, 0.97),
    (30e6, 1.0),
];

/// Sizes of data-mining traffic, from Greenberg et al., "VL2", SIGCOMM 2009, as used by Alizadeh et
/// al., "pFabric", SIGCOMM 2013, who tabulate the sizes in packets of 1460 bytes.
const DATA_MINING: [(f64, f64); 9] = [
    (100.0, 0.0),
    (1460.0, 0.5),
    (2.0 * 1460.0, 0.6),
    (3.0 * 1460.0, 0.7),
    (7.0 * 1460.0, 0.8),
    (267.0 * 1460.0, 0.9),
    (2107.0 * 1460.0, 0.95),
    (66_667.0 * 1460.0, 0.99),
    (666_667.0 * 1460.0, 1.0),
];

/// Sizes of Hadoop traffic, from Roy et al., "Inside the Social Network's (Datacenter) Network",
/// SIGCOMM 2015, as tabulated for Li et al., "HPCC", SIGCOMM 2019.
const HADOOP: [(f64, f64); 20] = [
    (1.0, 0.0),
    (100.0, 0.01),
    (200.0, 0.02),
    (300.0, 0.05),
    (350.0, 0.15),
    (400.0, 0.20),
    (500.0, 0.30),
    (600.0, 0.40),
    (700.0, 0.50),
    (1e3, 0.60),
    (2e3, 0.67),
    (7e3, 0.70),
    (30e3, 0.72),
    (50e3, 0.82),
    (80e3, 0.87),
    (120e3, 0.90),
    (300e3, 0.95),
    (1e6, 0.975),
    (2e6, 0.99),
    (10e6, 1.0),
];

/// Sizes of storage traffic: Alibaba's block storage in 2019, as tabulated for Li et al., "HPCC",
/// SIGCOMM 2019.
const ALI_STORAGE: [(f64, f64); 9] = [
    (1.0, 0.0),
    (4e3, 0.2293),
    (8e3, 0.6921),
    (16e3, 0.8061),
    (32e3, 0.9047),
    (64e3, 0.9353),
    (128e3, 0.9677),
    (256e3, 0.9753),
    (2e6, 1.0),
];

/// Distributions that have a name.
const NAMED: [(&str, &[(f64, f64)]); 4] = [
    ("web-search", &WEB_SEARCH),
    ("data-mining", &DATA_MINING),
    ("hadoop", &HADOOP),
    ("ali-storage", &ALI_STORAGE),
];

impl Sizes {
    /// Returns a distribution by name: `web-search`, `data-mining`, `hadoop`, `ali-storage`, or the
    /// path of a CSV file. A line of the file has a size in bytes and a cumulative probability.
    ///
    /// # Errors
    /// If the file cannot be read or contains no distribution.
    pub fn find(name: &str, directory: &Path) -> Result<Self, WorkloadError> {
        if let Some((_, points)) = NAMED.iter().find(|(known, _)| *known == name) {
            return Ok(Self { points: points.to_vec() });
        }
        let text = crate::runs::files::text(&directory.join(name)).map_err(|error| {
            let known = NAMED.map(|(known, _)| format!("`{known}`")).join(", ");
            WorkloadError(format!("`{name}`: {error}; sizes are {known} or a CSV file"))
        })?;
        Self::parse(&text).map_err(|e| WorkloadError(format!("`{name}`, {e}")))
    }

    /// Parses a table with lines of `bytes,cumulative probability`. The first line, except empty
    /// lines and comments, is a heading if it is not such a line and does not begin with a digit.
    ///
    /// # Errors
    /// A description of the first line that is not valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut is_first = true;
        for (index, raw) in text.lines().enumerate() {
            let line = raw.split('#').next().unwrap_or("").trim();
            let fail = |what: &str| Err(format!("line {}: {what}", index + 1));
            if line.is_empty() {
                continue;
            }
            let is_first = std::mem::replace(&mut is_first, false);
            let mut words = line.split([',', ' ', '\t']).filter(|w| !w.is_empty());
            let mut number = || words.next().map(str::parse::<f64>);
            let (Some(Ok(bytes)), Some(Ok(probability)), None) = (number(), number(), number())
            else {
                if is_first && !line.starts_with(|c: char| c.is_ascii_digit()) {
                    continue;
                }
                return fail("expected `bytes,cumulative probability`");
            };
            if !(0.0..=1e15).contains(&bytes) || !(0.0..=1.0).contains(&probability) {
                return fail("bytes lie in 0..1e15 and probabilities in 0..1");
            }
            if points.last().is_some_and(|&(b, p)| bytes < b || probability < p) {
                return fail("sizes and probabilities must ascend");
            }
            points.push((bytes, probability));
        }
        match points.last() {
            Some(&(bytes, probability)) if probability >= 1.0 && bytes >= 1.0 => {
                Ok(Self { points })
            }
            Some(_) => Err("the last probability must be 1, of a size above zero".to_owned()),
            None => Err("no line holds a size".to_owned()),
        }
    }

    /// Returns the points of the cumulative distribution: bytes and probability, both ascending.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// Returns `count` random sizes in bytes. Equal seeds give equal sizes.
    pub fn sample(&self, count: usize, seed: u64) -> Vec<u64> {
        let mut rng = Rng::new(seed);
        (0..count).map(|_| self.draw(&mut rng)).collect()
    }

    /// Returns the mean size in bytes.
    pub fn mean_bytes(&self) -> f64 {
        let (first_bytes, first_probability) = self.points[0];
        let between = self.points.windows(2).map(|w| {
            let ((b0, p0), (b1, p1)) = (w[0], w[1]);
            (b0 + b1) / 2.0 * (p1 - p0)
        });
        (first_bytes * first_probability + between.sum::<f64>()).max(1.0)
    }

    /// Returns a random size in bytes.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let u = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let above = self.points.partition_point(|&(_, p)| p <= u);
        let bytes = match (above.checked_sub(1).map(|i| self.points[i]), self.points.get(above)) {
            (Some((b0, p0)), Some(&(b1, p1))) => b0 + (b1 - b0) * (u - p0) / (p1 - p0),
            (None, Some(&(b, _))) | (Some((b, _)), None) => b,
            (None, None) => 1.0,
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within 0..=1e15
        (bytes.round() as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_distribution() {
        for (name, mean_bytes) in [
            ("web-search", 1.66e6),
            ("data-mining", 7.3e6),
            ("hadoop", 1.2e5),
            ("ali-storage", 4.1e4),
        ] {
            let sizes = Sizes::find(name, Path::new(".")).unwrap();
            let mean = sizes.mean_bytes();
            assert!((mean / mean_bytes - 1.0).abs() < 0.1, "{name}: {mean}");
            let mut rng = Rng::new(5);
            let draws: Vec<u64> = (0..200_000).map(|_| sizes.draw(&mut rng)).collect();
            let drawn = draws.iter().sum::<u64>() as f64 / draws.len() as f64;
            assert!((drawn / mean - 1.0).abs() < 0.1, "{name}: drawn {drawn}, mean {mean}");
        }
        let web = Sizes::find("web-search", Path::new(".")).unwrap();
        let mut rng = Rng::new(6);
        let small = (0..100_000).filter(|_| web.draw(&mut rng) <= 80_000).count();
        assert!((52_000..54_000).contains(&small), "{small}");
    }

    #[test]
    fn tables_are_read_and_bad_ones_refused() {
        let sizes = Sizes::parse("bytes,cdf\n1000,0.5\n2000,1.0\n").unwrap();
        assert!((sizes.mean_bytes() - 1250.0).abs() < 1e-9);
        for (bad, word) in [
            ("", "no line"),
            ("1,0.5\n", "last probability"),
            ("5,0.5\n1,1", "line 2"),
            ("5,0.5\nx,1", "line 2"),
            ("5,2", "line 1"),
            ("bytes,cdf\nmean,1\n5,1", "line 2"),
        ] {
            let error = Sizes::parse(bad).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(Sizes::find("no-such-file.csv", Path::new(".")).is_err());
    }

    /// In an earlier version, `1,000,0.5` was a size of 1 with the probability 0, a first line with
    /// an error was skipped as a heading, and a heading after a comment was an error.
    #[test]
    fn regression_a_line_has_two_numbers_and_a_heading_may_follow_comments() {
        for bad in ["1,000,0.5\n2,000,1.0\n", "1000\n2000,1", "5,1,x"] {
            assert!(Sizes::parse(bad).unwrap_err().contains("line 1: expected"), "{bad}");
        }
        let sizes = Sizes::parse("# from a trace\n\nbytes cdf\n1000 0.5\n2000 1.0\n").unwrap();
        assert_eq!(sizes.points(), [(1000.0, 0.5), (2000.0, 1.0)]);
    }
}
