//! Names of the files in a model directory.

use std::path::Path;

use serde_json::Value;

use crate::formats::files::read_json;
use crate::formats::{argos, ctranslate2, marian};

/// The configuration file.
pub const CONFIG_FILE: &str = "config.json";
/// The weights file.
pub const WEIGHTS_FILE: &str = "model.safetensors";
/// The weights file of a CTranslate2 directory.
pub const CTRANSLATE2_FILE: &str = "model.bin";
/// The default decoding options, in Hugging Face's format.
pub const GENERATION_FILE: &str = "generation_config.json";
/// The folder of checkpoints in a run's directory.
pub(crate) const CHECKPOINTS: &str = "checkpoints";

/// The tokenizer shared by source and target, in Hugging Face's format.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// The source tokenizer, if the target has another.
pub const SOURCE_TOKENIZER_FILE: &str = "source_tokenizer.json";
/// The target tokenizer, if the source has another.
pub const TARGET_TOKENIZER_FILE: &str = "target_tokenizer.json";
/// The source's SentencePiece model in a Marian model.
pub const SOURCE_PIECES_FILE: &str = "source.spm";
/// The target's SentencePiece model in a Marian model.
pub const TARGET_PIECES_FILE: &str = "target.spm";
/// The SentencePiece model of source and target in an M2M100 model.
pub const SHARED_PIECES_FILE: &str = "sentencepiece.bpe.model";
/// The vocabulary of a Marian or M2M100 model, or of a byte-level BPE: tokens and their ids.
pub const VOCABULARY_FILE: &str = "vocab.json";
/// The merges of a byte-level BPE, beside its vocabulary.
pub const MERGES_FILE: &str = "merges.txt";
/// The target vocabulary, if it differs from the source's.
pub const TARGET_VOCABULARY_FILE: &str = "target_vocab.json";
/// The SentencePiece model of source and target in a T5 model.
pub const PIECES_FILE: &str = "spiece.model";
/// Settings of Hugging Face's tokenizer class.
pub const TOKENIZER_SETTINGS_FILE: &str = "tokenizer_config.json";
/// Tokens added to a tokenizer, with their ids, if its settings do not list them.
pub const ADDED_TOKENS_FILE: &str = "added_tokens.json";
/// The special tokens of a tokenizer, if its settings do not list them.
pub const SPECIAL_TOKENS_FILE: &str = "special_tokens_map.json";

/// The class of a tokenizer of bytes.
pub(crate) const BYTES_CLASS: &str = "ByT5Tokenizer";

/// All files that a model's tokenizers may have.
pub const TOKENIZER_FILES: [&str; 13] = [
    TOKENIZER_FILE,
    SOURCE_TOKENIZER_FILE,
    TARGET_TOKENIZER_FILE,
    SOURCE_PIECES_FILE,
    TARGET_PIECES_FILE,
    SHARED_PIECES_FILE,
    PIECES_FILE,
    VOCABULARY_FILE,
    MERGES_FILE,
    TARGET_VOCABULARY_FILE,
    TOKENIZER_SETTINGS_FILE,
    ADDED_TOKENS_FILE,
    SPECIAL_TOKENS_FILE,
];

/// Whether a directory has a tokenizer, or a complete pair. A process killed while saving a pair leaves an incomplete
/// one.
pub(crate) fn has_tokenizers(directory: &Path) -> bool {
    let has = |names: &[&str]| names.iter().all(|name| directory.join(name).exists());
    has(&[TOKENIZER_FILE])
        || has(&[SOURCE_TOKENIZER_FILE, TARGET_TOKENIZER_FILE])
        || has(&[SOURCE_PIECES_FILE, TARGET_PIECES_FILE, VOCABULARY_FILE])
        || has(&[SHARED_PIECES_FILE, VOCABULARY_FILE])
        || has(&[MERGES_FILE, VOCABULARY_FILE])
        || ctranslate2::is_in(directory)
        || marian::is_in(directory)
        || argos::is_in(directory)
        || has(&[PIECES_FILE])
        || has_bytes(directory)
}

/// Whether the tokenizer of a directory is ByT5's, which has no files besides settings.
pub(crate) fn has_bytes(directory: &Path) -> bool {
    let settings = read_json(&directory.join(TOKENIZER_SETTINGS_FILE)).ok();
    let class = settings.and_then(|text| class_of_tokenizer(&text));
    class.as_deref() == Some(BYTES_CLASS)
}

/// The tokenizer class named in a file, if any.
pub(crate) fn class_of_tokenizer(json: &str) -> Option<String> {
    let keys: Value = serde_json::from_str(json).ok()?;
    Some(keys["tokenizer_class"].as_str()?.to_owned())
}
