//! The loss against PyTorch's numbers.

use burn::tensor::{Int, Tensor};
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use transformer_train::objective::{LabelSmoothedCrossEntropy, LossSums};

type B = Autodiff<Flex>;

fn logits() -> Tensor<B, 2> {
    let rows = [
        [0.5, -1.0, 2.0, 0.0],
        [1.5, 1.5, -3.0, 0.25],
        [100.0, -100.0, 0.0, 50.0],
        [7.0, 7.0, 7.0, 7.0],
    ];
    Tensor::<B, 2>::from_data(rows, &Default::default()).require_grad()
}

fn labels() -> Tensor<B, 1, Int> {
    // The last row is padding.
    Tensor::from_data([2, 1, 3, 0], &Default::default())
}

fn mean(smoothing: f64) -> f64 {
    let loss = LabelSmoothedCrossEntropy::new(smoothing, 0).mean(logits(), labels());
    loss.into_data().iter::<f64>().next().unwrap()
}

/// `torch.nn.functional.cross_entropy(logits, labels, ignore_index=0, label_smoothing=…)`, in
/// float64.
#[test]
fn mean_is_pytorch_s() {
    for (smoothing, expected) in PYTORCH_MEANS {
        let found = mean(smoothing);
        assert!(
            (found - expected).abs() < 1e-5,
            "{smoothing}: {found}, not {expected}"
        );
    }
}

#[test]
fn gradient_is_pytorch_s() {
    let logits = logits();
    let loss = LabelSmoothedCrossEntropy::new(0.1, 0).mean(logits.clone(), labels());
    let gradient = logits.grad(&loss.backward()).unwrap().into_data();
    for (found, expected) in gradient.iter::<f64>().zip(PYTORCH_GRADIENT.as_flattened()) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }
}

/// As if no label were the padding's: an id beyond all entries.
#[test]
fn without_padding_every_label_counts() {
    let sums = |loss: LabelSmoothedCrossEntropy| {
        let LossSums {
            loss,
            nll,
            correct,
            weight,
            ..
        } = loss.sums(logits(), labels());
        [loss, nll, correct, weight].map(|sum| sum.into_data().iter::<f64>().next().unwrap())
    };
    let found = sums(LabelSmoothedCrossEntropy::without_padding(0.1));
    assert_eq!(found, sums(LabelSmoothedCrossEntropy::new(0.1, 4)));
    assert_eq!(found[3], 4.0);
    assert_eq!(sums(LabelSmoothedCrossEntropy::new(0.1, 0))[3], 3.0);
}

#[test]
fn a_loss_of_one_s_own_needs_neither_likelihood_nor_first_choice() {
    let of = |number: f32| Tensor::<B, 1>::from_data([number], &Default::default());
    let numbers = |sums: LossSums<B>| {
        [sums.loss, sums.nll, sums.correct, sums.weight].map(|sum| sum.into_scalar())
    };
    let sums = LossSums::new(of(3.0), of(2.0));
    assert_eq!(numbers(sums.clone()), [3.0, 3.0, 0.0, 2.0]);
    let sums = sums.with_nll(of(2.5)).with_correct(of(1.0));
    assert_eq!(numbers(sums), [3.0, 2.5, 1.0, 2.0]);
}

const PYTORCH_MEANS: [(f64, f64); 3] = [
    (0.0, 17.058073562),
    (0.1, 18.410156895),
    (0.4, 22.466406895),
];

const PYTORCH_GRADIENT: [[f64; 4]; 4] = [
    [0.044481570, 0.003451264, -0.071633359, 0.023700525],
    [0.136744719, -0.163255281, -0.006721662, 0.033232224],
    [0.325000000, -0.008333333, -0.008333333, -0.308333333],
    [0.000000000, 0.000000000, 0.000000000, 0.000000000],
];
