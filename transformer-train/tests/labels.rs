//! Logits are computed where there is a label and nowhere else, and give the loss and the gradients that
//! all logits give.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData};
use transformer_core::decoding::{SourceTarget, padded, score};
use transformer_core::models::WeightTying;
use transformer_core::nn::NormPlacement;
use transformer_core::{LanguageModel, Transformer, TransformerConfig};
use transformer_instances as _;
use transformer_train::data::TokenizedPair;
use transformer_train::objective::{Labels, LossOptions, LossSums, Objective, sequence_loss};

type NdArray = burn_autodiff::Autodiff<burn_ndarray::NdArray>;
type Flex = burn_autodiff::Autodiff<burn_flex::Flex>;

const PAD: u32 = 0;
const EOS: u32 = 2;
const VOCAB_SIZE: usize = 13;

/// Lengths of targets, without `<eos>`: more positions than 64, with fewer labels; a sentence without a token;
/// one length, and so no padding; a batch of one; nothing but `<eos>`.
const LENGTHS: [&[usize]; 5] = [&[1, 40, 3], &[0, 7, 2, 5], &[5, 5, 5], &[4], &[0, 0]];

fn tokens(row: usize, len: usize) -> Vec<u32> {
    (0..len)
        .map(|at| 3 + ((row * 7 + at * 3) % 10) as u32)
        .collect()
}

fn pairs(lengths: &[usize]) -> Vec<TokenizedPair> {
    let pair = |(row, &len): (usize, &usize)| TokenizedPair {
        source: tokens(row + 5, row % 3 + 1),
        target: tokens(row, len),
    };
    lengths.iter().enumerate().map(pair).collect()
}

fn with_eos(sequence: &[u32]) -> Vec<u32> {
    [sequence, &[EOS]].concat()
}

fn config(tying: WeightTying) -> TransformerConfig {
    TransformerConfig {
        d_model: 8,
        n_heads: 2,
        d_ff: 16,
        n_encoder_layers: 1,
        n_decoder_layers: 2,
        generator_bias: true,
        dropout: 0.0,
        tying,
        ..TransformerConfig::base(VOCAB_SIZE)
    }
}

fn language_config(tied: bool) -> TransformerConfig {
    TransformerConfig {
        d_model: 8,
        n_heads: 2,
        d_ff: 16,
        n_decoder_layers: 2,
        dropout: 0.0,
        tying: match tied {
            true => WeightTying::TargetGenerator,
            false => WeightTying::None,
        },
        ..TransformerConfig::language_model(VOCAB_SIZE)
    }
}

/// Sums over a batch, and every gradient of the loss.
struct Outcome {
    sums: [f64; 4],
    gradients: Vec<Vec<f64>>,
}

impl Outcome {
    fn of<B: AutodiffBackend>(model: &impl Module<B>, sums: LossSums<B>) -> Self {
        struct Gradients<'a, B: AutodiffBackend>(&'a B::Gradients, Vec<Vec<f64>>);
        impl<B: AutodiffBackend> ModuleVisitor<B> for Gradients<'_, B> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
                let gradient = param.val().grad(self.0);
                let gradient = gradient.expect("every parameter has a gradient");
                self.1.push(gradient.into_data().iter().collect());
            }
        }
        let numbers = numbers(&sums);
        let gradients = sums.loss.backward();
        let mut found = Gradients::<B>(&gradients, Vec::new());
        model.visit(&mut found);
        Self {
            sums: numbers,
            gradients: found.1,
        }
    }

    fn is_finite(&self) -> bool {
        let mut numbers = self.sums.iter().chain(self.gradients.iter().flatten());
        numbers.all(|number| number.is_finite())
    }

    #[track_caller]
    fn assert_same(&self, expected: &Self, case: &str) {
        for (found, expected) in self.sums.iter().zip(&expected.sums) {
            let bound = 1e-6 * expected.abs();
            assert!(
                (found - expected).abs() <= bound,
                "{case}: {found}, not {expected}"
            );
        }
        assert_eq!(self.gradients.len(), expected.gradients.len(), "{case}");
        for (index, (found, expected)) in self.gradients.iter().zip(&expected.gradients).enumerate()
        {
            // Sums of many products, in another order: relative to the largest entry.
            let largest = expected.iter().fold(1e-3, |most: f64, g| most.max(g.abs()));
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() <= 1e-5 * largest,
                    "{case}, gradient {index}: {found}, not {expected}"
                );
            }
        }
    }
}

/// Loss, negative log-likelihood, correct labels, labels.
fn numbers<B: AutodiffBackend>(sums: &LossSums<B>) -> [f64; 4] {
    [&sums.loss, &sums.nll, &sums.correct, &sums.weight]
        .map(|sum| sum.to_data().iter::<f64>().next().unwrap())
}

/// The loss of pairs from the logits of all positions.
fn of_all_logits<B: AutodiffBackend>(
    model: &Transformer<B>,
    pairs: &[TokenizedPair],
) -> LossSums<B> {
    let device = model.device();
    let batch = model.batch(pairs, &device);
    let labels: Vec<_> = pairs.iter().map(|pair| with_eos(&pair.target)).collect();
    let logits = model.forward(batch.source, batch.target);
    sequence_loss(logits, padded(&labels, PAD, &device), PAD, 0.1)
}

/// The loss of sequences from the logits of all positions.
fn of_all_logits_of_sequences<B: AutodiffBackend>(
    model: &LanguageModel<B>,
    sequences: &[Vec<u32>],
) -> LossSums<B> {
    let device = model.device();
    let batch = model.batch(sequences, &device);
    let labels: Vec<_> = sequences.iter().map(|row| with_eos(row)).collect();
    let logits = model.forward(batch.tokens);
    sequence_loss(logits, padded(&labels, PAD, &device), PAD, 0.1)
}

#[test]
fn the_loss_of_a_transformer_and_its_gradients_are_those_of_all_logits() {
    fn on<B: AutodiffBackend>() {
        for tying in [WeightTying::All, WeightTying::None] {
            let model: Transformer<B> = config(tying).init(3, &Default::default()).unwrap();
            for lengths in LENGTHS {
                let pairs = pairs(lengths);
                let sums = model.loss(
                    model.batch(&pairs, &model.device()),
                    &LossOptions::smoothed(0.1),
                );
                let expected = Outcome::of(&model, of_all_logits(&model, &pairs));
                let found = Outcome::of(&model, sums);
                found.assert_same(&expected, &format!("{tying:?}, {lengths:?}"));
            }
        }
    }
    on::<NdArray>();
    on::<Flex>();
}

#[test]
fn the_loss_of_a_language_model_and_its_gradients_are_those_of_all_logits() {
    fn on<B: AutodiffBackend>() {
        for tied in [true, false] {
            let config = language_config(tied);
            let model: LanguageModel<B> =
                config.init_language_model(3, &Default::default()).unwrap();
            for lengths in LENGTHS {
                let rows = lengths.iter().enumerate();
                let sequences: Vec<_> = rows.map(|(row, &len)| tokens(row, len)).collect();
                let sums = model.loss(
                    model.batch(&sequences, &model.device()),
                    &LossOptions::smoothed(0.1),
                );
                let expected = of_all_logits_of_sequences(&model, &sequences);
                let expected = Outcome::of(&model, expected);
                let found = Outcome::of(&model, sums);
                found.assert_same(&expected, &format!("tied {tied}, {lengths:?}"));
            }
        }
    }
    on::<NdArray>();
    on::<Flex>();
}

/// With the vector of token 1, `<bos>`, in place of that of `<pad>`.
fn with_start<B: AutodiffBackend>(table: Param<Tensor<B, 2>>) -> Param<Tensor<B, 2>> {
    table.map(|table| {
        let table = table.inner();
        let start = table.clone().slice([1..2]);
        Tensor::<B, 2>::from_inner(table.slice_assign([0..1], start)).require_grad()
    })
}

/// A start token that is `<pad>` is read, and learned, like one of its own.
#[test]
fn a_start_token_that_pads_gets_the_gradient_of_one_of_its_own() {
    fn on<B: AutodiffBackend>() {
        let config = config(WeightTying::None);
        let separate: Transformer<B> = config.init(3, &Default::default()).unwrap();
        let config = TransformerConfig {
            bos_id: PAD,
            ..config
        };
        let mut shared: Transformer<B> = config.init(3, &Default::default()).unwrap();
        let embedding = shared.tgt_embedding.as_mut().unwrap();
        embedding.weight = with_start(embedding.weight.clone());
        for lengths in LENGTHS {
            let pairs = pairs(lengths);
            let outcome = |model: &Transformer<B>| {
                let sums = model.loss(
                    model.batch(&pairs, &model.device()),
                    &LossOptions::smoothed(0.1),
                );
                Outcome::of(model, sums)
            };
            let (mut found, expected) = (outcome(&shared), outcome(&separate));
            // The target's embedding, of eight features, comes second.
            let (first, others) = found.gradients[1].split_at_mut(8);
            assert!(first.iter().any(|&gradient| gradient != 0.0));
            first.swap_with_slice(&mut others[..8]);
            found.assert_same(&expected, &format!("{lengths:?}"));
        }
    }
    on::<NdArray>();
    on::<Flex>();
}

#[test]
fn tokens_that_decoding_excludes_are_learned_like_all_others() {
    let config = config(WeightTying::All);
    let excluding = TransformerConfig {
        excluded_tokens: vec![PAD, 5],
        ..config.clone()
    };
    let [expected, found] = [config, excluding].map(|config| {
        let model: Transformer<NdArray> = config.init(3, &Default::default()).unwrap();
        let sums = model.loss(
            model.batch(&pairs(LENGTHS[1]), &model.device()),
            &LossOptions::smoothed(0.1),
        );
        Outcome::of(&model, sums)
    });
    found.assert_same(&expected, "with excluded tokens");
}

/// Makes hidden states of `<pad>` 1e15 times as large, which a pre-norm stack passes on to the generator.
fn loud_padding<B: AutodiffBackend>(table: Param<Tensor<B, 2>>) -> Param<Tensor<B, 2>> {
    table.map(|table| {
        let table = table.inner();
        let loud = table.clone().slice([0..1]) * 1e15;
        Tensor::<B, 2>::from_inner(table.slice_assign([0..1], loud)).require_grad()
    })
}

/// Makes logits so large that those of loud padding are infinite, and those of tokens are not.
fn loud_logits<B: AutodiffBackend>(weight: Param<Tensor<B, 2>>) -> Param<Tensor<B, 2>> {
    weight.map(|weight| Tensor::<B, 2>::from_inner(weight.inner() * 1e25).require_grad())
}

/// Infinity times zero is NaN: with the logits of padding, the loss would be NaN, though no label counts
/// there.
#[test]
fn a_transformer_computes_no_logits_of_padding() {
    fn on<B: AutodiffBackend>() {
        let config = TransformerConfig {
            norm: NormPlacement::Pre,
            ..config(WeightTying::None)
        };
        let mut model: Transformer<B> = config.init(3, &Default::default()).unwrap();
        let embedding = model.tgt_embedding.as_mut().unwrap();
        embedding.weight = loud_padding(embedding.weight.clone());
        model.generator.weight = model.generator.weight.take().map(loud_logits);

        let pairs = pairs(LENGTHS[1]);
        assert!(!numbers(&of_all_logits(&model, &pairs))[0].is_finite());
        let sums = model.loss(
            model.batch(&pairs, &model.device()),
            &LossOptions::smoothed(0.1),
        );
        assert!(Outcome::of(&model, sums).is_finite());
    }
    on::<NdArray>();
    on::<Flex>();
}

#[test]
fn a_language_model_computes_no_logits_of_padding() {
    fn on<B: AutodiffBackend>() {
        let config = TransformerConfig {
            norm: NormPlacement::Pre,
            ..language_config(false)
        };
        let mut model: LanguageModel<B> =
            config.init_language_model(3, &Default::default()).unwrap();
        model.embedding.weight = loud_padding(model.embedding.weight.clone());
        model.generator.weight = model.generator.weight.take().map(loud_logits);

        let sequences = [1, 6, 3].map(|len| tokens(len, len));
        let all = of_all_logits_of_sequences(&model, &sequences);
        assert!(!numbers(&all)[0].is_finite());
        let sums = model.loss(
            model.batch(&sequences, &model.device()),
            &LossOptions::smoothed(0.1),
        );
        assert!(Outcome::of(&model, sums).is_finite());
    }
    on::<NdArray>();
    on::<Flex>();
}

/// In GPT-2, `<eos>` is the only special token: it comes before a sequence and after it, and fills the batch. A batch
/// has the loss of its sequences, with the end of each one; an `<eos>` within a sequence is read like any other token.
#[test]
fn without_padding_a_batch_has_the_loss_of_its_sequences() {
    fn on<B: AutodiffBackend>() {
        let config = TransformerConfig {
            pad_id: EOS,
            bos_id: EOS,
            prompt_bos: false,
            ..language_config(true)
        };
        let model: LanguageModel<B> = config.init_language_model(3, &Default::default()).unwrap();
        let sequences = [tokens(0, 1), vec![5, EOS, 6, EOS, 7, 8], tokens(2, 3)];
        let outcome = |sequences: &[Vec<u32>]| {
            let batch = model.batch(sequences, &model.device());
            Outcome::of(&model, model.loss(batch, &LossOptions::smoothed(0.1))).sums
        };
        let together = outcome(&sequences);
        let alone = sequences.each_ref().map(|sequence| {
            let sums = outcome(std::slice::from_ref(sequence));
            assert_eq!(sums[3], sequence.len() as f64 + 1.0);
            sums
        });
        for (at, sum) in together.into_iter().enumerate() {
            let expected: f64 = alone.iter().map(|sums| sums[at]).sum();
            assert!((sum - expected).abs() < 1e-4, "{sum}, not {expected}");
        }
        // What comes before a token changes what is predicted after it, `<eos>` too.
        let log_probs = |sequence: Vec<u32>| {
            let pair = [SourceTarget::exact([], sequence)];
            score(&model, &pair, 64).unwrap()[0].log_probs[2]
        };
        assert!(log_probs(vec![5, EOS, 6]) != log_probs(vec![5, 7, 6]));
    }
    on::<NdArray>();
    on::<Flex>();
}

/// Four logits are the hidden states themselves.
fn of_hidden<B: AutodiffBackend>(
    rows: &[Vec<u32>],
    hidden: &[[f32; 4]],
) -> (Tensor<B, 3>, usize, LossSums<B>) {
    let device = Default::default();
    let shape = [rows.len(), hidden.len() / rows.len(), 4];
    let hidden = TensorData::new(hidden.as_flattened().to_vec(), shape);
    let hidden = Tensor::<B, 3>::from_data(hidden, &device).require_grad();
    let mut projected = 0;
    let labels = Labels::<B>::new(rows, PAD, &device);
    let sums = labels.loss(hidden.clone(), 0.1, |rows| {
        projected = rows.dims()[0];
        rows
    });
    (hidden, projected, sums)
}

/// Padding, wherever it is in a row, is not even read.
#[test]
fn not_a_number_in_padding_reaches_neither_loss_nor_gradient() {
    fn on<B: AutodiffBackend>() {
        const NAN: [f32; 4] = [f32::NAN; 4];
        let rows = [vec![3, 2], vec![0, 1, 2], vec![2]];
        let logits = |at: f32| [0.5 * at, -0.25, 1.0 - at, 0.125];
        let [a, b, c, d, e] = [1.0, 2.0, 3.0, 4.0, 5.0].map(logits);
        let (hidden, projected, sums) = of_hidden::<B>(&rows, &[a, b, NAN, NAN, c, d, e, NAN, NAN]);
        // The same five labels, one to a row.
        let alone = [3, 2, 1, 2, 2].map(|label| vec![label]);
        let (rows_alone, _, expected) = of_hidden::<B>(&alone, &[a, b, c, d, e]);

        assert_eq!(projected, 5);
        assert_eq!(numbers(&sums)[3], 5.0);
        for (found, expected) in numbers(&sums).into_iter().zip(numbers(&expected)) {
            assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
        }
        let gradient = |x: Tensor<B, 3>, sums: LossSums<B>| -> Vec<f32> {
            let gradient = x.grad(&sums.loss.backward()).unwrap();
            gradient.into_data().iter().collect()
        };
        let found = gradient(hidden, sums);
        let expected = gradient(rows_alone, expected);
        let expected: Vec<_> = expected.chunks(4).collect();
        let positions = [
            Some(0),
            Some(1),
            None,
            None,
            Some(2),
            Some(3),
            Some(4),
            None,
            None,
        ];
        for (found, label) in found.chunks(4).zip(positions) {
            match label {
                None => assert_eq!(found, [0.0; 4]),
                Some(label) => {
                    for (found, expected) in found.iter().zip(expected[label]) {
                        assert!((found - expected).abs() < 1e-6);
                    }
                }
            }
        }
    }
    on::<NdArray>();
    on::<Flex>();
}

#[test]
fn a_batch_without_any_label_has_a_loss_of_zero() {
    fn on<B: AutodiffBackend>() {
        let (_, _, sums) = of_hidden::<B>(&[vec![0, 0], vec![0]], &[[1.0, 2.0, 3.0, 4.0]; 4]);
        assert_eq!(numbers(&sums), [0.0; 4]);
    }
    on::<NdArray>();
    on::<Flex>();
}

#[test]
#[should_panic(expected = "positions [batch, tgt_len], and those of labels")]
fn hidden_states_of_another_length_are_refused() {
    of_hidden::<NdArray>(&[vec![3, 2], vec![2]], &[[1.0; 4]; 6]);
}
