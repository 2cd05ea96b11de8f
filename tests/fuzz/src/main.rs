//! Fuzzing of every reader, of the command line, and of the kernels: inputs that are damaged, absurd or odd must end in
//! an error or in a result, without a panic, in bounded memory and time.
//!
//! | file | does |
//! |---|---|
//! | `targets/` | the code that is fuzzed: its seeds, and how an input is read |
//! | `mutate/` | how an input is made of a seed |
//! | `guard` | the limits of every input |
//! | `supervise` | detects failures that end the process |
//! | `campaign` | many inputs of a target |
//! | `../cases/TARGET/` | inputs that once failed, read again by the test |
//!
//! Without arguments, as in `cargo test`, all cases are read again, and each target is fuzzed for a moment. The long
//! run is `scripts/fuzz`.

mod campaign;
mod console;
mod guard;
mod mutate;
mod random;
mod supervise;
mod targets;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rayon::{ThreadPool, ThreadPoolBuilder};
// Finds the instances.
use transformer_instances as _;

use crate::campaign::{Length, fuzz, replay};
use crate::console::say;
use crate::targets::{ALL, Make};

/// Executions of a target, and their time, in the test.
const QUICK: Length = Length {
    executions: 2000,
    time: Some(Duration::from_millis(400)),
};

/// Bytes of a thread's stack: as many as a program's first thread has on Linux.
const STACK: usize = 8 << 20;

/// Executions of a target in a long run.
const LONG: u64 = 1_000_000;

/// Fuzzes readers, the command line and kernels
#[derive(Debug, Parser)]
struct Arguments {
    /// Only these targets; may be given again
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Executions of each target [default: 1000000, unless --seconds is given]
    #[arg(long, value_name = "N")]
    executions: Option<u64>,
    /// Seconds for each target, at most
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Seed of all inputs: the same seed, the same inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Reads this file once, with the target that is given
    #[arg(long, value_name = "FILE", requires = "target")]
    replay: Option<PathBuf>,
    /// Names the targets
    #[arg(long)]
    list: bool,
    /// Fuzzes for as long as the test does
    #[arg(long)]
    quick: bool,
    /// As other tests have it: nothing is run unless this is part of a target's name
    #[arg(hide = true)]
    filter: Option<String>,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    // The folder changes.
    if let Some(path) = &mut arguments.replay
        && let Ok(whole) = path.canonicalize()
    {
        *path = whole;
    }
    if arguments.list {
        for (name, _) in ALL {
            println!("{name}");
        }
        return ExitCode::SUCCESS;
    }
    let (Some(folder), Some(current)) = (supervise::folder(), supervise::current()) else {
        return supervise::start().unwrap_or_else(|error| {
            println!("{error}");
            ExitCode::FAILURE
        });
    };
    let pool = match prepare(&folder, current) {
        Ok(pool) => pool,
        Err(error) => {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match pool.install(|| run(&arguments, &folder)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            say(problem);
            ExitCode::FAILURE
        }
    }
}

/// Makes this process one that is watched, in a folder where commands may leave files. Returns the threads that inputs
/// are read on: if there is one, a kernel that is called there wakes no other, which would take half of the time.
fn prepare(folder: &Path, current: PathBuf) -> io::Result<ThreadPool> {
    console::take_over()?;
    std::env::set_current_dir(folder)?;
    guard::install(current);
    let pool = ThreadPoolBuilder::new().stack_size(STACK).build();
    pool.map_err(io::Error::other)
}

/// The targets that are asked for.
fn chosen(arguments: &Arguments) -> Result<Vec<(&'static str, Make)>, String> {
    for name in &arguments.target {
        if !ALL.iter().any(|(known, _)| known == name) {
            return Err(format!("no target `{name}`; --list names them"));
        }
    }
    let is_chosen = |name: &str| {
        let is_named = arguments.target.iter().any(|asked| asked == name);
        let has_part = arguments
            .filter
            .as_ref()
            .is_none_or(|part| name.contains(part.as_str()));
        (is_named || arguments.target.is_empty()) && has_part
    };
    let all = ALL.iter().copied();
    Ok(all.filter(|(name, _)| is_chosen(name)).collect())
}

/// Fuzzes the targets. Returns whether no failure was found.
fn run(arguments: &Arguments, folder: &Path) -> Result<bool, String> {
    let mut is_clean = true;
    let targets = chosen(arguments)?;
    let is_long = arguments.executions.is_some() || arguments.seconds.is_some();
    let is_quick = arguments.quick || (arguments.target.is_empty() && !is_long);
    let length = match is_quick {
        true => QUICK,
        false => Length {
            executions: match (arguments.executions, arguments.seconds) {
                (Some(executions), _) => executions,
                (None, Some(_)) => u64::MAX,
                (None, None) => LONG,
            },
            time: arguments.seconds.map(Duration::from_secs),
        },
    };
    say("| target | executions | seconds | per second | accepted, % | failures |");
    say("|---|---|---|---|---|---|");
    for (name, make) in targets {
        let own = folder.join(name);
        fs::create_dir_all(&own).map_err(|error| format!("{}: {error}", own.display()))?;
        let mut target = make(&own);
        if let Some(path) = &arguments.replay {
            let input = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            is_clean &= replay(name, &mut target, &input);
            continue;
        }
        for case in cases(name)? {
            is_clean &= replay(name, &mut target, &case);
        }
        let outcome = fuzz(name, &mut target, length, arguments.seed);
        say(&outcome);
        is_clean &= outcome.failures == 0;
        // A target that refuses its own seeds tests nothing.
        if outcome.accepted == 0 {
            say(format_args!("{name}: no input was accepted"));
            is_clean = false;
        }
        let _ = fs::remove_dir_all(&own);
    }
    Ok(is_clean)
}

/// The inputs of a target that once failed.
fn cases(target: &str) -> Result<Vec<Vec<u8>>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("cases")
        .join(target);
    let Ok(files) = fs::read_dir(&folder) else {
        return Ok(Vec::new());
    };
    let mut paths = Vec::new();
    for file in files {
        let file = file.map_err(|error| format!("{}: {error}", folder.display()))?;
        paths.push(file.path());
    }
    paths.sort();
    let read =
        |path: &PathBuf| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    paths.iter().map(read).collect()
}
