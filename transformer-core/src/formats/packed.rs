//! Loads packed models from model directories, tensor by tensor.

use std::path::Path;

use crate::formats::directory::ModelDirectory;
use crate::formats::error::ModelError;
use crate::packed::PackedModel;
use crate::packed::model::Model;
use crate::packed::weights::NamedWeights;
use transformer_cpu::{PackedMatrix, PackedPrecision};
use transformer_kernels::WeightLayout;

impl PackedModel {
    /// Loads a model directory ([`ModelDirectory`]) and packs the model.
    ///
    /// Each tensor is packed as soon as it is read, so memory holds at most one unpacked tensor. With
    /// [`PackedPrecision::Int8`], the integers of an 8-bit directory ([`quantize`](crate::formats::quantize)) are
    /// packed unchanged.
    ///
    /// # Errors
    /// As [`ModelDirectory::open`], and when values cannot be read or are damaged.
    pub fn load(
        directory: impl AsRef<Path>,
        precision: PackedPrecision,
    ) -> Result<Self, ModelError> {
        ModelDirectory::open(&directory)?.packed(precision)
    }
}

impl ModelDirectory {
    /// Loads the model, an encoder–decoder or a language model, packed for decoding on the CPU.
    ///
    /// # Errors
    /// When values cannot be read or are damaged.
    pub fn packed(&self, precision: PackedPrecision) -> Result<PackedModel, ModelError> {
        let mut weights = DirectoryWeights {
            directory: self,
            precision,
        };
        let model = Model::read(&mut weights, self.config())?;
        Ok(PackedModel::of(model, precision))
    }
}

/// The weights of a model directory.
struct DirectoryWeights<'a> {
    directory: &'a ModelDirectory,
    precision: PackedPrecision,
}

impl NamedWeights for DirectoryWeights<'_> {
    type Error = ModelError;

    fn matrix(
        &mut self,
        name: &str,
        sizes: [usize; 2],
        layout: WeightLayout,
    ) -> Result<PackedMatrix, ModelError> {
        if self.precision == PackedPrecision::Int8
            && let Some(rows) = self.directory.parameter(name).rows()
        {
            let (weights, scales) =
                rows.map_err(|problem| self.directory.tensor_error(&problem))?;
            return Ok(PackedMatrix::from_int8(&weights, &scales, sizes));
        }
        let [d_input, d_output] = sizes;
        let numbers = self.numbers(name, d_input * d_output)?;
        Ok(PackedMatrix::new(&numbers, sizes, layout, self.precision))
    }

    fn numbers(&mut self, name: &str, count: usize) -> Result<Vec<f32>, ModelError> {
        let numbers = self.directory.parameter(name).numbers();
        let numbers = numbers.map_err(|problem| self.directory.tensor_error(&problem))?;
        assert_eq!(numbers.len(), count, "number of values of `{name}`");
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;
    use tempfile::TempDir;

    use super::*;
    use crate::decoding::{
        DecodeOptions, MaxLength, NextToken, Request, Search, SourceTarget, score,
    };
    use crate::formats::quantize::quantize;
    use crate::models::config::TransformerConfig;
    use crate::models::language_model::LanguageModel;
    use crate::models::transformer::Transformer;
    use crate::models::tying::WeightTying;
    use crate::nn::positions::Positions;

    fn config() -> TransformerConfig {
        TransformerConfig {
            d_model: 24,
            n_heads: 3,
            d_k: Some(5),
            d_ff: 36,
            n_encoder_layers: 1,
            n_decoder_layers: 2,
            attention_bias: true,
            ..TransformerConfig::base(17)
        }
    }

    fn configs() -> [TransformerConfig; 3] {
        [
            config(),
            TransformerConfig {
                tying: WeightTying::None,
                generator_bias: true,
                positions: Positions::Learned { max_len: 12 },
                final_norm: true,
                embedding_norm: true,
                ..config()
            },
            TransformerConfig {
                tying: WeightTying::TargetGenerator,
                ..config()
            },
        ]
    }

    /// A folder with a saved model and its 8-bit copy.
    fn saved(config: &TransformerConfig) -> (TempDir, Transformer<NdArray>) {
        let folder = tempfile::tempdir().unwrap();
        let model: Transformer<NdArray> = config.init(3, &Default::default()).unwrap();
        model.save(folder.path().join("model")).unwrap();
        let directory = ModelDirectory::open(folder.path().join("model")).unwrap();
        quantize(&directory, folder.path().join("int8")).unwrap();
        (folder, model)
    }

    /// The bits of the log-probabilities of a few targets.
    fn bits(model: &impl NextToken) -> Vec<u32> {
        let pairs = [
            SourceTarget::new([5, 4, 9], [8, 3, 12, 7]),
            SourceTarget::new([16], [4]),
        ];
        let scores = score(model, &pairs, 64).unwrap();
        let log_probs = scores.iter().flat_map(|score| &score.log_probs);
        log_probs.map(|log_prob| log_prob.to_bits()).collect()
    }

    #[test]
    fn a_directory_is_packed_as_a_model_in_memory() {
        for config in configs() {
            let (folder, model) = saved(&config);
            for precision in [PackedPrecision::F32, PackedPrecision::Int8] {
                let expected = bits(&PackedModel::new(model.clone(), precision));
                let loaded = PackedModel::load(folder.path().join("model"), precision).unwrap();
                assert_eq!(loaded.config(), &config);
                assert_eq!(bits(&loaded), expected, "{precision:?}");
            }
        }
    }

    /// In 8 bits, a quantized directory's integers are packed; in 32 bits, the dequantized weights.
    #[test]
    fn a_quantized_directory_is_packed_as_its_integers_or_as_their_numbers() {
        let device = Default::default();
        for config in configs() {
            let (folder, model) = saved(&config);
            let directory = folder.path().join("int8");
            let loaded = PackedModel::load(&directory, PackedPrecision::Int8).unwrap();
            assert_eq!(
                bits(&loaded),
                bits(&PackedModel::new(model, PackedPrecision::Int8))
            );

            let expanded = Transformer::<NdArray>::load(&directory, &device).unwrap();
            let expected = bits(&PackedModel::new(expanded, PackedPrecision::F32));
            let loaded = PackedModel::load(&directory, PackedPrecision::F32).unwrap();
            assert_eq!(bits(&loaded), expected);
        }
    }

    #[test]
    fn a_language_model_is_packed_and_quantized_too() {
        let config = TransformerConfig {
            n_encoder_layers: 0,
            tying: WeightTying::TargetGenerator,
            ..config()
        };
        let folder = tempfile::tempdir().unwrap();
        let [plain, int8] = ["model", "int8"].map(|name| folder.path().join(name));
        let model = config.init_language_model::<NdArray>(3, &Default::default());
        let model = model.unwrap();
        model.save(&plain).unwrap();
        let directory = ModelDirectory::open(&plain).unwrap();
        quantize(&directory, &int8).unwrap();
        let targets = [SourceTarget::exact([], [8, 3, 12, 7])];
        let bits = |model: &PackedModel| {
            let scores = score(model, &targets, 64).unwrap();
            scores[0].log_probs.clone()
        };
        let loaded = directory.packed(PackedPrecision::F32).unwrap();
        let packed = |precision| PackedModel::of_language_model(model.clone(), precision);
        assert_eq!(bits(&loaded), bits(&packed(PackedPrecision::F32)));
        let loaded = PackedModel::load(&int8, PackedPrecision::Int8).unwrap();
        assert_eq!(bits(&loaded), bits(&packed(PackedPrecision::Int8)));

        let expanded = LanguageModel::<NdArray>::load(&int8, &Default::default()).unwrap();
        assert_eq!(expanded.config(), &config);
        // Neither kind is read as the other.
        let error = Transformer::<NdArray>::load(&int8, &Default::default()).unwrap_err();
        assert!(matches!(error, ModelError::OtherModel { .. }), "{error}");
    }

    #[test]
    fn a_damaged_number_is_named_with_its_file() {
        let (folder, _) = saved(&config());
        let path = folder.path().join("int8/model.safetensors");
        let mut bytes = std::fs::read(&path).unwrap();
        // 32-bit tensors come first, integers last.
        let last = bytes.len() - 1;
        bytes[last] = 0x80;
        std::fs::write(&path, bytes).unwrap();
        let directory = folder.path().join("int8");
        let error = PackedModel::load(&directory, PackedPrecision::Int8);
        let message = error.err().unwrap().to_string();
        let start = format!("{}: `", path.display());
        assert!(message.starts_with(&start), "{message}");
        assert!(
            message.ends_with(" holds -128; 8-bit weights must be from -127 to 127"),
            "{message}"
        );
    }

    #[test]
    fn a_quantized_directory_is_searched() {
        let (folder, model) = saved(&config());
        let directory = folder.path().join("int8");
        let loaded = PackedModel::load(directory, PackedPrecision::Int8).unwrap();
        let options = DecodeOptions {
            max_length: MaxLength::Tokens(6),
            ..DecodeOptions::beam(3)
        };
        let requests = [Request::new([5, 4, 9]), Request::new([16])];
        let found = Search::new(&loaded, options.clone())
            .unwrap()
            .run(&requests)
            .unwrap();
        let packed = PackedModel::new(model, PackedPrecision::Int8);
        let expected = Search::new(&packed, options)
            .unwrap()
            .run(&requests)
            .unwrap();
        assert_eq!(found, expected);
    }
}
