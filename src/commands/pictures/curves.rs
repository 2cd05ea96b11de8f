//! `transformer curves`

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use transformer_train::metrics::TextMetric;

use super::curves_picture::{Curves as Drawn, Panel, Series};
use super::curves_run::{Number, Over, Run};
use super::{check, save};
use crate::commands::{Result, print};

const EXAMPLES: &str = "\
Examples:
  Plot a run, even while it is training:
    transformer curves model

  Compare several runs over their training time:
    transformer curves small base --numbers loss,bleu --over seconds --out compared.png";

/// Plot loss, metrics, learning rate and speed of training runs.
///
/// Each quantity has a panel with the curves of all runs. A run without a log has only the values of its validations.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Curves {
    /// Directories of training runs
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Quantities to plot: loss, perplexity, accuracy, rate (learning rate), tokens (per second), norm (of the
    /// gradients), and metrics by their names in the log or in run files [default: loss, all metrics, rate, tokens]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    numbers: Vec<String>,
    /// The x axis
    #[arg(long, value_enum, default_value_t = Over::Updates)]
    over: Over,
    /// Output file, .svg or .png
    #[arg(long, value_name = "FILE", default_value = "curves.svg")]
    out: PathBuf,
}

impl Curves {
    /// Runs the command.
    pub fn run(self) -> Result {
        // Checked before anything is read.
        check(&self.out)?;
        let runs: Vec<Run> = self
            .directories
            .iter()
            .map(|directory| Run::load(directory))
            .collect::<Result<_>>()?;
        let panels = self.panels(&runs)?;
        let titles: Vec<_> = panels.iter().map(|panel| panel.title.clone()).collect();
        let picture = Drawn {
            runs: runs.into_iter().map(|run| run.name).collect(),
            over: self.over.title(),
            panels,
        };
        save(&picture, &self.out)?;
        print(&format!("{}: {}", self.out.display(), titles.join("; ")))
    }

    /// The panels of the chosen quantities, each of which at least one run must have recorded; without `--numbers`, the
    /// panels of all quantities that a run has recorded.
    fn panels(&self, runs: &[Run]) -> Result<Vec<Panel>> {
        let measured: BTreeSet<&str> = runs.iter().flat_map(Run::measured).collect();
        if self.numbers.is_empty() {
            let measured = measured
                .iter()
                .map(|&name| Number::Measured(name.to_owned()));
            let numbers = [Number::Loss].into_iter().chain(measured);
            let numbers = numbers.chain([Number::Rate, Number::Tokens]);
            let panels = numbers.map(|number| self.panel(runs, &number));
            return Ok(panels.filter(|panel| !panel.series.is_empty()).collect());
        }
        let mut panels = Vec::new();
        for name in &self.numbers {
            let number = named(name, &measured)?;
            let panel = self.panel(runs, &number);
            if panel.series.is_empty() {
                return Err(format!(
                    "--numbers {name}: no run has recorded it; only runs with a log record it"
                )
                .into());
            }
            panels.push(panel);
        }
        Ok(panels)
    }

    fn panel(&self, runs: &[Run], number: &Number) -> Panel {
        let curves = runs.iter().enumerate().flat_map(|(run, numbers)| {
            let curves = numbers.curves(number, self.over).into_iter();
            curves.map(move |(stage, points)| Series { run, stage, points })
        });
        Panel {
            title: number.title().to_owned(),
            from_zero: number.is_from_zero(),
            series: curves.collect(),
        }
    }
}

/// The quantity of that name, in lower or upper case; a metric also by its name in run files.
fn named(name: &str, measured: &BTreeSet<&str>) -> Result<Number> {
    let asked = name.trim().to_lowercase();
    let is_name = |known: &str| known.to_lowercase() == asked;
    let is_key = |known: &str| {
        let mut metrics = TextMetric::ALL.into_iter();
        metrics.any(|metric| metric.name() == known && metric.key() == asked)
    };
    let own = Number::NAMED.into_iter().find(|(known, _)| is_name(known));
    if let Some((_, number)) = own {
        return Ok(number);
    }
    let found = measured
        .iter()
        .find(|known| is_name(known) || is_key(known));
    if let Some(known) = found {
        return Ok(Number::Measured((*known).to_owned()));
    }
    let own = Number::NAMED.map(|(known, _)| known);
    let known: Vec<_> = own.iter().chain(measured).copied().collect();
    Err(format!(
        "--numbers {name}: unknown; these runs have {}",
        known.join(", ")
    )
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_numbers_have_the_names_of_displays_and_of_run_files() {
        let all = TextMetric::ALL.map(TextMetric::name);
        let measured = BTreeSet::from(all);
        for metric in TextMetric::ALL {
            let number = Number::Measured(metric.name().to_owned());
            for name in [metric.name(), metric.key(), &metric.key().to_uppercase()] {
                assert_eq!(named(name, &measured).unwrap(), number, "{name}");
            }
        }
        assert!(named("wer", &BTreeSet::from(["BLEU"])).is_err());
        assert_eq!(named("LOSS", &measured).unwrap(), Number::Loss);
    }
}
