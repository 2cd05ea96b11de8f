//! The command line of the program, with its exit codes.

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::pictures::{attention, curves};
use crate::commands::{
    Common, Interrupted, Result, average, evaluate, export, generate, info, quantize, score,
    shortlist, tokenize, train, translate,
};
use crate::process::{compute_on_this_thread, note};

const EXAMPLES: &str = "\
Examples:
  Train on two parallel text files, and write the model to the directory `model`:
    transformer train --parallel train.en train.fr --out model

  Translate a sentence, and evaluate the model on the held-out pairs:
    echo \"Where are you going?\" | transformer translate --model model
    transformer evaluate --model model --data model/valid.tsv

Run `transformer COMMAND --help` for the flags and more examples of a command.";

/// The groups of commands in the program's help. A command in no group is listed after them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Train", &["train", "curves", "average", "shortlist"]),
    (
        "Run",
        &["translate", "generate", "serve", "evaluate", "score"],
    ),
    ("Inspect", &["info", "tokenize", "attention"]),
    ("Convert", &["quantize", "export"]),
];

/// Train, run and evaluate translation models: the Transformer of "Attention Is All You Need"
#[derive(Debug, Parser)]
#[command(name = "transformer", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(train::Train),
    Curves(curves::Curves),
    Average(average::Average),
    Shortlist(shortlist::Shortlist),
    Translate(translate::Translate),
    Generate(generate::Generate),
    Evaluate(evaluate::Evaluate),
    Score(score::Score),
    #[cfg(feature = "serve")]
    Serve(crate::commands::serve::Serve),
    Info(info::Info),
    Tokenize(tokenize::Tokenize),
    Attention(attention::Attention),
    Quantize(quantize::Quantize),
    Export(export::Export),
}

impl CommandLine {
    /// Parses arguments, the first of which is the name of the program.
    ///
    /// # Errors
    /// Clap's text: the requested help, or the problem with the arguments.
    pub fn of<A: Into<OsString> + Clone>(
        arguments: impl IntoIterator<Item = A>,
    ) -> std::result::Result<Self, clap::Error> {
        Self::from_arg_matches(&program().try_get_matches_from(arguments)?)
    }

    /// Runs the command.
    ///
    /// # Errors
    /// The line to show if the command fails.
    pub fn run(self) -> Result {
        let Self { command, common } = self;
        match command {
            Command::Train(train) => train::in_each_process(|ranks| train.run(&common, ranks)),
            Command::Curves(curves) => curves.run(),
            Command::Average(average) => average.run(),
            Command::Shortlist(shortlist) => shortlist.run(),
            Command::Translate(translate) => translate.run(&common),
            Command::Generate(generate) => generate.run(&common),
            Command::Evaluate(evaluate) => evaluate.run(&common),
            Command::Score(score) => score.run(&common),
            #[cfg(feature = "serve")]
            Command::Serve(serve) => serve.run(&common),
            Command::Info(info) => info.run(),
            Command::Tokenize(tokenize) => tokenize.run(),
            Command::Attention(attention) => attention.run(&common),
            Command::Quantize(quantize) => quantize.run(),
            Command::Export(export) => export.run(&common),
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

/// Runs a program's main function with the threads and settings of this program. An error is shown in one line.
pub fn as_program(run: impl FnOnce() -> Result) -> ExitCode {
    ignore_files_of_burn();
    let threads = compute_on_this_thread().map_err(Into::into);
    match threads.and_then(|()| run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit_code(&*error),
    }
}

/// Keeps the default settings of Burn and cubecl. Otherwise they look for `burn.toml` and `cubecl.toml` in the current
/// directory and its parents, and panic if a file is damaged or the current directory was removed.
fn ignore_files_of_burn() {
    use burn_std::config::{BurnConfig, RuntimeConfig};

    BurnConfig::storage().lock().get_or_insert_default();
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    cubecl_runtime::config::CubeClRuntimeConfig::storage()
        .lock()
        .get_or_insert_default();
}

/// The program as a clap command. The help of commands that compute on no backend omits the global options.
fn program() -> clap::Command {
    let mut program = CommandLine::command();
    // Adds the global options to each command.
    program.build();
    let help = help_template(&program);
    let program = program.help_template(help);
    program.mut_subcommands(|command| match command.get_name() {
        "average" | "curves" | "info" | "quantize" | "shortlist" | "tokenize" => {
            command.mut_args(|arg| {
                let unused = ["backend", "device", "seed"].contains(&arg.get_id().as_str());
                if unused { arg.hide(true) } else { arg }
            })
        }
        _ => command,
    })
}

/// The template of the program's help: as clap's own, but with the commands in [`GROUPS`].
fn help_template(program: &clap::Command) -> String {
    let styles = program.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let group = |title: &str, commands: &[&clap::Command]| {
        let mut text = format!("{header}{title}:{header:#}\n");
        for command in commands {
            let about = command
                .get_about()
                .map_or(String::new(), ToString::to_string);
            let name = command.get_name();
            text += &format!("  {literal}{name:<9}{literal:#}  {about}\n");
        }
        text + "\n"
    };
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n\n");
    for (title, names) in GROUPS {
        let commands = names
            .iter()
            .filter_map(|name| program.find_subcommand(name));
        text += &group(title, &commands.collect::<Vec<_>>());
    }
    let is_grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others = program.get_subcommands();
    let others: Vec<_> = others
        .filter(|other| !is_grouped(other.get_name()))
        .collect();
    text += &group("Other", &others);
    text + &format!("{header}Options:{header:#}\n{{options}}{{after-help}}")
}

/// Shows the error of a failed command, and returns its exit code.
fn exit_code(error: &(dyn Error + 'static)) -> ExitCode {
    if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
        return ExitCode::from(interrupted.exit_code);
    }
    // An error about a file names the file; a bare system error is about standard output.
    match error.downcast_ref::<io::Error>() {
        // The reader, such as `head`, has read enough.
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Some(error) => note(format_args!("error: standard output: {error}")),
        None => {
            let line = error.to_string().replace(['\n', '\r'], " ");
            note(format_args!("error: {line}"));
        }
    }
    ExitCode::FAILURE
}
