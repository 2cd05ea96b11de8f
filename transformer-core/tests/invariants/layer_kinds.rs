//! Kinds of layers that the paper has not: they compute what another implementation does, in `tests/fixtures/layers`
//! (scripts/make-layer-fixtures).

use std::fs;
use std::path::PathBuf;

use burn::module::Param;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};
use safetensors::SafeTensors;
use transformer_core::Transformer;
use transformer_core::nn::{BiasKind, Buckets, PositionBiasConfig};

use crate::common::*;

fn path(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/layers");
    PathBuf::from(folder).join(name)
}

/// The tensors of a file, each with its shape; they are of four bytes each.
struct Stored(Vec<u8>);

impl Stored {
    fn read(name: &str) -> Self {
        Self(fs::read(path(name)).unwrap())
    }

    fn names(&self) -> Vec<String> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        file.names().into_iter().map(str::to_owned).collect()
    }

    fn get<T>(&self, name: &str, number: fn([u8; 4]) -> T) -> Option<(Vec<usize>, Vec<T>)> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = file.tensor(name).ok()?;
        let (numbers, rest) = tensor.data().as_chunks::<4>();
        assert!(rest.is_empty());
        let numbers = numbers.iter().map(|&bytes| number(bytes));
        Some((tensor.shape().to_vec(), numbers.collect()))
    }

    fn floats(&self, name: &str) -> Option<Vec<f64>> {
        let (_, numbers) = self.get(name, f32::from_le_bytes)?;
        Some(numbers.into_iter().map(f64::from).collect())
    }

    fn tokens<B: Backend>(&self, name: &str) -> Tensor<B, 2, Int> {
        let (shape, numbers) = self.get(name, i32::from_le_bytes).unwrap();
        Tensor::from_data(TensorData::new(numbers, shape), &B::Device::default())
    }
}

/// Logits and gradients, with kernels that take gradients and with those that take none.
fn computes_the_same<B: AutodiffBackend>(name: &str) {
    let io = Stored::read(&format!("{name}/io.safetensors"));
    let expected = io.floats("logits").unwrap();
    let device = B::Device::default();
    let plain = Transformer::<B::InnerBackend>::load(path(name), &device).unwrap();
    let logits = plain.forward(io.tokens("src"), io.tokens("tgt"));
    assert_close(&values(logits), &expected, 1e-5);

    let model = Transformer::<B>::load(path(name), &device).unwrap();
    let logits = model.forward(io.tokens("src"), io.tokens("tgt"));
    assert_close(&values(logits.clone()), &expected, 1e-5);
    let (shape, upstream) = io.get("upstream", f32::from_le_bytes).unwrap();
    let upstream = Tensor::<B, 3>::from_data(TensorData::new(upstream, shape), &device);
    let gradients = gradients(&model, &(logits * upstream).sum().backward());
    for (path, _, found) in &gradients {
        let expected = io.floats(&format!("grad.{path}")).unwrap();
        let difference = largest_difference(found, &expected);
        // The reference is in double precision. T5's scores have no divisor, so that they are large, and so are their
        // roundings.
        assert!(difference <= 3e-5, "{path} is off by {difference}");
    }
    let stored = io
        .names()
        .into_iter()
        .filter(|name| name.starts_with("grad."));
    assert_eq!(gradients.len(), stored.count());
}

#[test]
fn t5_is_hugging_face_s() {
    computes_the_same::<Autodiff<NdArray>>("relative-bias");
    computes_the_same::<Autodiff<Flex>>("relative-bias");
}

#[test]
fn alibi_is_pytorch_s_attention_with_bloom_s_slopes() {
    computes_the_same::<Autodiff<NdArray>>("alibi");
    computes_the_same::<Autodiff<Flex>>("alibi");
}

#[test]
fn relative_positions_are_a_vector_per_pair_of_query_and_key() {
    computes_the_same::<Autodiff<NdArray>>("relative");
    computes_the_same::<Autodiff<Flex>>("relative");
}

#[test]
fn a_recurrence_is_a_loop_of_pytorch_s() {
    computes_the_same::<Autodiff<NdArray>>("recurrence");
    computes_the_same::<Autodiff<Flex>>("recurrence");
}

/// Each bucket's bias is its number.
#[test]
fn buckets_are_hugging_face_s() {
    let stored = Stored::read("relative-bias/buckets.safetensors");
    for name in stored.names() {
        let (_, expected) = stored.get(&name, i32::from_le_bytes).unwrap();
        let [ways, buckets, max_distance] = name.split('.').collect::<Vec<_>>()[..] else {
            panic!("{name}");
        };
        let [buckets, max_distance] = [buckets, max_distance].map(|size| size.parse().unwrap());
        let both_ways = ways == "both";
        let kind = BiasKind::Relative(Buckets {
            buckets,
            max_distance,
            both_ways,
        });
        let device = Default::default();
        let mut bias = PositionBiasConfig::new(kind, 1, 8).init::<NdArray>(&device);
        let numbers = Tensor::<NdArray, 1, Int>::arange(0..buckets as i64, &device).float();
        bias.learned = Some(Param::from_tensor(numbers.unsqueeze_dim(1)));
        let expected: Vec<f64> = expected.into_iter().map(f64::from).collect();

        let found = values(bias.forward(301, 301, &device));
        let (first, last) = (&found[..301], &found[300 * 301..]);
        assert_eq!(last, &expected[..301], "{name}");
        match both_ways {
            true => assert_eq!(first, &expected[300..], "{name}"),
            // They are masked.
            false => assert!(first.iter().all(|&bucket| bucket == 0.0)),
        }
        // The last of the positions alone, and two of them.
        assert_eq!(values(bias.forward(1, 301, &device)), last);
        assert_eq!(values(bias.forward(2, 301, &device)), found[299 * 301..]);
    }
}
