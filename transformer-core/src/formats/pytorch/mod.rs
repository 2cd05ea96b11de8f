//! Import and export of PyTorch state dicts, under the names of the systems that they come from.
//!
//! ```text
//! file  ── state_dict (archive, zip_directory, old_archive, pickle; safetensors_file) ──  tensors by their names
//!       ── name_map (names, for one configuration) ──                     tensors by our paths
//!       ── fill ──                                                        the module
//! ```
//!
//! Tensors are read from the file (stored) one at a time, as they fill the module.

pub(crate) mod names;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use burn::tensor::TensorData;
use burn::tensor::backend::Backend;
use burn_store::ModuleSnapshot;
use serde::{Deserialize, Serialize};

use crate::formats::error::PytorchError;
use crate::formats::fill::{collected, fill};
use crate::formats::name_map::{Map, TiedNames};
use crate::formats::state_dict::{self, StateDict};
use crate::models::config::TransformerConfig;
use crate::models::transformer::Transformer;
use crate::nn::init::WeightInit;
use crate::nn::layer::{Layer, LayerConfig};
use names::Names;

/// A PyTorch implementation of the whole model, which determines the names of parameters.
///
/// The names do not determine norm placement, activation, number of heads or embedding scale. These are in the
/// configuration; each system has a preset with the choices of its classes.
///
/// | system | preset | example of a name |
/// |---|---|---|
/// | `NotebookMini` | [`notebook_mini`](TransformerConfig::notebook_mini) | `encoders.0.mha.W_q.weight` |
/// | `PaperReadme` | [`paper_readme`](TransformerConfig::paper_readme) | `encoder.layers.0.self_attn.w_q.weight` |
/// | `PrenormNotebook` | [`prenorm_notebook`](TransformerConfig::prenorm_notebook) | `decoder.layers.0.src_attn.out_proj.bias` |
/// | `LearnedPositions` | [`learned_positions`](TransformerConfig::learned_positions) | `encoder.transformer_layers.0.attention.W_q.weight` |
/// | `TorchNn` | [`torch_nn`](TransformerConfig::torch_nn) | `transformer.encoder.layers.0.self_attn.in_proj_weight` |
/// | `Annotated` | [`annotated`](TransformerConfig::annotated) | `encoder.layers.0.self_attn.linears.0.weight` |
///
/// For a single encoder layer, see [`Layer::from_pytorch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PytorchSystem {
    /// The reference system notebook-mini.
    NotebookMini,
    /// The reference system paper-readme.
    PaperReadme,
    /// The reference system prenorm-notebook.
    PrenormNotebook,
    /// The reference system learned-positions.
    LearnedPositions,
    /// PyTorch's own `torch.nn.Transformer`.
    ///
    /// It has neither embeddings nor a generator; these are named as in PyTorch's translation tutorial:
    /// `src_tok_emb.embedding.weight`, `tgt_tok_emb.embedding.weight`, `transformer.…`, `generator.weight`,
    /// `generator.bias`, and the buffer `positional_encoding.pos_embedding`.
    TorchNn,
    /// The Annotated Transformer.
    Annotated,
}

impl PytorchSystem {
    /// Every system.
    pub const ALL: [Self; 6] = [
        Self::NotebookMini,
        Self::PaperReadme,
        Self::PrenormNotebook,
        Self::LearnedPositions,
        Self::TorchNn,
        Self::Annotated,
    ];

    /// Its name, as in `"system"` of a fixture's `config.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotebookMini => "notebook-mini",
            Self::PaperReadme => "paper-readme",
            Self::PrenormNotebook => "prenorm-notebook",
            Self::LearnedPositions => "learned-positions",
            Self::TorchNn => "torch-nn",
            Self::Annotated => "annotated",
        }
    }

    /// The names and shapes of a model's state dict, without buffers.
    ///
    /// Tied tensors are listed under each of their names.
    ///
    /// # Errors
    /// When the configuration is invalid, or has parameters that the system has no names for.
    ///
    /// ```
    /// use transformer_core::TransformerConfig;
    /// use transformer_core::formats::PytorchSystem;
    ///
    /// # fn main() -> Result<(), transformer_core::formats::PytorchError> {
    /// let names = PytorchSystem::TorchNn.names(&TransformerConfig::torch_nn(1000, 900))?;
    /// assert_eq!(names["src_tok_emb.embedding.weight"], [1000, 512]);
    /// assert_eq!(
    ///     names["transformer.encoder.layers.5.self_attn.in_proj_weight"],
    ///     [3 * 512, 512],
    /// );
    /// # Ok(())
    /// # }
    /// ```
    pub fn names(
        self,
        config: &TransformerConfig,
    ) -> Result<BTreeMap<String, Vec<usize>>, PytorchError> {
        config.validate()?;
        Ok(self.map(config, usize::MAX)?.shapes())
    }

    fn map(self, config: &TransformerConfig, max_layers: usize) -> Result<Map, PytorchError> {
        let map = Map::transformer(self.table(), config, max_layers);
        map.map_err(|parameters| PytorchError::Unnamed {
            system: self.name(),
            parameters,
        })
    }

    fn table(self) -> &'static Names {
        match self {
            Self::NotebookMini => &names::NOTEBOOK_MINI,
            Self::PaperReadme => &names::PAPER_README,
            Self::PrenormNotebook => &names::PRENORM_NOTEBOOK,
            Self::LearnedPositions => &names::LEARNED_POSITIONS,
            Self::TorchNn => &names::TORCH_NN,
            Self::Annotated => &names::ANNOTATED,
        }
    }
}

impl fmt::Display for PytorchSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Tensors that [`Transformer::to_pytorch`] writes besides the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PytorchExport {
    /// Number of positions in the tables of sines and cosines that some systems keep as buffers: their `max_len`,
    /// usually 5000. `None` omits the tables.
    ///
    /// `load_state_dict(strict=True)` requires exactly the buffers that the class registers.
    pub position_table: Option<usize>,
}

impl<B: Backend> Transformer<B> {
    /// Loads a model from a PyTorch state dict: a `.pt` file, as written by `torch.save(model.state_dict(), …)` (also
    /// before PyTorch 1.6), or a `.safetensors` file, in single precision or in either kind of half precision. No code
    /// in a file is executed.
    ///
    /// Tied weights may have several names, and must then be equal. Tables of sines and cosines, which some systems
    /// keep as buffers, must match the configuration; they are not loaded.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged; when the configuration is invalid or has parameters that the system
    /// has no names for; when tensors are missing, unknown, of the wrong shape or type, or not tied as they should be:
    /// one error then lists them all.
    pub fn from_pytorch(
        path: impl AsRef<Path>,
        system: PytorchSystem,
        config: &TransformerConfig,
        device: &B::Device,
    ) -> Result<Self, PytorchError> {
        config.validate()?;
        let path = path.as_ref();
        let dict = StateDict::read(path).map_err(|error| error.into_pytorch(path))?;
        // A file has at most as many layers as tensors, so one more is sure to be reported as missing.
        let map = system.map(config, dict.tensors.len() + 1)?;
        check(path, &map, &dict)?;
        let mut model = config.init_from(&mut WeightInit::zeros(), device)?;
        import(path, &map, &dict, &mut model)?;
        Ok(model)
    }

    /// Writes a PyTorch state dict, in the format given by the extension: `.pt` (or `.pth`) or `.safetensors`.
    ///
    /// # Errors
    /// When the configuration has parameters that the system has no names for, the extension is not one of these, or
    /// the file cannot be written; an existing one is then unchanged.
    pub fn to_pytorch(
        &self,
        path: impl AsRef<Path>,
        system: PytorchSystem,
        options: &PytorchExport,
    ) -> Result<(), PytorchError> {
        state_dict::write(path.as_ref(), &self.state_dict(system, options)?)
    }

    /// The PyTorch state dict that [`to_pytorch`](Self::to_pytorch) writes, in single precision.
    ///
    /// # Errors
    /// When the configuration has parameters that the system has no names for.
    pub fn state_dict(
        &self,
        system: PytorchSystem,
        options: &PytorchExport,
    ) -> Result<BTreeMap<String, TensorData>, PytorchError> {
        let map = system.map(self.config(), usize::MAX)?;
        let mut tensors = map.export(&collected(self), TiedNames::Every);
        if let Some(len) = options.position_table {
            tensors.extend(map.position_tables(len));
        }
        Ok(tensors)
    }
}

impl<B: Backend> Layer<B> {
    /// Loads a layer from a PyTorch state dict with the names of the reference system encoder-layer, such as
    /// `self_attn.Wq.weight` and `fc1.bias`.
    ///
    /// # Errors
    /// As [`Transformer::from_pytorch`].
    pub fn from_pytorch(
        path: impl AsRef<Path>,
        config: &LayerConfig,
        device: &B::Device,
    ) -> Result<Self, PytorchError> {
        config.validate()?;
        let path = path.as_ref();
        let dict = StateDict::read(path).map_err(|error| error.into_pytorch(path))?;
        let map = layer_map(config)?;
        check(path, &map, &dict)?;
        let init = &mut WeightInit::zeros();
        let mut layer = config.init_from(init, device);
        import(path, &map, &dict, &mut layer)?;
        Ok(layer)
    }

    /// Writes the layer under the same names, as [`Transformer::to_pytorch`] writes a model.
    ///
    /// # Errors
    /// When the layer has parameters that the reference system lacks, such as cross-attention or a gate; when the
    /// extension is not `.pt`, `.pth` or `.safetensors`, or the file cannot be written.
    ///
    /// # Panics
    /// When the configuration does not match the layer.
    pub fn to_pytorch(
        &self,
        path: impl AsRef<Path>,
        config: &LayerConfig,
    ) -> Result<(), PytorchError> {
        state_dict::write(path.as_ref(), &self.state_dict(config)?)
    }

    /// The PyTorch state dict that [`to_pytorch`](Self::to_pytorch) writes, in single precision.
    ///
    /// # Errors
    /// When the layer has parameters that the reference system lacks.
    ///
    /// # Panics
    /// When the configuration does not match the layer.
    pub fn state_dict(
        &self,
        config: &LayerConfig,
    ) -> Result<BTreeMap<String, TensorData>, PytorchError> {
        let map = layer_map(config)?;
        Ok(map.export(&collected(self), TiedNames::Every))
    }
}

/// The names of the reference system encoder-layer.
fn layer_map(config: &LayerConfig) -> Result<Map, PytorchError> {
    let map = Map::encoder_layer(&names::ENCODER_LAYER, config);
    map.map_err(|parameters| PytorchError::Unnamed {
        system: "encoder-layer",
        parameters,
    })
}

/// Checks all tensors of a file.
fn check(path: &Path, map: &Map, dict: &StateDict) -> Result<(), PytorchError> {
    let problems = map.problems(dict);
    match problems.is_empty() {
        true => Ok(()),
        false => Err(PytorchError::Mismatch {
            path: path.to_owned(),
            problems,
        }),
    }
}

/// Fills a module with the checked tensors of a file.
fn import<B: Backend, M: ModuleSnapshot<B>>(
    path: &Path,
    map: &Map,
    dict: &StateDict,
    module: &mut M,
) -> Result<(), PytorchError> {
    fill::<B, M>(module, map.imports(dict)).map_err(|problem| PytorchError::Damaged {
        path: path.to_owned(),
        problem,
    })
}
