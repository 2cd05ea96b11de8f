//! The command line of the program, with its exit codes.

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::pictures::{attention, curves};
use crate::commands::{
    Common, Interrupted, Result, average, evaluate, export, info, quantize, score, tokenize, train,
    translate,
};
use crate::process::{compute_on_this_thread, note};

const EXAMPLES: &str = "\
Examples:
  Train on two text files, line n of one translating line n of the other, into the directory `model`:
    transformer train --parallel train.en train.fr --out model

  Translate, and measure on pairs that were held out:
    echo \"Where are you going?\" | transformer translate --model model
    transformer evaluate --model model --data model/valid.tsv

  `transformer COMMAND --help` explains a command and shows more.";

/// Trains, runs and measures translation models: the Transformer of "Attention Is All You Need"
#[derive(Debug, Parser)]
#[command(name = "transformer", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

// The order of `--help`: the commands that a newcomer needs come first.
#[derive(Debug, Subcommand)]
enum Command {
    Train(train::Train),
    Translate(translate::Translate),
    Evaluate(evaluate::Evaluate),
    Score(score::Score),
    Attention(attention::Attention),
    Average(average::Average),
    Quantize(quantize::Quantize),
    Export(export::Export),
    Tokenize(tokenize::Tokenize),
    Curves(curves::Curves),
    Info(info::Info),
}

impl CommandLine {
    /// Parses arguments, the first of which is the name of the program.
    ///
    /// # Errors
    /// Help that is asked for, and what is wrong with the arguments: clap's text.
    pub fn of<A: Into<OsString> + Clone>(
        arguments: impl IntoIterator<Item = A>,
    ) -> std::result::Result<Self, clap::Error> {
        Self::from_arg_matches(&program().try_get_matches_from(arguments)?)
    }

    /// Runs the command.
    ///
    /// # Errors
    /// The line to show where the command has not done all of its work.
    pub fn run(self) -> Result {
        let Self { command, common } = self;
        match command {
            Command::Train(train) => train::in_each_process(|ranks| train.run(common, ranks)),
            Command::Translate(translate) => translate.run(common),
            Command::Evaluate(evaluate) => evaluate.run(common),
            Command::Score(score) => score.run(common),
            Command::Attention(attention) => attention.run(common),
            Command::Average(average) => average.run(),
            Command::Quantize(quantize) => quantize.run(),
            Command::Export(export) => export.run(common),
            Command::Tokenize(tokenize) => tokenize.run(),
            Command::Curves(curves) => curves.run(),
            Command::Info(info) => info.run(),
        }
    }
}

/// Runs the program on the arguments of this process.
pub fn run_program() -> ExitCode {
    as_program(|| {
        let line = CommandLine::of(std::env::args_os());
        line.unwrap_or_else(|error| error.exit()).run()
    })
}

/// Runs the first function of a program, with the threads and settings of this one. An error is shown in one line.
pub fn as_program(run: impl FnOnce() -> Result) -> ExitCode {
    ignore_files_of_burn();
    let threads = compute_on_this_thread().map_err(Into::into);
    match threads.and_then(|()| run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit_code(&*error),
    }
}

/// Settings of Burn's and cubecl's own are their defaults. They would look for `burn.toml` and `cubecl.toml` in this directory
/// and all above it, and panic where one is damaged, or where this directory was removed.
fn ignore_files_of_burn() {
    use burn_std::config::{BurnConfig, RuntimeConfig};

    BurnConfig::storage().lock().get_or_insert_default();
    #[cfg(feature = "wgpu")]
    cubecl_runtime::config::CubeClRuntimeConfig::storage()
        .lock()
        .get_or_insert_default();
}

/// The program as clap has it. Help of commands that compute on no backend leaves out the flags of every command.
fn program() -> clap::Command {
    let mut program = CommandLine::command();
    // Gives each command the flags of every command.
    program.build();
    program.mut_subcommands(|command| match command.get_name() {
        "average" | "curves" | "info" | "quantize" | "tokenize" => command.mut_args(|arg| {
            let unused = ["backend", "seed"].contains(&arg.get_id().as_str());
            if unused { arg.hide(true) } else { arg }
        }),
        _ => command,
    })
}

/// The exit code of a command that has not done all of its work, whose error is shown.
fn exit_code(error: &(dyn Error + 'static)) -> ExitCode {
    if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
        return ExitCode::from(interrupted.exit_code);
    }
    // Errors of files name them; one of the system's alone is that of our output.
    match error.downcast_ref::<io::Error>() {
        // Its reader, such as `head`, has read enough.
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Some(error) => note(format_args!("error: standard output: {error}")),
        None => {
            let line = error.to_string().replace(['\n', '\r'], " ");
            note(format_args!("error: {line}"));
        }
    }
    ExitCode::FAILURE
}
