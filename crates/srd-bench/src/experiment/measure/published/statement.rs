//! A published statement, and the values of an experiment that belong beside it.

/// A figure that was published, for a subject that an experiment of the lab has too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement {
    /// Name of the experiment with the same subject.
    pub(super) experiment: &'static str,
    /// Document that contains the statement.
    pub(super) source: Source,
    /// Subject of the statement.
    pub(super) subject: &'static str,
    /// The published figure, in words.
    pub(super) figure: &'static str,
    /// The values of the experiment that are comparable with the figure.
    pub(super) values: Values,
    /// Reason why the experiment has another figure, or no figure; empty if there is no remark.
    pub(super) remark: &'static str,
}

/// A document with published figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiment) enum Source {
    /// The article on ENA Express.
    Express,
    /// The paper on SRD.
    Srd,
    /// The measurements of amazon-efs-utils.
    EfsUtils,
    /// The comparison of Hadoop clusters.
    Hadoop,
}

impl Source {
    /// All documents.
    pub(in crate::experiment) const ALL: [Source; 4] =
        [Source::Express, Source::Srd, Source::EfsUtils, Source::Hadoop];

    /// Returns the short name, which stands behind each figure of the document.
    pub(in crate::experiment) fn name(self) -> &'static str {
        match self {
            Source::Express => "Express",
            Source::Srd => "SRD",
            Source::EfsUtils => "efs-utils",
            Source::Hadoop => "Hadoop",
        }
    }

    /// Returns the title of the document.
    pub(in crate::experiment) fn title(self) -> &'static str {
        match self {
            Source::Express => "AWS: Using ENA Express to improve workload performance",
            Source::Srd => {
                "AWS: A Cloud-Optimized Transport Protocol for Elastic and Scalable HPC (IEEE \
                 Micro, 2020)"
            }
            Source::EfsUtils => "Measurements of amazon-efs-utils 2.0.0 and 2.0.1",
            Source::Hadoop => {
                "Comparison of Hadoop clusters with and without Enhanced Networking (2015)"
            }
        }
    }
}

/// Values of an experiment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values {
    /// The values of all transports in one case.
    Case(&'static str, Quantity),
    /// The values of kernel TCP in several cases.
    Plain(&'static [&'static str], Quantity),
    /// The experiment has no comparable value.
    Absent,
}

/// A quantity of a case.
#[derive(Clone, Copy, Debug)]
pub(super) enum Quantity {
    /// The median over the repetitions of the figure with this name.
    Figure(&'static str),
    /// A percentile of the samples with this name.
    Percentile(&'static str, f64),
}
