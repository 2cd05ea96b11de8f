//! Command lines: any of the flags that a command has, with values that are valid, absurd, or of another kind. They are
//! run in this process; training is a dry run.

use std::fs;
use std::path::Path;

use clap::{ArgAction, CommandFactory};
use transformer_core::formats::quantize;
use transformer_core::{ModelDirectory, Tokenizers, TransformerConfig};
use transformer_program::CommandLine;
use transformer_program::run_file::SECTIONS;
use transformer_train::data::train_bpe;

use super::choices::Choices;
use super::{Target, write};
use crate::mutate::{Format, compressed};

/// Names of files and folders, of which some are there.
const PATHS: [&str; 14] = [
    "missing",
    "missing/below",
    "",
    ".",
    "new/..",
    "model",
    "int8",
    "pairs.tsv",
    "pairs.tsv.gz",
    "empty",
    "run.toml",
    "new",
    "picture.svg",
    "picture.png",
];

const NUMBERS: [&str; 22] = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-0",
    "0.5",
    "1.5",
    "1e9",
    "1e300",
    "-1e300",
    "1e-300",
    "nan",
    "inf",
    "-inf",
    "255",
    "65536",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
];

const TEXTS: [&str; 12] = [
    "",
    " ",
    "the cat",
    "true",
    "false",
    "average",
    "bleu,chrf",
    "[",
    "\"",
    "a=b",
    "日本語\u{301}",
    "--",
];

/// A flag or an argument.
struct Argument {
    /// With its dashes; `None` for one without a name.
    flag: Option<String>,
    takes_values: bool,
    most_values: usize,
    /// Values that it accepts, if these are few.
    known: Vec<String>,
    is_required: bool,
}

struct Command {
    name: String,
    arguments: Vec<Argument>,
}

/// All commands with their flags, as clap has them.
fn commands() -> Vec<Command> {
    let mut program = CommandLine::command();
    program.build();
    let commands = program
        .get_subcommands()
        .filter(|command| command.get_name() != "help");
    commands
        .map(|command| Command {
            name: command.get_name().to_owned(),
            arguments: command.get_arguments().map(argument).collect(),
        })
        .collect()
}

fn argument(argument: &clap::Arg) -> Argument {
    let takes_values = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let range = argument.get_num_args();
    let known = argument.get_possible_values();
    Argument {
        flag: argument.get_long().map(|long| format!("--{long}")),
        takes_values,
        most_values: range.map_or(1, |range| range.max_values().min(3)),
        known: known
            .iter()
            .map(|value| value.get_name().to_owned())
            .collect(),
        is_required: argument.is_required_set(),
    }
}

/// The arguments that an input stands for, after the name of the program.
fn arguments(commands: &[Command], choices: &mut Choices) -> Vec<String> {
    let command = &commands[choices.below(commands.len())];
    let mut line = vec!["transformer".to_owned(), command.name.clone()];
    for argument in &command.arguments {
        let times = match argument.is_required {
            true => usize::from(!choices.one_in(10)),
            false => usize::from(choices.one_in(5)) * (1 + usize::from(choices.one_in(8))),
        };
        for _ in 0..times {
            add(argument, &command.name, choices, &mut line);
        }
    }
    if command.name == "train" {
        line.push("--dry-run".to_owned());
    }
    // The backend whose tensors need no device and no library.
    line.extend(["--backend", "flex"].map(String::from));
    // Decoding that ends when it must only would take long.
    let limits = [("translate", "--max-length"), ("evaluate", "--max-length")];
    for (name, flag) in limits {
        if command.name == name && !line.iter().any(|part| part == flag) {
            line.extend([flag, "5"].map(String::from));
        }
    }
    line
}

fn add(argument: &Argument, command: &str, choices: &mut Choices, line: &mut Vec<String>) {
    let flag = argument.flag.as_deref();
    // Given at the end; help and versions end the line.
    if matches!(
        flag,
        Some("--backend" | "--dry-run" | "--help" | "--version")
    ) {
        return;
    }
    line.extend(argument.flag.clone());
    if !argument.takes_values {
        return;
    }
    for _ in 0..1 + choices.below(argument.most_values.max(1)) {
        line.push(value(argument, command, choices));
    }
}

fn value(argument: &Argument, command: &str, choices: &mut Choices) -> String {
    let kind = choices.below(8);
    match (argument.flag.as_deref(), kind) {
        // The command does what these ask for, however long it takes.
        (Some("--max-length" | "--min-length" | "--sentences"), _) => {
            choices.pick(&["0", "1", "7", "x", "-1"]).to_owned()
        }
        (Some("--set"), 0..=5) => {
            let keys: Vec<&str> = SECTIONS
                .iter()
                .flat_map(|section| section.keys)
                .map(|key| key.path)
                .collect();
            let value = match choices.flag() {
                true => choices.pick(&NUMBERS),
                false => choices.pick(&TEXTS),
            };
            format!("{}={value}", choices.pick(&keys))
        }
        // A directory of a model, where most commands go on.
        (Some("--model"), 0..=2) => choices.pick(&["model", "int8"]).to_owned(),
        (Some("--data" | "--valid"), 0..=3) => "pairs.tsv".to_owned(),
        (None, 0..=3) => choices.pick(&["model", "int8", "missing"]).to_owned(),
        (Some("--out"), 0..=3) => format!("new/{command}{}", choices.below(1 << 16)),
        (_, 0..=3) if !argument.known.is_empty() => choices.pick(&argument.known),
        (_, 0..=5) => choices.pick(&NUMBERS).to_owned(),
        (_, 6) => choices.pick(&PATHS).to_owned(),
        _ => choices.pick(&TEXTS).to_owned(),
    }
}

/// A tiny model with its tokenizer, in 32 and in 8 bits, and its pairs, in the current folder.
fn prepare() {
    let tokenizer = train_bpe(["the cat and the dog"].into_iter(), 270).expect("a tokenizer");
    let vocab_size = tokenizer.vocab_size();
    let config = TransformerConfig {
        d_model: 4,
        n_heads: 2,
        d_ff: 4,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..TransformerConfig::base(vocab_size)
    };
    let model = config.init::<burn_flex::Flex>(0, &super::device());
    let model = model.expect("a configuration that can be");
    let tokenizers = Tokenizers::shared(tokenizer);
    model.save("model").expect("a model");
    tokenizers.save("model").expect("its tokenizer");
    quantize(&ModelDirectory::open("model").expect("a model"), "int8").expect("a model in 8 bits");
    files();
}

/// The files that commands may write to, as they are at first.
fn files() {
    fs::create_dir_all("new").expect("a folder");
    let pairs = b"the cat\tle chat\na dog\tun chien\nthe dog\tle chien\n";
    write(Path::new("pairs.tsv"), pairs);
    write(Path::new("pairs.tsv.gz"), &compressed(pairs));
    write(Path::new("empty"), b"");
    write(Path::new("run.toml"), b"[data]\ntrain = \"pairs.tsv\"\n");
}

/// Any command line.
pub fn command_line(_folder: &Path) -> Target {
    prepare();
    let commands = commands();
    let mut executions = 0_u64;
    Target {
        format: Format::Choices,
        seeds: Vec::new(),
        run: Box::new(move |input| {
            // Removes the files that commands have written.
            executions += 1;
            if executions.is_multiple_of(1000) {
                let _ = fs::remove_dir_all("new");
                files();
            }
            let line = arguments(&commands, &mut Choices::new(input));
            let Ok(line) = CommandLine::of(&line) else {
                return false;
            };
            let error = match line.run() {
                Ok(()) => return true,
                Err(error) => error.to_string(),
            };
            // Accepted by the parser.
            assert!(!error.is_empty());
            true
        }),
    }
}
