//! Tied weights: one stored matrix, one gradient, one value after any training.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData};
use transformer_core::models::{Table3, WeightTying};
use transformer_core::{Transformer, TransformerConfig};

use crate::common::*;

type B = Autodiff<NdArray>;

const TYINGS: [WeightTying; 4] = [
    WeightTying::None,
    WeightTying::SourceTarget,
    WeightTying::TargetGenerator,
    WeightTying::All,
];

fn tied(tying: WeightTying) -> TransformerConfig {
    TransformerConfig {
        src_vocab_size: 11,
        tying,
        ..tiny_without_dropout()
    }
}

#[test]
fn a_config_counts_the_parameters_of_its_model() {
    let mut configs: Vec<_> = TYINGS.into_iter().map(tied).collect();
    configs.extend(variants());
    configs.extend([
        TransformerConfig {
            attention_bias: false,
            generator_bias: false,
            ..tiny()
        },
        TransformerConfig::notebook_mini(50),
        TransformerConfig::prenorm_notebook(30, 40),
        TransformerConfig::learned_positions(8, 9, 10),
    ]);
    for config in configs {
        let model: Transformer<NdArray> = config.init(1, &Default::default()).unwrap();
        let listed: usize = parameters(&model).iter().map(|(_, _, v)| v.len()).sum();
        assert_eq!(
            model.num_params() as u128,
            config.num_params(),
            "{config:?}"
        );
        assert_eq!(listed as u128, config.num_params(), "{config:?}");
    }
}

#[test]
fn the_reference_system_paper_readme_has_the_parameters_that_it_prints() {
    let config = TransformerConfig::paper_readme(10_000, 10_000);
    assert_eq!(config.num_params(), 59_463_680);
    let model: Transformer<NdArray> = config.init(1, &Default::default()).unwrap();
    assert_eq!(model.num_params(), 59_463_680);
}

/// Table 3 counts in millions, for a vocabulary of "about 37000".
#[test]
fn the_paper_s_models_have_the_paper_s_sizes() {
    let table3 = |row| TransformerConfig::table3(row, 37_000);
    for (config, millions, tolerance) in [
        (TransformerConfig::base(37_000), 65.0, 0.05),
        (TransformerConfig::big(37_000), 213.0, 0.05),
        (table3(Table3::Heads(1)), 65.0, 0.05),
        (table3(Table3::Heads(32)), 65.0, 0.05),
        (table3(Table3::KeySize(16)), 58.0, 0.05),
        (table3(Table3::KeySize(32)), 60.0, 0.05),
        (table3(Table3::Layers(2)), 36.0, 0.07),
        (table3(Table3::Layers(4)), 50.0, 0.05),
        (table3(Table3::Layers(8)), 80.0, 0.05),
        (table3(Table3::Width(256)), 28.0, 0.05),
        (table3(Table3::Width(1024)), 168.0, 0.05),
        (table3(Table3::FeedForward(1024)), 53.0, 0.05),
        (table3(Table3::FeedForward(4096)), 90.0, 0.05),
        (table3(Table3::LearnedPositions(512)), 65.0, 0.05),
    ] {
        let counted = config.num_params() as f64 / 1e6;
        assert!(
            (counted / millions - 1.0).abs() < tolerance,
            "{counted} M, the paper has {millions} M: {config:?}"
        );
    }
}

#[test]
fn a_tied_matrix_is_stored_once() {
    for tying in TYINGS {
        let model = model::<NdArray>(&tied(tying), 1);
        assert_eq!(model.tgt_embedding.is_none(), tying.ties_source_target());
        assert_eq!(model.generator.weight.is_none(), tying.ties_generator());
    }
}

#[test]
fn tied_and_untied_with_equal_values_compute_the_same() {
    for tying in TYINGS {
        let model = model::<B>(&tied(tying), 2);
        let twin = untied_twin(&model);
        assert_close(logits(&model), logits(&twin), 1e-6);
    }
}

#[test]
fn the_gradient_of_a_tied_matrix_is_the_sum_of_its_uses() {
    for tying in TYINGS {
        let tied = model::<B>(&tied(tying), 3);
        let untied = untied_twin(&tied);
        let (tied_gradients, untied_gradients) = (loss(&tied).backward(), loss(&untied).backward());

        let of_source = gradient(&untied.src_embedding.weight, &untied_gradients);
        let target_weight = &untied.target_embedding().weight;
        let mut of_target = gradient(target_weight, &untied_gradients);
        let generator_weight = untied.generator.weight.as_ref().unwrap();
        let of_generator = gradient(generator_weight, &untied_gradients);
        for part in [&of_source, &of_target, &of_generator] {
            assert!(values(part.clone()).iter().any(|g| g.abs() > 1e-3));
        }

        if let Some(weight) = &tied.generator.weight {
            assert_close(gradient(weight, &tied_gradients), of_generator, 1e-4);
        } else {
            of_target = of_target + of_generator.transpose();
        }
        if let Some(embedding) = &tied.tgt_embedding {
            assert_close(
                gradient(&embedding.weight, &tied_gradients),
                of_target,
                1e-4,
            );
            assert_close(
                gradient(&tied.src_embedding.weight, &tied_gradients),
                of_source,
                1e-4,
            );
        } else {
            assert_close(
                gradient(&tied.src_embedding.weight, &tied_gradients),
                of_source + of_target,
                1e-4,
            );
        }

        let layers = gradients(&tied.decoder, &tied_gradients);
        let same_layers = gradients(&untied.decoder, &untied_gradients);
        for (tied, untied) in layers.iter().zip(&same_layers) {
            assert_eq!(tied.0, untied.0);
            assert_close(&tied.2, &untied.2, 1e-4);
        }
    }
}

#[test]
fn tied_stays_tied_through_training() {
    for tying in [
        WeightTying::SourceTarget,
        WeightTying::TargetGenerator,
        WeightTying::All,
    ] {
        let config = tied(tying);
        let mut model = model::<B>(&config, 4);
        let before = values(model.target_embedding().weight.val());
        let first_loss = loss(&model).into_scalar();
        for _ in 0..3 {
            let gradients = loss(&model).backward();
            model = model.map(&mut Descent {
                gradients: &gradients,
                rate: 1e-2,
            });
        }
        assert!(loss(&model).into_scalar() < first_loss);
        assert_eq!(model.num_params() as u128, config.num_params());

        let table = values(model.target_embedding().weight.val());
        assert!(largest_difference(&before, &table) > 1e-4);
        if tying.ties_source_target() {
            assert_close(looked_up(&model), &table, 1e-5);
        }
        if tying.ties_generator() {
            assert_close(read_by_generator(&model), &table, 1e-5);
        }
    }
}

/// The source embedding's table, by looking every token up and undoing the scale.
fn looked_up(model: &Transformer<B>) -> Tensor<B, 3> {
    let every_token: Vec<u32> = (0..11).collect();
    model.src_embedding.forward(tokens(&[every_token])) / 12_f64.sqrt()
}

/// The matrix that the generator multiplies by, transposed: its logits for each unit vector.
fn read_by_generator(model: &Transformer<B>) -> Tensor<B, 2> {
    let bias = model.generator.bias.as_ref().unwrap().val();
    let units = Tensor::<B, 2>::eye(12, &Default::default()).unsqueeze_dim::<3>(0);
    let logits = model.generate(units) - bias.unsqueeze();
    logits.squeeze_dim::<2>(0).transpose()
}

fn logits(model: &Transformer<B>) -> Tensor<B, 3> {
    let src = tokens(&[[5, 3, 7, 10, 2], [4, 2, 0, 0, 0]]);
    let tgt = tokens(&[[1, 8, 4], [1, 3, 9]]);
    model.forward(src, tgt)
}

/// A sum of all logits, each with another factor.
fn loss(model: &Transformer<B>) -> Tensor<B, 1> {
    let logits = logits(model);
    let weights = uniform(&mut rng(5), logits.dims());
    (logits - weights * 3.0).powi_scalar(2).mean()
}

fn gradient(
    param: &Param<Tensor<B, 2>>,
    gradients: &<B as AutodiffBackend>::Gradients,
) -> Tensor<NdArray, 2> {
    param.val().grad(gradients).unwrap()
}

/// The same model with nothing tied: each use gets its own copy of the matrix.
fn untied_twin(model: &Transformer<B>) -> Transformer<B> {
    let config = TransformerConfig {
        tying: WeightTying::None,
        ..model.config().clone()
    };
    let mut twin: Transformer<B> = config.init(0, &Default::default()).unwrap();
    let target = &model.target_embedding().weight;
    twin.src_embedding.weight = copied(model.src_embedding.weight.val());
    twin.tgt_embedding.as_mut().unwrap().weight = copied(target.val());
    twin.generator.weight = Some(match &model.generator.weight {
        Some(weight) => copied(weight.val()),
        None => copied(target.val().transpose()),
    });
    twin.generator.bias = model.generator.bias.as_ref().map(|b| copied(b.val()));
    twin.encoder = model.encoder.clone().map(&mut Copier);
    twin.decoder = model.decoder.clone().map(&mut Copier);
    twin
}

/// A separate parameter with the same values.
fn copied<const D: usize>(tensor: Tensor<B, D>) -> Param<Tensor<B, D>> {
    let shape = tensor.dims();
    let values: Vec<f32> = tensor.into_data().iter().collect();
    Param::from_data(TensorData::new(values, shape), &Default::default())
}

struct Copier;

impl ModuleMapper<B> for Copier {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        copied(param.val())
    }
}

/// One step of plain gradient descent.
struct Descent<'a> {
    gradients: &'a <B as AutodiffBackend>::Gradients,
    rate: f64,
}

impl ModuleMapper<B> for Descent<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| {
            let gradient = tensor.grad(self.gradients).unwrap();
            Tensor::from_inner(tensor.inner() - gradient * self.rate).require_grad()
        })
    }
}
