//! Models in files: ours, Hugging Face's and PyTorch's.

pub mod files;
pub mod fill;
pub mod hugging_face;
pub mod name_map;
pub mod names;
pub mod options;
pub mod own;
pub mod packed;
pub mod pytorch;
pub mod quantize;
pub mod state_dict;
pub mod stored_weights;
pub mod weights;
