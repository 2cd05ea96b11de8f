//! Turns: the work is done once per line of standard input.

use std::fs;
use std::io::stdin;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use super::Result;

/// The outcome of the work.
#[derive(Debug, Default, Serialize)]
pub struct Outcome {
    /// Number of tokens trained on or decoded.
    pub tokens: usize,
    /// The best target of each source.
    pub targets: Vec<Vec<u32>>,
    /// Per sentence, the seconds to the first token and to all tokens.
    pub latencies: Vec<[f64; 2]>,
    /// The translation of each sentence.
    #[serde(skip)]
    pub translations: Vec<String>,
}

/// The measurements of one turn.
#[derive(Debug, Serialize)]
struct Turn {
    seconds: f64,
    peak_mib: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

/// The turns of a process.
#[derive(Debug)]
pub struct Turns {
    /// Memory before any input is read, in MiB.
    start_mib: f64,
    /// File for the translations of the last turn.
    pub translations: Option<PathBuf>,
}

impl Turns {
    /// Must be called before any input is read.
    pub fn new() -> Result<Self> {
        Ok(Self {
            start_mib: peak_mib()?,
            translations: None,
        })
    }

    /// Reports that the process is ready, and does the work once per line.
    pub fn run(self, mut work: impl FnMut() -> Result<Outcome>) -> Result {
        println!("{{\"start_mib\": {}}}", self.start_mib);
        for line in stdin().lines() {
            line?;
            let start = Instant::now();
            let outcome = work()?;
            let turn = Turn {
                seconds: start.elapsed().as_secs_f64(),
                peak_mib: peak_mib()?,
                outcome,
            };
            if let Some(path) = &self.translations {
                let lines = turn.outcome.translations.iter();
                let text: String = lines.map(|line| format!("{line}\n")).collect();
                fs::write(path, text)?;
            }
            println!("{}", serde_json::to_string(&turn)?);
        }
        Ok(())
    }
}

/// Peak memory of the process, in MiB.
fn peak_mib() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("no VmHWM in /proc/self/status")?.parse::<f64>()? / 1024.0)
}
