//! The reference systems, number for number with PyTorch.
//!
//! Each fixture holds a PyTorch state dict, inputs, and what PyTorch computed from them in double
//! precision; `transformer::parity` has the bounds.

use std::path::PathBuf;

use burn::tensor::backend::Backend;
use transformer::parity::{Fixture, WeightsFile};

fn compare<B: Backend>(system: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(system);
    let fixture = Fixture::open(folder).unwrap();
    for weights in WeightsFile::ALL {
        let report = fixture
            .compare::<B>(weights, &B::Device::default())
            .unwrap();
        // Shown by `cargo test -- --nocapture`.
        println!("{report}");
        assert!(report.passed(), "{report}");
    }
}

macro_rules! on_each_backend {
    ($($test:ident: $system:literal,)*) => {
        #[cfg(feature = "ndarray")]
        mod ndarray {
            $(#[test]
            fn $test() {
                super::compare::<burn_ndarray::NdArray>($system);
            })*
        }

        #[cfg(feature = "flex")]
        mod flex {
            $(#[test]
            fn $test() {
                super::compare::<burn_flex::Flex>($system);
            })*
        }
    };
}

on_each_backend! {
    notebook_mini: "notebook-mini",
    encoder_layer: "encoder-layer",
    paper_readme: "paper-readme",
    prenorm_notebook: "prenorm-notebook",
    learned_positions: "learned-positions",
    torch_nn: "torch-nn",
    annotated_transformer: "annotated",
}
