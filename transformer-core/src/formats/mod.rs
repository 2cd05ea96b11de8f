//! Models in files.
//!
//! | module | has |
//! |---|---|
//! | `own` | our directories: `config.json`, `model.safetensors`, matrices in 8 bits |
//! | `hugging_face` | directories of Hugging Face's `transformers` |
//! | `pytorch`, `name_map` | state dicts under the names of PyTorch implementations |
//! | `state_dict` | the files of tensors, in each of their formats |
//! | `directory`, `format` | a model directory, opened once; what kinds there are |
//! | `parameter`, `fill` | a model's parameters in files, read one by one into a module |
//! | `packed`, `quantize` | packed models of a directory; a directory in 8 bits |
//! | `options` | `generation_config.json` |
//! | `stored_weights` | tensors of any model, by name |
//! | `names`, `files`, `error` | the names of files; reading and replacing them; what can be wrong with them |

pub mod directory;
pub mod error;
pub mod files;
pub mod fill;
pub mod format;
pub mod hugging_face;
pub mod name_map;
pub mod names;
pub mod options;
pub mod own;
pub mod packed;
pub mod parameter;
pub mod pytorch;
pub mod quantize;
pub mod state_dict;
pub mod stored_weights;
