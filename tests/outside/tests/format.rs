//! A custom file format: `model.txt` has sizes in lines `key value`; `values.bin` has all parameters in single
//! precision, in the order of their names, with the matrices of linear layers transposed.

use std::fs;
use std::path::Path;

use burn::module::Module;
use burn::store::ModuleSnapshot;
use outside::sample_tokens;
use transformer_core::backend::NdArray;
use transformer_core::burn;
use transformer_core::decoding::MaxLength;
use transformer_core::formats::{
    Files, Format, ModelError, Opened, StoredParameter, TensorProblem,
};
use transformer_core::packed::PackedPrecision;
use transformer_core::{
    DecodeOptions, ModelDirectory, Request, Search, Transformer, TransformerConfig,
};

const KEYS: &str = "model.txt";
const VALUES: &str = "values.bin";

struct PlainFiles;

impl Format for PlainFiles {
    fn recognizes(&self, files: &Files) -> bool {
        files.has(KEYS) && files.has(VALUES)
    }

    fn open(&self, files: &Files) -> Result<Opened, ModelError> {
        let path = files.path(KEYS);
        let text = fs::read_to_string(&path).map_err(|source| ModelError::Io {
            path: path.clone(),
            source,
        })?;
        let size = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key));
            value
                .and_then(|value| value.trim().parse().ok())
                .ok_or_else(|| ModelError::Weights {
                    path: path.clone(),
                    problem: format!("no size `{key}`"),
                })
        };
        let config = TransformerConfig {
            d_model: size("d_model")?,
            n_heads: size("n_heads")?,
            d_ff: size("d_ff")?,
            n_encoder_layers: size("n_layers")?,
            n_decoder_layers: size("n_layers")?,
            ..TransformerConfig::base(size("vocab_size")?)
        };
        let mut shapes = config.parameter_shapes();
        shapes.sort();
        let mut first = 0;
        let mut parameters = Vec::new();
        for (name, shape) in shapes {
            let (path, begin) = (files.path(VALUES), first);
            first += shape.iter().product::<usize>();
            let (end, own, to_be) = (first, name.clone(), shape.clone());
            parameters.push(StoredParameter::floats(name, shape, move || {
                let values =
                    read(&path, begin, end).map_err(|problem| TensorProblem::Unreadable {
                        name: own.clone(),
                        problem,
                    })?;
                Ok(match is_linear(&own, &to_be) {
                    true => transposed(&values, to_be[0]),
                    false => values,
                })
            }));
        }
        Ok(Opened {
            format: "plain files".to_owned(),
            config,
            weights: files.path(VALUES),
            parameters,
            options: None,
            unused: Vec::new(),
        })
    }
}

fn is_linear(name: &str, shape: &[usize]) -> bool {
    shape.len() == 2 && !name.ends_with("embedding.weight")
}

/// Transposes `[rows, columns]` with this number of columns.
fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let column = |at: usize| values[at..].iter().step_by(columns).copied();
    (0..columns).flat_map(column).collect()
}

fn read(path: &Path, begin: usize, end: usize) -> Result<Vec<f32>, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let bytes = bytes
        .get(4 * begin..4 * end)
        .ok_or("the file is too short")?;
    let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    Ok(bytes.chunks(4).map(value).collect())
}

fn write(directory: &Path, model: &Transformer<NdArray>) {
    let config = model.config();
    let keys = [
        ("d_model", config.d_model),
        ("n_heads", config.n_heads),
        ("d_ff", config.d_ff),
        ("n_layers", config.n_decoder_layers),
        ("vocab_size", config.tgt_vocab_size),
    ];
    let lines: String = keys
        .iter()
        .map(|(key, size)| format!("{key} {size}\n"))
        .collect();
    fs::write(directory.join(KEYS), lines).unwrap();
    let mut parameters = model.collect(None, None, false);
    parameters.sort_by_key(|parameter| parameter.full_path());
    let mut bytes = Vec::new();
    for parameter in parameters {
        let values: Vec<f32> = parameter.to_data().unwrap().into_vec().unwrap();
        let values = match is_linear(&parameter.full_path(), &parameter.shape) {
            true => transposed(&values, parameter.shape[1]),
            false => values,
        };
        bytes.extend(values.into_iter().flat_map(f32::to_le_bytes));
    }
    fs::write(directory.join(VALUES), bytes).unwrap();
}

#[test]
fn its_model_is_the_one_that_was_written_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let config = TransformerConfig {
        d_model: 16,
        n_heads: 2,
        d_ff: 24,
        n_encoder_layers: 2,
        n_decoder_layers: 2,
        ..TransformerConfig::base(19)
    };
    let device = Default::default();
    let model = config.init::<NdArray>(5, &device).unwrap();
    write(folder.path(), &model);

    assert!(
        ModelDirectory::open(folder.path()).is_err(),
        "no format of the library's"
    );
    let directory = ModelDirectory::open_with(folder.path(), &[&PlainFiles]).unwrap();
    assert_eq!(directory.format(), "plain files");
    assert_eq!(directory.config(), &config);
    let read = directory.transformer::<NdArray>(&device).unwrap();
    assert_eq!(read.num_params(), model.num_params());
    let (source, target) = (sample_tokens(2, 5), sample_tokens(2, 4));
    let logits = |model: &Transformer<NdArray>| {
        let logits = model.forward(source.clone(), target.clone());
        logits.into_data().into_vec::<f32>().unwrap()
    };
    assert_eq!(logits(&read), logits(&model));

    let packed = directory.packed(PackedPrecision::F32).unwrap();
    let options = DecodeOptions {
        max_length: MaxLength::Tokens(8),
        ..DecodeOptions::beam(3)
    };
    let requests = [Request::new([5, 9, 4]), Request::new([7])];
    let found = Search::new(&packed, options.clone())
        .unwrap()
        .run(&requests)
        .unwrap();
    let expected = Search::new(&model, options)
        .unwrap()
        .run(&requests)
        .unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found[0].tokens, expected[0].tokens);
    }
}

#[test]
fn parameters_of_another_shape_are_refused_by_name() {
    struct Wrong;
    impl Format for Wrong {
        fn recognizes(&self, files: &Files) -> bool {
            PlainFiles.recognizes(files)
        }
        fn open(&self, files: &Files) -> Result<Opened, ModelError> {
            let mut opened = PlainFiles.open(files)?;
            opened.parameters.remove(0);
            let none = || Ok(Vec::new());
            opened
                .parameters
                .push(StoredParameter::floats("extra", [1], none));
            Ok(opened)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let config = TransformerConfig {
        d_model: 8,
        n_heads: 2,
        d_ff: 8,
        ..TransformerConfig::base(9)
    };
    write(folder.path(), &config.init(1, &Default::default()).unwrap());
    let error = ModelDirectory::open_with(folder.path(), &[&Wrong])
        .unwrap_err()
        .to_string();
    assert!(error.contains("values.bin"), "{error}");
    assert!(
        error.contains(" is missing") && error.contains("`extra` is unknown"),
        "{error}"
    );

    // A truncated file is reported when it is read.
    let values = fs::read(folder.path().join(VALUES)).unwrap();
    fs::write(folder.path().join(VALUES), &values[..values.len() - 4]).unwrap();
    let directory = ModelDirectory::open_with(folder.path(), &[&PlainFiles]).unwrap();
    let error = directory
        .transformer::<NdArray>(&Default::default())
        .unwrap_err();
    assert!(error.to_string().contains("too short"), "{error}");
}
