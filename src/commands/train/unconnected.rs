//! Keys that are read and written, and that nothing in this version obeys yet.

use transformer_program::note;
use transformer_program::run_file::{CorpusEntry, RunFile};

/// Says which keys have no effect.
pub fn say_so(run: &RunFile) {
    let weighted = |entry: &CorpusEntry| entry.weight != 1.0;
    let keys = [
        ("data.train: weight", run.data.train.0.iter().any(weighted)),
        ("data.max_ratio", run.data.max_ratio.is_some()),
        ("data.drop_duplicates", run.data.drop_duplicates),
        ("tokenizer.dropout", run.tokenizer.dropout != 0.0),
    ];
    for (key, _) in keys.iter().filter(|(_, given)| *given) {
        note(format_args!("warning: `{key}` has no effect yet"));
    }
}
