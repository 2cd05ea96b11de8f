//! A model against others' results: fixtures, errors and their bounds.
//!
//! A [`Fixture`] is a folder as `scripts/make-pytorch-fixture` makes it, of any sizes; [`Pretrained`] a model
//! directory of Hugging Face, CTranslate2 or Marian with results computed from it.

mod compare;
mod config;
mod expected;
mod io;
mod language_model;
mod pretrained;
mod report;
mod translations;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::backend::Backend;
use transformer_core::Transformer;
use transformer_core::formats::{PytorchError, PytorchExport};
use transformer_core::nn::Layer;
use transformer_program::read_regular;

use self::compare::compare_layer;
use self::config::{ModelSystem, System};
use self::io::Io;
pub use self::pretrained::Pretrained;
pub use self::report::Report;

/// The file of inputs and of the others' results.
const IO_FILE: &str = "io.safetensors";

/// A system's weights and inputs, and PyTorch's results.
pub struct Fixture {
    folder: PathBuf,
    system: System,
    io: Io,
}

/// One of a fixture's two files of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WeightsFile {
    /// `weights.safetensors`
    Safetensors,
    /// `weights.pt`
    Pt,
}

impl WeightsFile {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Safetensors, Self::Pt];

    /// Its name in the folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "weights.safetensors",
            Self::Pt => "weights.pt",
        }
    }
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

impl Fixture {
    /// Reads a folder.
    ///
    /// # Errors
    /// When a file cannot be read or does not describe a fixture.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref().to_owned();
        let path = folder.join("config.json");
        let read = || -> Result<System> {
            System::from_json(serde_json::from_slice(&read_regular(&path)?)?)
        };
        let system = read().map_err(|error| format!("{}: {error}", path.display()))?;
        let path = folder.join(IO_FILE);
        let io = Io::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { folder, system, io })
    }

    /// Measures how far the model is from PyTorch.
    ///
    /// # Errors
    /// When the weights cannot be read, or `io.safetensors` lacks something or does not fit them.
    pub fn compare<B: Backend>(&self, weights: WeightsFile, device: &B::Device) -> Result<Report> {
        let path = self.folder.join(weights.name());
        let rows = match &self.system {
            System::Model(system) => system.compare::<B>(&path, &self.io, device),
            System::Layer(config) => compare_layer::<B>(config, &path, &self.io, device),
        };
        let rows = rows.map_err(|error| match error.downcast::<PytorchError>() {
            Ok(error) => error.to_string(),
            Err(error) => format!("{}: {error}", self.folder.join(IO_FILE).display()),
        });
        Ok(Report {
            title: format!("{} ({})", self.folder.display(), weights.name()),
            rows: rows?,
            notes: Vec::new(),
        })
    }

    /// Reads the weights, and writes them to a folder of the same name in `out`, in both formats and with
    /// the buffers that the PyTorch classes keep.
    ///
    /// # Errors
    /// When the weights cannot be read or written, or the folder would be the fixture's own.
    pub fn export<B: Backend>(
        &self,
        weights: WeightsFile,
        out: &Path,
        device: &B::Device,
    ) -> Result<()> {
        let path = self.folder.join(weights.name());
        let folder = self.folder.canonicalize()?;
        let out = out.join(folder.file_name().unwrap_or_default());
        let named = |error| format!("{}: {error}", out.display());
        fs::create_dir_all(&out).map_err(named)?;
        if out.canonicalize().map_err(named)? == folder {
            return Err(format!("{}: would be overwritten", out.display()).into());
        }
        let files = WeightsFile::ALL.map(|weights| out.join(weights.name()));
        match &self.system {
            System::Model(described) => {
                let ModelSystem {
                    system,
                    config,
                    max_len,
                    ..
                } = &**described;
                let model = Transformer::<B>::from_pytorch(&path, *system, config, device)?;
                let options = PytorchExport {
                    position_table: Some(*max_len),
                };
                for file in files {
                    model.to_pytorch(file, *system, &options)?;
                }
            }
            System::Layer(config) => {
                let layer = Layer::<B>::from_pytorch(&path, config, device)?;
                for file in files {
                    layer.to_pytorch(file, config)?;
                }
            }
        }
        Ok(())
    }
}
