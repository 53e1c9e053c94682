//! `srd sim figures`: runs the experiments of the SRD paper and draws its figures.

use super::{explain, files, progress};
use crate::output::{JsonOutput, tell, unless_closed};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use srd_sim::figures::{self, Drawn, File};
use srd_sim::run::RunResult;
use std::fs;
use std::path::{Path, PathBuf};

/// `srd sim figures`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FiguresArgs {
    /// The directory for charts (SVG), numbers (CSV) and the page that shows them, index.html.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A small form of each figure: fewer and shorter flows, one seed.
    #[arg(long)]
    quick: bool,
    /// Number of runs at a time. Default: one per core.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    json: JsonOutput,
}

#[derive(Serialize)]
struct Shown {
    figure: u8,
    title: &'static str,
    paper: &'static str,
    ours: Vec<String>,
    files: Vec<String>,
}

/// Runs the experiments of all figures and draws the figures. Returns the exit code.
pub(super) fn run(args: &FiguresArgs, speak: bool) -> Result<u8> {
    args.json.check()?;
    files::prepare(&args.out)?;
    let threads = super::threads(args.threads);
    let mut all = Vec::new();
    let mut complaints = Vec::new();
    // The files are drawn even if the reader closes standard output.
    let say = |text: String| unless_closed(args.json.say(text));
    for figure in figures::figures(args.quick)? {
        if speak {
            tell!("figure {}: {} runs", figure.number, figure.jobs().len());
        }
        let results = progress::run_all(figure.jobs(), threads, speak)
            .into_iter()
            .map(|result| result.map_err(explain))
            .collect::<Result<Vec<RunResult>>>()?;
        for result in &results {
            let RunResult { transport, seed, .. } = result;
            let mine = result.complaints();
            let of = |what: &String| {
                format!("figure {}, {transport}, seed {seed}: {what}", figure.number)
            };
            complaints.extend(mine.iter().map(of));
        }
        let drawn = figure.draw(&results);
        say(format!("Figure {}: {}", figure.number, figure.title))?;
        say(format!("  paper: {}", figure.paper))?;
        for sentence in &drawn.ours {
            say(format!("  {sentence}"))?;
        }
        all.push((figure, drawn));
    }
    write(&args.out, &all)?;
    say(format!("\n{}", args.out.join("index.html").display()))?;
    let shown = |(figure, drawn): &(figures::Figure, Drawn)| Shown {
        figure: figure.number,
        title: figure.title,
        paper: figure.paper,
        ours: drawn.ours.clone(),
        files: names(drawn),
    };
    args.json.write(&all.iter().map(shown).collect::<Vec<_>>())?;
    if complaints.is_empty() {
        return Ok(0);
    }
    bail!("{}", complaints.join("\nsrd: "))
}

fn names(drawn: &Drawn) -> Vec<String> {
    drawn.charts.iter().chain([&drawn.table]).map(|file| file.name.clone()).collect()
}

fn write(directory: &Path, all: &[(figures::Figure, Drawn)]) -> Result<()> {
    let put = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    for (_, drawn) in all {
        for File { name, text } in drawn.charts.iter().chain([&drawn.table]) {
            put(name, text)?;
        }
    }
    put("index.html", &figures::index_html(all))
}
