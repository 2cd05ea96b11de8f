//! `annotated.rs` has the library's logits, loss and gradients, given the library's weights.

#![allow(missing_docs)]

#[allow(dead_code, reason = "its training and decoding run in the test of the examples")]
#[path = "../annotated.rs"]
mod annotated;

use annotated::{BOS, EOS, Sizes, ids};
use burn::backend::Autodiff;
use burn::backend::autodiff::grads::Gradients;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::Linear;
use burn::tensor::{Tensor, TensorData};
use transformer_core::nn::{Layer, Norm, Sublayer};
use transformer_core::{Transformer, TransformerConfig};
use transformer_examples::Backend;
use transformer_train::data::TokenizedPair;
use transformer_train::objective::{LossOptions, Objective};

type B = Autodiff<Backend>;

/// Reads parameters, or their gradients.
#[derive(Clone, Copy)]
struct Read<'a>(Option<&'a Gradients>);

impl Read<'_> {
    fn of<const D: usize>(self, param: &Param<Tensor<B, D>>) -> TensorData {
        match self.0 {
            None => param.val().into_data(),
            Some(gradients) => param.val().grad(gradients).expect("a gradient").into_data(),
        }
    }
}

/// The parameters of the library's model, in the order of `annotated::Transformer`'s fields.
struct OfLibrary<'a> {
    read: Read<'a>,
    values: Vec<Vec<f32>>,
}

impl OfLibrary<'_> {
    fn param<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.values.push(self.read.of(param).to_vec().expect("f32"));
    }

    /// The matrices that the library stores side by side, each by itself.
    fn side_by_side(&mut self, linear: &Linear<B>, count: usize) {
        let data = self.read.of(&linear.weight);
        let width = data.shape[1] / count;
        let all: Vec<f32> = data.to_vec().expect("f32");
        for part in 0..count {
            let rows = all.chunks(count * width);
            let rows = rows.flat_map(|row| &row[part * width..(part + 1) * width]);
            self.values.push(rows.copied().collect());
        }
    }

    fn norm(&mut self, Norm { gamma, beta, .. }: &Norm<B>) {
        self.param(gamma);
        self.param(beta.as_ref().expect("the paper's norm has a shift"));
    }

    fn layer(&mut self, layer: &Layer<B>) {
        let attention = layer.self_attention.as_ref().expect("attention");
        self.side_by_side(&attention.query_key_value, 3);
        self.param(&attention.heads.projection.weight);
        if let Some(attention) = &layer.cross_attention {
            self.param(&attention.query.weight);
            self.side_by_side(&attention.key_value, 2);
            self.param(&attention.heads.projection.weight);
        }
        for linear in [&layer.feed_forward.inner, &layer.feed_forward.outer] {
            self.param(&linear.weight);
            self.param(linear.bias.as_ref().expect("a bias"));
        }
        let cross = layer.cross_attention_sublayer.as_ref();
        let first = Some(&layer.self_attention_sublayer);
        let norms = [first, cross, Some(&layer.feed_forward_sublayer)];
        norms.into_iter().flatten().for_each(|Sublayer { norm, .. }| self.norm(norm));
    }

    fn model(model: &Transformer<B>, read: Option<&Gradients>) -> Vec<Vec<f32>> {
        let mut all = OfLibrary { read: Read(read), values: Vec::new() };
        all.param(&model.src_embedding.weight);
        model.encoder.layers.iter().for_each(|layer| all.layer(layer));
        model.decoder.layers.iter().for_each(|layer| all.layer(layer));
        all.values
    }
}

/// Gives a module these values, parameter by parameter.
struct Set(std::vec::IntoIter<Vec<f32>>);

impl ModuleMapper<B> for Set {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let values = self.0.next().expect("as many parameters as the library has");
        param.map(|old| {
            let data = TensorData::new(values, old.dims());
            Tensor::from_data(data, &old.device()).require_grad()
        })
    }
}

/// Collects the gradients of a module, parameter by parameter.
struct Collect<'a>(Read<'a>, Vec<Vec<f32>>);

impl ModuleVisitor<B> for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.1.push(self.0.of(param).to_vec().expect("f32"));
    }
}

#[track_caller]
fn assert_close(what: &str, ours: &[f32], library: &[f32]) {
    assert_eq!(ours.len(), library.len(), "{what}");
    for (at, (a, b)) in ours.iter().zip(library).enumerate() {
        assert!((a - b).abs() < 1e-5, "{what}, element {at}: {a} and {b}");
    }
}

#[test]
fn logits_loss_and_gradients_are_the_librarys() {
    let device = Default::default();
    let config = TransformerConfig {
        d_model: 24,
        n_heads: 4,
        d_ff: 40,
        n_encoder_layers: 2,
        n_decoder_layers: 2,
        dropout: 0.0,
        ..TransformerConfig::base(29)
    };
    let library = config.init::<B>(0, &device).expect("a model");
    let sizes = Sizes { vocabulary: 29, d_model: 24, heads: 4, d_ff: 40, layers: 2, dropout: 0.0 };
    let mut weights = Set(OfLibrary::model(&library, None).into_iter());
    let annotated = annotated::Transformer::<B>::new(&sizes, &device).map(&mut weights);
    assert_eq!(weights.0.len(), 0, "as many parameters as the library has");

    // Sources and targets of different lengths, with padding on both sides.
    let sources = vec![vec![5, 9, 17, 28, 3, 8], vec![4, 6], vec![11, 3, 3, 7]];
    let targets = vec![vec![7, 20], vec![21, 4, 13, 5], vec![9]];
    let source = ids(&[], &sources, &[EOS], &device);
    let target = ids(&[BOS], &targets, &[], &device);
    let logits = annotated.decode(target.clone(), &annotated.encode(source.clone()));
    // Those after real tokens: nothing ever reads the others.
    let values = |logits: Tensor<B, 3>| {
        let [_, len, vocabulary] = logits.dims();
        let rows = logits.into_data().to_vec::<f32>().expect("f32");
        let rows = rows.chunks(len * vocabulary).zip(&targets);
        let real = rows.map(|(row, target)| &row[..(1 + target.len()) * vocabulary]);
        Vec::from_iter(real).concat()
    };
    assert_close("logits", &values(logits.clone()), &values(library.forward(source, target)));

    let loss = annotated::loss(logits, ids(&[], &targets, &[EOS], &device), 0.1);
    let pairs = sources.into_iter().zip(targets);
    let pairs = pairs.map(|(source, target)| TokenizedPair { source, target });
    let batch = library.batch(&Vec::from_iter(pairs), &device);
    let sums = library.loss(batch, &LossOptions::smoothed(0.1));
    let library_loss = sums.loss / sums.weight;
    let value = |loss: &Tensor<B, 1>| loss.clone().into_data().to_vec::<f32>().expect("f32");
    assert_close("loss", &value(&loss), &value(&library_loss));

    let gradients = loss.backward();
    let mut ours = Collect(Read(Some(&gradients)), Vec::new());
    annotated.visit(&mut ours);
    let library = OfLibrary::model(&library, Some(&library_loss.backward()));
    assert_eq!(ours.1.len(), library.len());
    for (number, (ours, library)) in ours.1.iter().zip(&library).enumerate() {
        assert_close(&format!("gradient {number}"), ours, library);
    }
}

#[test]
fn the_learning_rate_is_the_librarys() {
    let config = transformer_train::TrainingConfig { warmup: 40, ..Default::default() };
    let schedule = transformer_train::optim::RateSchedule::new(&config, 24);
    for step in [1, 7, 39, 40, 41, 4000] {
        let (ours, library) = (annotated::rate(step, 24, 40), schedule.rate(step));
        assert!(
            (ours - library).abs() < 1e-12 * library.abs().max(1.0),
            "{step}: {ours} and {library}"
        );
    }
}
