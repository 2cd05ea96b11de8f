//! PyTorch state dicts in and out: nothing is lost, everything that is wrong is named, and no file
//! can do harm.

#![cfg(feature = "ndarray")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use burn_ndarray::NdArray;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use transformer_core::formats::{PytorchError, PytorchExport, PytorchSystem, TensorProblem};
use transformer_core::models::WeightTying;
use transformer_core::nn::{Layer, LayerConfig};
use transformer_core::{Transformer, TransformerConfig};

type Tensors = BTreeMap<String, TensorData>;

/// A fixture's two files of weights.
const FILES: [&str; 2] = [SAFETENSORS, PT];
const SAFETENSORS: &str = "weights.safetensors";
const PT: &str = "weights.pt";

fn fixture(system: &str, file: &str) -> PathBuf {
    support::fixture(system).join(file)
}

/// The configuration of a system's fixture.
fn config(system: PytorchSystem) -> TransformerConfig {
    let (src, tgt) = (37, 31);
    let choices = match system {
        PytorchSystem::NotebookMini => TransformerConfig::notebook_mini(src),
        PytorchSystem::PaperReadme => TransformerConfig::paper_readme(src, tgt),
        PytorchSystem::PrenormNotebook => TransformerConfig::prenorm_notebook(src, tgt),
        PytorchSystem::LearnedPositions => TransformerConfig::learned_positions(src, tgt, 64),
        PytorchSystem::TorchNn => TransformerConfig::torch_nn(src, tgt),
        PytorchSystem::Annotated => TransformerConfig::annotated(src, tgt),
        other => panic!("no preset for {other}"),
    };
    TransformerConfig {
        d_model: 32,
        n_heads: 4,
        d_ff: if system == PytorchSystem::LearnedPositions {
            32
        } else {
            64
        },
        n_encoder_layers: 2,
        n_decoder_layers: 2,
        ..choices
    }
}

fn layer_config() -> LayerConfig {
    let mut config = LayerConfig::new(32, 4, 64).unwrap();
    config.self_attention.bias = true;
    config
}

fn import(path: &Path, system: PytorchSystem) -> Result<Transformer<NdArray>, PytorchError> {
    Transformer::from_pytorch(path, system, &config(system), &Default::default())
}

fn import_layer(path: &Path) -> Result<Layer<NdArray>, PytorchError> {
    Layer::from_pytorch(path, &layer_config(), &Default::default())
}

fn exported(model: &Transformer<NdArray>, system: PytorchSystem) -> Tensors {
    model.state_dict(system, &PytorchExport::default()).unwrap()
}

/// Names, shapes and bytes.
fn bits(tensors: &Tensors) -> Vec<(&str, &[usize], &[u8])> {
    tensors
        .iter()
        .map(|(name, data)| (name.as_str(), &data.shape[..], data.as_bytes()))
        .collect()
}

/// A safetensors file's tensors, read without our code.
fn stored(path: &Path) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Vec<_> = file
        .iter()
        .map(|(name, tensor)| {
            (
                name.to_owned(),
                tensor.shape().to_vec(),
                tensor.data().to_vec(),
            )
        })
        .collect();
    tensors.sort();
    tensors
}

fn is_buffer(name: &str) -> bool {
    name.ends_with(".pe") || name.ends_with(".pos_embedding")
}

#[test]
fn both_formats_hold_the_same_model() {
    for system in PytorchSystem::ALL {
        let [a, b] = FILES.map(|file| {
            let model = import(&fixture(system.name(), file), system).unwrap();
            exported(&model, system)
        });
        assert_eq!(bits(&a), bits(&b), "{system}");
    }
}

#[test]
fn export_equals_import() {
    for system in PytorchSystem::ALL {
        let path = fixture(system.name(), SAFETENSORS);
        let ours = exported(&import(&path, system).unwrap(), system);
        let theirs = stored(&path);
        let theirs: Vec<_> = theirs
            .iter()
            .filter(|(name, ..)| !is_buffer(name))
            .map(|(name, shape, bytes)| (name.as_str(), &shape[..], &bytes[..]))
            .collect();
        assert_eq!(bits(&ours), theirs, "{system}");
    }
}

#[test]
fn import_export_import_changes_no_bit() {
    let directory = tempfile::tempdir().unwrap();
    let options = [None, Some(7)].map(|position_table| PytorchExport { position_table });
    for system in PytorchSystem::ALL {
        let first = import(&fixture(system.name(), PT), system).unwrap();
        let expected = exported(&first, system);
        for file in FILES {
            for options in &options {
                let path = directory.path().join(file);
                first.to_pytorch(&path, system, options).unwrap();
                let again = import(&path, system).unwrap();
                assert_eq!(bits(&exported(&again, system)), bits(&expected), "{system}");
            }
        }
    }
    for file in FILES {
        let first = import_layer(&fixture("encoder-layer", file)).unwrap();
        let path = directory.path().join(file);
        first.to_pytorch(&path, &layer_config()).unwrap();
        let again = import_layer(&path).unwrap();
        let [first, again] = [first, again].map(|layer| layer.state_dict(&layer_config()).unwrap());
        assert_eq!(bits(&first), bits(&again));
    }
}

#[test]
fn names_are_those_of_the_fixtures() {
    for system in PytorchSystem::ALL {
        let names = system.names(&config(system)).unwrap();
        let theirs = stored(&fixture(system.name(), SAFETENSORS));
        let theirs: BTreeMap<_, _> = theirs
            .into_iter()
            .filter(|(name, ..)| !is_buffer(name))
            .map(|(name, shape, _)| (name, shape))
            .collect();
        assert_eq!(names, theirs, "{system}");
    }
}

/// Views of every kind, parameters, and PyTorch's own `OrderedDict`: see tests/pytorch/make_views.py.
#[test]
fn views_of_one_storage_are_read_as_the_tensors_they_are() {
    let path = fixture("encoder-layer", PT);
    let layer = import_layer(&path).unwrap();
    let expected = layer.state_dict(&layer_config()).unwrap();
    let views = import_layer(&path.with_file_name("views.pt")).unwrap();
    let views = views.state_dict(&layer_config()).unwrap();
    assert_eq!(bits(&views), bits(&expected));
}

#[test]
fn exported_position_tables_are_the_paper_s() {
    let system = PytorchSystem::Annotated;
    let model = import(&fixture(system.name(), PT), system).unwrap();
    let options = PytorchExport {
        position_table: Some(64),
    };
    let ours = model.state_dict(system, &options).unwrap();
    let theirs = stored(&fixture(system.name(), SAFETENSORS));
    let mut tables = 0;
    for (name, shape, bytes) in theirs.iter().filter(|(name, ..)| is_buffer(name)) {
        assert_eq!(ours[name].shape[..], shape[..]);
        let theirs = bytes
            .chunks(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        for (ours, theirs) in ours[name].iter::<f32>().zip(theirs) {
            assert!((ours - theirs).abs() < 1e-5);
        }
        tables += 1;
    }
    assert_eq!(tables, 2);
}

/// A state dict that a test writes by itself.
struct Written {
    tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
}

impl Written {
    fn of(system: PytorchSystem, config: &TransformerConfig) -> Self {
        let tensors = system
            .names(config)
            .unwrap()
            .into_iter()
            .map(|(name, shape)| {
                let bytes = vec![0; 4 * shape.iter().product::<usize>()];
                (name, (Dtype::F32, shape, bytes))
            })
            .collect();
        Self { tensors }
    }

    fn put(&mut self, name: &str, shape: &[usize], values: impl Iterator<Item = f32>) {
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        self.tensors
            .insert(name.to_owned(), (Dtype::F32, shape.to_vec(), bytes));
    }

    fn read(
        &self,
        system: PytorchSystem,
        config: &TransformerConfig,
    ) -> Result<Transformer<NdArray>, PytorchError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("weights.safetensors");
        let views = self.tensors.iter().map(|(name, (dtype, shape, bytes))| {
            (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        safetensors::serialize_to_file(views, None, &path).unwrap();
        Transformer::from_pytorch(&path, system, config, &Default::default())
    }

    fn problems(&self, system: PytorchSystem, config: &TransformerConfig) -> Vec<TensorProblem> {
        match self.read(system, config).unwrap_err() {
            PytorchError::Mismatch { problems, .. } => problems,
            other => panic!("{other}"),
        }
    }
}

fn tiny(system: PytorchSystem) -> TransformerConfig {
    TransformerConfig {
        src_vocab_size: 9,
        tgt_vocab_size: 9,
        d_model: 4,
        n_heads: 2,
        d_ff: 3,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..config(system)
    }
}

#[test]
fn one_error_lists_everything_that_is_wrong() {
    let system = PytorchSystem::PaperReadme;
    let config = tiny(system);
    let mut written = Written::of(system, &config);
    written.tensors.remove("encoder.norm.bias");
    written.tensors.remove("src_embed.weight");
    written.put("tgt_embed.weight", &[4, 9], [0.0; 36].into_iter());
    written.put("optimizer.step", &[1], [1.0].into_iter());
    let double = (Dtype::F64, vec![4], vec![0; 32]);
    written
        .tensors
        .insert("decoder.norm.weight".to_owned(), double);
    let error = written.read(system, &config).unwrap_err().to_string();
    let (_, listed) = error
        .split_once(": the state dict does not match the configuration: ")
        .unwrap();
    assert_eq!(
        listed,
        "`decoder.norm.weight` is f64, not f32, f16 or bf16; \
         `encoder.norm.bias` is missing; \
         `optimizer.step` is unknown; \
         `src_embed.weight` is missing; \
         `tgt_embed.weight` is [4, 9], not [9, 4]"
    );
}

#[test]
fn other_depths_are_missing_or_unknown_layers() {
    let system = PytorchSystem::TorchNn;
    let config = tiny(system);
    let deeper = TransformerConfig {
        n_encoder_layers: 2,
        ..config.clone()
    };
    let missing = Written::of(system, &config).problems(system, &deeper);
    let unknown = Written::of(system, &deeper).problems(system, &config);
    for (problems, kind) in [(missing, "missing"), (unknown, "unknown")] {
        assert_eq!(problems.len(), 12);
        for problem in problems {
            let text = problem.to_string();
            assert!(text.starts_with("`transformer.encoder.layers.1."), "{text}");
            assert!(text.ends_with(kind), "{text}");
        }
    }
    // However many layers are asked for, the error is as long as the file.
    let absurd = TransformerConfig {
        n_decoder_layers: 1 << 24,
        ..config.clone()
    };
    assert!(Written::of(system, &config).problems(system, &absurd).len() < 10_000);
}

#[test]
fn tied_tensors_must_be_equal() {
    let system = PytorchSystem::TorchNn;
    let config = TransformerConfig {
        tying: WeightTying::All,
        ..tiny(system)
    };
    let names = [
        "src_tok_emb.embedding.weight",
        "tgt_tok_emb.embedding.weight",
        "generator.weight",
    ];
    let mut written = Written::of(system, &config);
    let values = |first: f32| (0..36).map(move |at| if at == 0 { first } else { at as f32 });
    for name in names {
        written.put(name, &[9, 4], values(0.0));
    }
    let model = written.read(system, &config).unwrap();
    let tied = exported(&model, system);
    for name in names {
        assert_eq!(tied[name].as_bytes(), written.tensors[name].2);
    }

    // Negative zero is another bit pattern: the two are not one tensor.
    written.put(names[2], &[9, 4], values(-0.0));
    assert_eq!(
        written.problems(system, &config)[0].to_string(),
        "`generator.weight` differs from `src_tok_emb.embedding.weight`, which it is tied to"
    );
    // Files that store shared tensors once, under any of the names.
    written.tensors.remove(names[0]);
    written.tensors.remove(names[2]);
    assert!(written.read(system, &config).is_ok());
    written.tensors.remove(names[1]);
    assert_eq!(
        written.problems(system, &config)[0].to_string(),
        "`src_tok_emb.embedding.weight` is missing"
    );
}

#[test]
fn position_tables_must_be_the_paper_s() {
    let system = PytorchSystem::NotebookMini;
    let config = tiny(system);
    let name = "positional_encoding.pe";
    let table = |sign: f32| {
        (0..5000 * 4).map(move |at| {
            let (position, dimension) = ((at / 4) as f32, at % 4);
            // In single precision throughout, as PyTorch does it.
            let frequency =
                (sign * (dimension - dimension % 2) as f32 * 10_000_f32.ln() / 4.0).exp();
            let angle = position * frequency;
            if dimension % 2 == 0 {
                angle.sin()
            } else {
                angle.cos()
            }
        })
    };
    let mut written = Written::of(system, &config);
    written.put(name, &[1, 5000, 4], table(-1.0));
    assert!(written.read(system, &config).is_ok());

    // The wrong sign of the exponent, as in the reference system encoder-layer.
    written.put(name, &[1, 5000, 4], table(1.0));
    assert_eq!(
        written.problems(system, &config)[0].to_string(),
        "`positional_encoding.pe` is not the table of sines and cosines"
    );
    written.put(name, &[5000, 1, 4], table(-1.0));
    assert_eq!(
        written.problems(system, &config)[0].to_string(),
        "`positional_encoding.pe` is [5000, 1, 4], not [1, 1, 4]"
    );
}

#[test]
fn a_parameter_that_a_system_has_no_name_for_is_an_error() {
    let config = TransformerConfig {
        final_norm: true,
        tying: WeightTying::None,
        ..tiny(PytorchSystem::NotebookMini)
    };
    let error = PytorchSystem::NotebookMini.names(&config).unwrap_err();
    assert_eq!(
        error.to_string(),
        "notebook-mini has no names for `tgt_embedding.weight`, `encoder.final_norm.gamma`, \
         `encoder.final_norm.beta`, `decoder.final_norm.gamma`, `decoder.final_norm.beta`"
    );
}

#[test]
fn other_extensions_and_unwritable_paths_are_errors() {
    let system = PytorchSystem::NotebookMini;
    let model = config(system)
        .init::<NdArray>(0, &Default::default())
        .unwrap();
    let options = PytorchExport::default();
    let error = model
        .to_pytorch("weights.onnx", system, &options)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "weights.onnx: unsupported extension; use .pt, .pth or .safetensors"
    );
    for file in ["nowhere/weights.pt", "nowhere/weights.safetensors"] {
        let error = model.to_pytorch(file, system, &options).unwrap_err();
        assert!(matches!(error, PytorchError::Io { .. }), "{error}");
    }
    let error = import(Path::new("nowhere"), system).unwrap_err();
    assert!(matches!(error, PytorchError::Io { .. }), "{error}");
}

/// Reads bytes as a system's weights; a panic fails the test, which keeps the file.
fn read_bytes(bytes: &[u8], system: PytorchSystem) -> Result<Transformer<NdArray>, PytorchError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    catch_unwind(AssertUnwindSafe(|| import(file.path(), system))).unwrap_or_else(|_| {
        let (_, kept) = file.keep().unwrap();
        panic!("{system}: {} makes the import panic", kept.display())
    })
}

#[test]
fn files_that_are_no_state_dict_are_errors() {
    let system = PytorchSystem::NotebookMini;
    let header = |json: &str| [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat();
    let nested = "[".repeat(100_000);
    let cases: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"P".to_vec(),
        b"PK\x03\x04".to_vec(),
        b"hello, world".to_vec(),
        vec![0; 4096],
        vec![0xff; 4096],
        // A bare pickle.
        b"\x80\x02}q\x00.".to_vec(),
        // Headers of absurd length, depth and sizes.
        u64::MAX.to_le_bytes().to_vec(),
        [&(1_u64 << 40).to_le_bytes()[..], b"{}"].concat(),
        header(&nested),
        header(
            r#"{"embedding.weight":{"dtype":"F32","shape":[18446744073709551615,32],"data_offsets":[0,4]}}"#,
        ),
        header(
            r#"{"embedding.weight":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#,
        ),
        header(
            r#"{"embedding.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}}"#,
        ),
        header(r#"{"embedding.weight":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#),
        header(r#"{"embedding.weight":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}}"#),
    ];
    for bytes in cases {
        let error = read_bytes(&bytes, system).unwrap_err();
        assert!(
            matches!(error, PytorchError::Damaged { .. }),
            "{:?}: {error}",
            &bytes[..bytes.len().min(80)]
        );
    }
    let directory = tempfile::tempdir().unwrap();
    import(directory.path(), system).unwrap_err();
}

/// A file that Python would run a command for: see tests/pytorch/make_malicious.py.
#[test]
fn a_pickle_that_calls_code_is_refused() {
    let path = support::fixture("malicious.pt");
    let error = import(&path, PytorchSystem::NotebookMini).unwrap_err();
    assert!(error.to_string().contains("posix.system"), "{error}");
}

#[test]
fn truncated_files_are_errors() {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for system in PytorchSystem::ALL {
        for file in FILES {
            let whole = fs::read(fixture(system.name(), file)).unwrap();
            for _ in 0..60 {
                let len = rng.random_range(0..whole.len());
                assert!(read_bytes(&whole[..len], system).is_err(), "{system} {len}");
            }
        }
    }
}

/// A checksum guards each number of a `.pt` file, so that a damaged one is never read as another
/// model. Safetensors has none: there, only the header can be checked.
#[test]
fn damaged_files_are_errors() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for system in PytorchSystem::ALL {
        for file in FILES {
            let whole = fs::read(fixture(system.name(), file)).unwrap();
            let expected = exported(&read_bytes(&whole, system).unwrap(), system);
            let header = match file {
                SAFETENSORS => 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()),
                // The directory at the end.
                _ => 12_000,
            } as usize;
            for round in 0..200 {
                let mut bytes = whole.clone();
                for _ in 0..rng.random_range(1..4) {
                    // Every other time, where the structure is.
                    let at = match (round % 2, file) {
                        (0, _) => rng.random_range(0..whole.len()),
                        (_, SAFETENSORS) => rng.random_range(0..header),
                        (_, _) => whole.len() - 1 - rng.random_range(0..header),
                    };
                    bytes[at] = rng.random();
                }
                let read = read_bytes(&bytes, system);
                if let (Ok(model), PT) = (read, file) {
                    assert_eq!(bits(&exported(&model, system)), bits(&expected), "{system}");
                }
            }
        }
    }
}

/// Instead of a state dict without them.
#[test]
fn a_layer_with_other_parts_is_not_written() {
    let config = layer_config().with_memory();
    let layer: Layer<NdArray> = config.init(&Default::default());
    let error = layer.state_dict(&config).unwrap_err().to_string();
    assert!(error.contains("cross_attention"), "{error}");
}
