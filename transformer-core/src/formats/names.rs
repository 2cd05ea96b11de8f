//! Names of the files in a model directory.

use std::path::Path;

/// The configuration's file.
pub const CONFIG_FILE: &str = "config.json";
/// The weights' file.
pub const WEIGHTS_FILE: &str = "model.safetensors";
/// The file of the defaults of decoding, in Hugging Face's format.
pub const GENERATION_FILE: &str = "generation_config.json";
/// The folder of a run's checkpoints, in the run's directory.
pub(crate) const CHECKPOINTS: &str = "checkpoints";

/// The file of a tokenizer that source and target share, in Hugging Face's format.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// The file of the source's tokenizer, where the target has another.
pub const SOURCE_TOKENIZER_FILE: &str = "source_tokenizer.json";
/// The file of the target's tokenizer, where the source has another.
pub const TARGET_TOKENIZER_FILE: &str = "target_tokenizer.json";
/// The source's SentencePiece model, of one of Marian's models.
pub const SOURCE_PIECES_FILE: &str = "source.spm";
/// The target's SentencePiece model, of one of Marian's models.
pub const TARGET_PIECES_FILE: &str = "target.spm";
/// The SentencePiece model of source and target, of M2M100's models.
pub const SHARED_PIECES_FILE: &str = "sentencepiece.bpe.model";
/// The vocabulary of one of Marian's or M2M100's models: its tokens and their ids.
pub const VOCABULARY_FILE: &str = "vocab.json";
/// The vocabulary of the target, where it is not the source's.
pub const TARGET_VOCABULARY_FILE: &str = "target_vocab.json";
/// Settings of Hugging Face's class of the tokenizer.
pub const TOKENIZER_SETTINGS_FILE: &str = "tokenizer_config.json";
/// The tokens that were added to a tokenizer, with their ids, where its settings do not have them.
pub const ADDED_TOKENS_FILE: &str = "added_tokens.json";
/// The special tokens of a tokenizer, where its settings do not have them.
pub const SPECIAL_TOKENS_FILE: &str = "special_tokens_map.json";

/// All files that the tokenizers of a model may have.
pub const TOKENIZER_FILES: [&str; 11] = [
    TOKENIZER_FILE,
    SOURCE_TOKENIZER_FILE,
    TARGET_TOKENIZER_FILE,
    SOURCE_PIECES_FILE,
    TARGET_PIECES_FILE,
    SHARED_PIECES_FILE,
    VOCABULARY_FILE,
    TARGET_VOCABULARY_FILE,
    TOKENIZER_SETTINGS_FILE,
    ADDED_TOKENS_FILE,
    SPECIAL_TOKENS_FILE,
];

/// Whether a directory has tokenizers: one, or all files of a pair. A process that was killed while it saved a pair has
/// left some of them, which is not enough.
pub(crate) fn has_tokenizers(directory: &Path) -> bool {
    let has = |names: &[&str]| names.iter().all(|name| directory.join(name).exists());
    has(&[TOKENIZER_FILE])
        || has(&[SOURCE_TOKENIZER_FILE, TARGET_TOKENIZER_FILE])
        || has(&[SOURCE_PIECES_FILE, TARGET_PIECES_FILE, VOCABULARY_FILE])
        || has(&[SHARED_PIECES_FILE, VOCABULARY_FILE])
}
