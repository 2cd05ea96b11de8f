//! Model files and directories.
//!
//! | module | contents |
//! |---|---|
//! | `own` | our own directories: `config.json`, `model.safetensors`, 8-bit matrices |
//! | `hugging_face` | directories of Hugging Face `transformers` |
//! | `ctranslate2`, `marian` | directories of CTranslate2; of Marian, and of Firefox's students |
//! | `argos` | packages of Argos Translate, whose models are CTranslate2's |
//! | `vocabularies`, `rows`, `converted` | their tokens, a row for the padding token, and their tokenizers as our files |
//! | `reader`, `protobuf` | reading binary files in order; the encoding of SentencePiece models |
//! | `pytorch`, `name_map` | PyTorch state dicts; mapping of tensor names |
//! | `state_dict` | tensor files in all their formats |
//! | `directory`, `format` | an open model directory; the supported formats |
//! | `parameter`, `fill` | stored parameters, loaded one at a time into a module |
//! | `packed`, `quantize` | loading packed models; writing a directory in 8 bits |
//! | `options` | `generation_config.json` |
//! | `shortlist` | files of lexical shortlists |
//! | `stored_weights` | the tensors of any model, by name |
//! | `names`, `files`, `error` | file names; reading and replacing files; errors |

pub(crate) mod argos;
pub(crate) mod converted;
pub(crate) mod ctranslate2;
pub(crate) mod directory;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod fill;
pub(crate) mod format;
pub(crate) mod hugging_face;
pub(crate) mod marian;
pub(crate) mod name_map;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod own;
pub(crate) mod packed;
pub(crate) mod parameter;
pub(crate) mod protobuf;
pub(crate) mod pytorch;
pub(crate) mod quantize;
pub(crate) mod reader;
pub(crate) mod rows;
mod shortlist;
pub(crate) mod state_dict;
pub(crate) mod stored_weights;
pub(crate) mod vocabularies;

pub use ctranslate2::CTranslate2Export;
pub use directory::ModelDirectory;
pub use error::{ModelError, PytorchError, TensorProblem};
pub use files::{remove_unfinished_files, rename_and_sync, replace_file, replace_file_with};
pub use format::{Files, Format, Opened, run_of_checkpoint};
pub use names::{
    ADDED_TOKENS_FILE, CONFIG_FILE, CTRANSLATE2_FILE, GENERATION_FILE, MERGES_FILE, PIECES_FILE,
    SHARED_PIECES_FILE, SOURCE_PIECES_FILE, SOURCE_TOKENIZER_FILE, SPECIAL_TOKENS_FILE,
    TARGET_PIECES_FILE, TARGET_TOKENIZER_FILE, TARGET_VOCABULARY_FILE, TOKENIZER_FILE,
    TOKENIZER_FILES, TOKENIZER_SETTINGS_FILE, VOCABULARY_FILE, WEIGHTS_FILE,
};
pub use own::config::{load_config, save_config};
pub use own::weights::{load_weights, save_weights};
pub use parameter::{Int8Rows, StoredParameter};
pub use pytorch::{PytorchExport, PytorchSystem};
pub use quantize::quantize;
pub use stored_weights::{StoredWeights, TensorKind};
