//! A text classifier: an encoder, and a linear layer on the mean over its positions.

use std::path::Path;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use transformer_core::burn;
use transformer_core::decoding::padded;
use transformer_core::formats::{WEIGHTS_FILE, load_weights};
use transformer_core::nn::{
    ConfigError, Context, EmbeddingConfig, Layer, LayerConfig, Mask, PositionalEncoding,
    PositionalEncodingConfig, Stack, StackConfig, TokenEmbedding, padding_positions,
};
use transformer_train::TrainError;
use transformer_train::data::{Checksum, Example, Lengths};
use transformer_train::objective::{LabelSmoothedCrossEntropy, LossOptions, LossSums, Objective};

/// Size of the vocabulary; token 0 is padding.
pub const VOCAB_SIZE: usize = 12;
const D_MODEL: usize = 16;
/// Number of classes, which are numbered from 0.
pub const CLASSES: usize = 2;

/// A text and its class.
#[derive(Debug, Clone, PartialEq)]
pub struct Labelled {
    pub text: Vec<u32>,
    pub class: u32,
}

impl Example for Labelled {
    fn lengths(&self) -> Lengths {
        Lengths {
            source: self.text.len(),
            target: 1,
        }
    }

    fn add_to(&self, checksum: &mut Checksum) {
        checksum.tokens(&self.text);
        checksum.tokens(&[self.class]);
    }
}

/// An encoder-only classifier.
#[derive(Module, Debug)]
pub struct Classifier<B: Backend> {
    pub embedding: TokenEmbedding<B>,
    positions: PositionalEncoding<B>,
    encoder: Stack<B, Layer<B>>,
    output: Linear<B>,
}

impl<B: Backend> Classifier<B> {
    /// A new classifier, with weights from the backend's generator.
    pub fn new(device: &B::Device) -> Result<Self, ConfigError> {
        let layer = LayerConfig::new(D_MODEL, 2, 2 * D_MODEL)?;
        Ok(Self {
            embedding: EmbeddingConfig::new(VOCAB_SIZE, D_MODEL).init(device),
            positions: PositionalEncodingConfig::new(D_MODEL).init(device),
            encoder: StackConfig::new(layer, 2).init(device),
            output: LinearConfig::new(D_MODEL, CLASSES).init(device),
        })
    }

    /// The same classifier with its embedding frozen.
    pub fn with_frozen_embedding(self) -> Self {
        Self {
            embedding: self.embedding.no_grad(),
            ..self
        }
    }

    /// Loads the weights that a run saved in a directory.
    pub fn load(directory: &Path, device: &B::Device) -> Result<Self, TrainError> {
        let model = Self::new(device)?;
        Ok(load_weights(model, directory.join(WEIGHTS_FILE))?)
    }

    /// Logits of the classes: `[batch, len]` to `[batch, CLASSES]`.
    pub fn forward(&self, texts: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let padding = padding_positions(texts.clone(), 0);
        let mask = Mask::padding(padding.clone());
        let x = self.positions.forward(self.embedding.forward(texts), 0);
        let at = Context {
            mask: Some(&mask),
            ..Context::default()
        };
        let hidden = self.encoder.forward(x, &at).hidden;
        let real: Tensor<B, 3> = padding.bool_not().float().unsqueeze_dim(2);
        let mean = (hidden * real.clone()).sum_dim(1) / real.sum_dim(1);
        self.output.forward(mean.squeeze_dim(1))
    }
}

impl<B: Backend> Objective<B> for Classifier<B> {
    type Example = Labelled;
    type Batch = (Tensor<B, 2, Int>, Tensor<B, 1, Int>);

    fn width(&self) -> Option<usize> {
        Some(D_MODEL)
    }

    fn batch(&self, examples: &[Labelled], device: &B::Device) -> Self::Batch {
        let texts: Vec<&[u32]> = examples.iter().map(|example| &example.text[..]).collect();
        let classes: Vec<i32> = examples
            .iter()
            .map(|example| example.class as i32)
            .collect();
        let classes = Tensor::from_ints(classes.as_slice(), device);
        (padded(&texts, 0, device), classes)
    }

    fn loss(&self, (texts, classes): Self::Batch, options: &LossOptions) -> LossSums<B> {
        let logits = self.forward(texts);
        LabelSmoothedCrossEntropy::without_padding(options.label_smoothing).sums(logits, classes)
    }
}

/// Token ids from 3 to 11, in `rows` rows.
pub fn sample_tokens<B: Backend>(rows: usize, len: usize) -> Tensor<B, 2, Int> {
    let ids: Vec<i64> = (0..rows * len).map(|at| 3 + (at * 5 % 9) as i64).collect();
    Tensor::<B, 1, Int>::from_data(&ids[..], &Default::default()).reshape([rows, len])
}
