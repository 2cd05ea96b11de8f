//! `transformer train`
//!
//! | file | does |
//! |---|---|
//! | `flags` | flags as keys of the run file |
//! | `earlier` | the run that is gone on with |
//! | `plan` | every key with its value, and the library's configurations |
//! | `data`, `tokenizers`, `prepared` | from files to pieces |
//! | `init` | the model to start from |
//! | `run`, `validation` | the training, and the files that it leaves |
//! | `dry_run` | a report instead |
//! | `errors`, `signals` | the library's errors in the user's words; Ctrl-C and SIGTERM |
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
  Two text files, line n of one translating line n of the other:
    transformer train --parallel train.en train.fr --out model

  One file of `source<TAB>target` lines; a dry run, then the run, then twice as long:
    transformer train --data examples/data/tatoeba.en-fr.tsv.gz --dry-run
    transformer train --data examples/data/tatoeba.en-fr.tsv.gz --out model
    transformer train --out model --updates 10000 --resume

  A few minutes of the smallest model:
    transformer train --data pairs.tsv --out model --preset tiny --minutes 5

  Four processes that train one model, where the program was built with the feature mpi:
    mpirun -np 4 transformer train --data pairs.tsv --out model --batches-per-update 4

  A run described by a file, and a key from the command line. The same line goes on with the run, as a job of a
  cluster that is started again must:
    transformer train --config configs/multi30k.toml --set data.train=pairs.tsv --out model --resume

Keys: docs/guide/config.md, and the file run.toml that each run leaves in --out.";

/// Trains a model on sentence pairs and keeps the best one in a directory.
///
/// Reads the pairs, holds some out for validation, and trains first a tokenizer, then a model on the others.
/// Ctrl-C or SIGTERM ends the run after the current update, with a checkpoint that --resume goes on from, and
/// with exit code 130 or 143; a second one ends it at once.
///
/// A run is described by keys, such as `training.warmup`. Each has a default; the file of --config replaces it, a
/// flag replaces both, and --set replaces all. The directory gets every key with its value, as run.toml.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Train {
    /// Directory for the model, its tokenizer, its pairs and its checkpoints
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run", value_parser = directory_to_write())]
    out: Option<PathBuf>,
    /// Go on with the run in --out, from its newest checkpoint and with its run.toml. Where there is no run yet,
    /// one begins if --config, --data, --parallel or --set names its data
    #[arg(long, requires = "out")]
    resume: bool,
    /// File that describes a run, key by key, in TOML; paths in it are relative to the current directory. `-` is
    /// standard input
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Sets a key, as in `--set training.warmup=1000`; may be given again. Without a VALUE, the key's default
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Read and prepare everything, report pairs, batches, parameters and memory, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Plain lines, even in a terminal
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    flags: Flags,
}

impl Train {
    /// Runs the command, in one of the processes that train together.
    pub fn run(self, common: Common, ranks: &Ranks) -> Result {
        if !ranks.is_first() {
            return self.join(common, ranks);
        }
        // Before any pair is read: a run that cannot start, or would overwrite a model, ends here.
        let given = self.given(common.seed)?;
        let lock = self.lock(&given)?;
        let earlier = self.earlier(&given)?;
        let values = match earlier.as_ref().and_then(|run| run.file.as_ref()) {
            // Without --config, the run's own file is the one that flags replace values of.
            Some(file) if self.config.is_none() => given.over(file.values.clone()),
            _ => given,
        };
        let mut plan = Plan::new(values, earlier.as_ref())?;
        plan.check_precision(common.backend)?;
        let checked = ranks.check(&plan.training);
        checked.map_err(|error| train_error(error, &plan.values))?;
        let is_new = earlier.as_ref().is_none_or(|run| run.record.is_none());
        if let Some(out) = self.directory().filter(|_| is_new) {
            // That of a run that goes on may be the run's own.
            let config = self.config.as_deref().filter(|_| earlier.is_none());
            check_files(&plan, config, out)?;
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
        run_on(common.backend, run)?
    }

    /// Trains with rank 0, as soon as it has begun the run: from the files that it has written into its directory,
    /// like a run that is resumed. The command line has no more to say: `run.toml` has all of it.
    fn join(self, common: Common, ranks: &Ranks) -> Result {
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
        run_on(common.backend, run)?
    }

    /// The directory that the command writes into.
    fn directory(&self) -> Option<&Path> {
        self.out.as_deref().filter(|_| !self.dry_run)
    }

    /// The lock of a directory that has had a run, so that a second one ends before it reads anything. Another
    /// directory is locked when the run begins.
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

    /// The run to go on with. A dry run may report another one than the directory has.
    fn earlier(&self, given: &Values) -> Result<Option<Earlier>> {
        match &self.out {
            Some(out) if self.resume || !self.dry_run => to_go_on_with(out, self.resume, given),
            _ => Ok(None),
        }
    }
}

/// The pairs of a run, and its tokenizers, which are trained on the pairs unless there are some.
fn read(plan: &mut Plan, earlier: Option<&Earlier>) -> Result<(Data, Tokenizers)> {
    let given = given_tokenizers(plan, earlier)?;
    let data = Data::read(plan, earlier)?;
    let tokenizers = match given {
        Some(given) => given,
        None => trained_tokenizers(plan, &data.train, earlier)?,
    };
    Ok((data, tokenizers))
}
