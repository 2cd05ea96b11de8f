//! `transformer train`
//!
//! | file | contents |
//! |---|---|
//! | `flags` | the flags that set keys of the run file |
//! | `earlier` | the run being resumed |
//! | `plan` | every key with its value, and the library's configurations |
//! | `data`, `tokenizers`, `prepared` | from files to tokens |
//! | `init` | the model to start from |
//! | `run`, `validation` | the training, and the files that it writes |
//! | `dry_run` | the report of `--dry-run` |
//! | `errors`, `signals` | library errors with the names of keys and flags; Ctrl-C and SIGTERM |
//! | `processes` | the processes that train together |

mod data;
mod dry_run;
mod earlier;
mod errors;
mod flags;
mod init;
mod plan;
mod prepared;
mod processes;
mod run;
mod signals;
mod tokenizers;
mod validation;

use std::path::{Path, PathBuf};

use clap::Args;
use transformer_core::Tokenizers;
use transformer_train::progress::ProgressDisplay;
use transformer_train::ranks::Ranks;
use transformer_train::run::RunLock;

use self::data::{Data, check_files};
use self::earlier::{Earlier, to_go_on_with};
use self::errors::train_error;
use self::flags::Flags;
use self::plan::Plan;
use self::prepared::Prepared;
use self::processes::is_launched;
use self::run::Run;
use self::tokenizers::{given_tokenizers, trained_tokenizers};
use super::{Common, Result, directory_to_write, print};
use crate::backend::run_on;
use crate::run_file::{RunFileError, Values};

pub use self::processes::in_each_process;

const EXAMPLES: &str = "\
Examples:
  Train on two parallel text files:
    transformer train --parallel train.en train.fr --out model

  Use one file of `source<TAB>target` lines; first check it, then train, then resume for more updates:
    transformer train --data examples/data/tatoeba.en-fr.tsv.gz --dry-run
    transformer train --data examples/data/tatoeba.en-fr.tsv.gz --out model
    transformer train --out model --updates 10000 --resume

  Train the smallest model for five minutes:
    transformer train --data pairs.tsv --out model --preset tiny --minutes 5

  Train one model with four processes, if the program was built with the feature mpi:
    mpirun -np 4 transformer train --data pairs.tsv --out model --batches-per-update 4

  Train with a run file, and set one key on the command line. The same command also resumes the run, which suits
  cluster jobs that are restarted:
    transformer train --config configs/multi30k.toml --set data.train=pairs.tsv --out model --resume

docs/guide/config.md explains every key, and so does the file run.toml that each run writes into --out.";

/// Train a translation model on sentence pairs.
///
/// Reads the pairs, holds some out for validation, trains a tokenizer and a model on the rest, and keeps the best model
/// in --out.
///
/// Ctrl-C or SIGTERM stops the run after the current update and saves a checkpoint, from which --resume continues. The
/// exit code is then 130 or 143. A second signal stops the program at once.
///
/// Keys such as `training.warmup` describe the run. Some keys also have a flag, such as --warmup. --set takes
/// precedence over the key's flag, the flag over the file of --config, and the file over the default. The run writes
/// all keys and their values to run.toml in --out.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Train {
    /// Output directory for the model, its tokenizer, the pairs and the checkpoints
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run", value_parser = directory_to_write())]
    out: Option<PathBuf>,
    /// Resume the run in --out from its newest checkpoint, with the settings in its run.toml (or in the file of
    /// --config). If there is no run yet, start one with the data given by --config, --data, --parallel or --set
    #[arg(long, requires = "out")]
    resume: bool,
    /// TOML file with the keys of a run; paths in it are relative to the current directory; `-` is standard input
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set a key, as in `--set training.warmup=1000`; can be repeated, and parts of one key are merged. An empty VALUE
    /// restores the key's default
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Prepare the data; report the pairs, batches, parameters and memory; then exit without training or writing
    /// anything
    #[arg(long)]
    dry_run: bool,
    /// Print plain lines, even in a terminal
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    flags: Flags,
}

impl Train {
    /// Runs the command, in one of the processes that train together.
    pub fn run(self, common: &Common, ranks: &Ranks) -> Result {
        if !ranks.is_first() {
            return self.join(common, ranks);
        }
        // A run that cannot start, or would overwrite a model, ends here, before any pair is read.
        let given = self.given(common.seed)?;
        let lock = self.lock(&given)?;
        let earlier = self.earlier(&given)?;
        let values = match earlier.as_ref().and_then(|run| run.file.as_ref()) {
            // Without --config, flags override the values of the run's own file.
            Some(file) if self.config.is_none() => given.over(file.values.clone()),
            _ => given,
        };
        let mut plan = Plan::new(values, earlier.as_ref())?;
        plan.check_precision(common.target())?;
        let checked = ranks.check(&plan.training);
        checked.map_err(|error| train_error(error, &plan.values))?;
        plan.check_devices(common.target().count_devices()?, ranks)?;
        let is_new = earlier.as_ref().is_none_or(|run| run.record.is_none());
        if let Some(out) = self.directory().filter(|_| is_new) {
            // In a resumed run, the file of --config may be the run's own.
            let config = self.config.as_deref().filter(|_| earlier.is_none());
            check_files(&plan, config, out, earlier.is_none())?;
        }
        let (data, tokenizers) = read(&mut plan, earlier.as_ref())?;
        let Some(out) = self.directory() else {
            let prepared = Prepared::new(&plan, data, tokenizers, None)?;
            let report = dry_run::report(&plan, &prepared, common.backend)?;
            return print(&report);
        };
        let lock = match lock {
            Some(lock) => lock,
            None => RunLock::acquire(out).map_err(|error| train_error(error, &plan.values))?,
        };
        let prepared = Prepared::new(&plan, data, tokenizers, Some(out))?;
        let run = Run {
            plan,
            prepared,
            ranks: ranks.clone(),
            out: out.to_owned(),
            lock: Some(lock),
            resume: earlier.is_some(),
            made_before: earlier.map_or(0, |run| run.updates()),
            display: match self.plain || is_launched() {
                true => ProgressDisplay::Lines,
                false => ProgressDisplay::Auto,
            },
        };
        run_on(common.target(), run)?
    }

    /// Trains with rank 0, as soon as rank 0 has started the run. Like a resumed run, it reads the files that rank 0
    /// has written into the directory. The command line is not needed, because `run.toml` has all settings.
    fn join(self, common: &Common, ranks: &Ranks) -> Result {
        let Some(out) = self.directory() else {
            return Ok(());
        };
        let Some(ranks) = ranks.wait_for_start() else {
            return Ok(());
        };
        let (earlier, values) = Earlier::begun(out)?;
        let mut plan = Plan::new(values, Some(&earlier))?;
        let (data, tokenizers) = read(&mut plan, Some(&earlier))?;
        let run = Run {
            prepared: Prepared::new(&plan, data, tokenizers, None)?,
            plan,
            ranks,
            out: out.to_owned(),
            lock: None,
            resume: true,
            made_before: earlier.updates(),
            display: ProgressDisplay::Silent,
        };
        run_on(common.target(), run)?
    }

    /// The directory that the command writes into.
    fn directory(&self) -> Option<&Path> {
        self.out.as_deref().filter(|_| !self.dry_run)
    }

    /// The lock of a directory that already has a run, so that a second run is refused before it reads anything. A new
    /// directory is locked when the run starts.
    fn lock(&self, given: &Values) -> Result<Option<RunLock>> {
        let lock = self.directory().filter(|out| RunLock::is_in(out));
        let lock = lock.map(RunLock::acquire).transpose();
        Ok(lock.map_err(|error| train_error(error, given))?)
    }

    /// The values of the command line and of its file.
    fn given(&self, seed: Option<u64>) -> std::result::Result<Values, RunFileError> {
        let file = match &self.config {
            Some(path) => Values::from_file(path)?,
            None => Values::default(),
        };
        let flags = self.flags.values(seed)?;
        Ok(Values::from_settings(&self.set)?.over(flags).over(file))
    }

    /// The run to resume. A dry run may describe a run other than the one in the directory.
    fn earlier(&self, given: &Values) -> Result<Option<Earlier>> {
        match &self.out {
            Some(out) if self.resume || !self.dry_run => to_go_on_with(out, self.resume, given),
            _ => Ok(None),
        }
    }
}

/// The pairs of a run, and its tokenizers, which are trained on the pairs unless they exist already.
fn read(plan: &mut Plan, earlier: Option<&Earlier>) -> Result<(Data, Tokenizers)> {
    let given = given_tokenizers(plan, earlier)?;
    let data = Data::read(plan, earlier)?;
    let tokenizers = match given {
        Some(given) => given,
        None => trained_tokenizers(plan, &data.train, earlier)?,
    };
    Ok((data, tokenizers))
}
