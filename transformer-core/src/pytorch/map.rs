//! A map of names for one configuration.

use std::collections::{BTreeMap, HashMap, HashSet};

use burn::tensor::{Bytes, DType, TensorData};
use burn_store::TensorSnapshot;

use super::PytorchSystem;
use super::names::{self, Layer, Layout, Line, PositionTable};
use super::state_dict::StateDict;
use crate::config::TransformerConfig;
use crate::error::{PytorchError, TensorProblem};
use crate::layer_config::{LayerConfig, Positions};
use crate::parameters::Parameter;
use crate::positional_encoding::sinusoid;

/// Every tensor of a state dict is in single precision.
const ELEMENT: usize = size_of::<f32>();

/// Tolerances for a table of sines and cosines: at its first position, and in addition for each
/// further one. PyTorch computes the angles in single precision.
const POSITION_TOLERANCE: [f64; 2] = [1e-5, 4e-7];

/// The correspondence between our tensors and theirs.
pub(super) struct Map {
    groups: Vec<Group>,
    position_tables: &'static [PositionTable],
    d_model: usize,
}

/// Tensors of ours that hold the same numbers as some of theirs, each concatenated.
struct Group {
    ours: Vec<Parameter>,
    theirs: Vec<Theirs>,
    layout: Layout,
}

/// A tensor of theirs.
struct Theirs {
    /// Its name; where weights are tied, all its names.
    names: Vec<String>,
    shape: Vec<usize>,
}

impl Map {
    /// The map of a whole model.
    ///
    /// Of a stack, at most `max_layers` are mapped.
    pub fn transformer(
        system: PytorchSystem,
        config: &TransformerConfig,
        max_layers: usize,
    ) -> Result<Self, PytorchError> {
        let names = system.map();
        let (encoder_layer, decoder_layer) = (config.encoder_layer(), config.decoder_layer());
        let mut builder = Builder::new(&encoder_layer);
        builder.add_tied(config, names.outside);
        let n_layers = config.n_encoder_layers.min(max_layers);
        let parameters = encoder_layer.encoder_layer_parameters();
        builder.add_layers("encoder", n_layers, &names.encoder, &parameters);
        let n_layers = config.n_decoder_layers.min(max_layers);
        let parameters = decoder_layer.decoder_layer_parameters();
        builder.add_layers("decoder", n_layers, &names.decoder, &parameters);
        let position_tables = match config.positions {
            Positions::Sinusoidal => names.position_tables,
            Positions::SinesThenCosines { .. } | Positions::Learned { .. } => &[],
        };
        builder.finish(system.name(), position_tables)
    }

    /// The map of an encoder layer on its own.
    pub fn encoder_layer(layer: &LayerConfig) -> Self {
        let mut builder = Builder::new(layer);
        let parameters = layer.encoder_layer_parameters();
        builder.add("", "", names::ENCODER_LAYER.lines, &parameters);
        Self {
            groups: builder.groups,
            position_tables: &[],
            d_model: layer.d_model,
        }
    }

    /// The names and shapes of a state dict, tied tensors under each of their names.
    pub fn shapes(&self) -> BTreeMap<String, Vec<usize>> {
        let theirs = self.groups.iter().flat_map(|group| &group.theirs);
        theirs
            .flat_map(|tensor| {
                let names = tensor.names.iter();
                names.map(|name| (name.clone(), tensor.shape.clone()))
            })
            .collect()
    }

    /// Our tensors by path, from theirs by name.
    ///
    /// # Errors
    /// All problems of their tensors.
    pub fn import(
        &self,
        dict: &StateDict,
    ) -> Result<Vec<(String, TensorData)>, Vec<TensorProblem>> {
        let problems = self.problems(dict);
        if !problems.is_empty() {
            return Err(problems);
        }
        let tensors = &dict.tensors;
        let mut imported = Vec::new();
        for group in &self.groups {
            let mut bytes = Vec::new();
            for tensor in &group.theirs {
                let (name, tensor) = tensor.found(tensors).next().expect("checked above");
                let own = bytes_of(name, tensor).map_err(|problem| vec![problem])?;
                bytes.extend_from_slice(&own);
            }
            let mut rest = bytes.as_slice();
            for (path, shape) in &group.ours {
                let (own, after) = rest.split_at(shape.iter().product::<usize>() * ELEMENT);
                rest = after;
                let own = group.layout.turn(own, shape.iter().rev().copied());
                imported.push((path.clone(), f32_data(own, shape)));
            }
        }
        Ok(imported)
    }

    /// Their tensors by name, from ours by path.
    pub fn export(&self, ours: &HashMap<String, TensorData>) -> BTreeMap<String, TensorData> {
        let mut exported = BTreeMap::new();
        for group in &self.groups {
            let mut bytes = Vec::new();
            for (path, shape) in &group.ours {
                let own = ours[path].as_bytes();
                bytes.extend(group.layout.turn(own, shape.iter().copied()));
            }
            let mut rest = bytes.as_slice();
            for tensor in &group.theirs {
                let size = tensor.shape.iter().product::<usize>() * ELEMENT;
                let (own, after) = rest.split_at(size);
                rest = after;
                for name in &tensor.names {
                    exported.insert(name.clone(), f32_data(own.to_vec(), &tensor.shape));
                }
            }
        }
        exported
    }

    /// The tables of sines and cosines of the system's classes, with `len` positions.
    pub fn position_tables(&self, len: usize) -> Vec<(String, TensorData)> {
        let values: Vec<f32> = (0..len * self.d_model)
            .map(|at| sinusoid(at / self.d_model, at % self.d_model, self.d_model) as f32)
            .collect();
        let shape = |table: &PositionTable| {
            let mut shape = [1, 1, self.d_model];
            shape[table.positions] = len;
            shape
        };
        self.position_tables
            .iter()
            .map(|table| {
                let data = TensorData::new(values.clone(), shape(table));
                (table.name.to_owned(), data)
            })
            .collect()
    }

    /// All problems, by name.
    fn problems(&self, StateDict { tensors, others }: &StateDict) -> Vec<TensorProblem> {
        let not_a_tensor = |name: &String| TensorProblem::NotATensor { name: name.clone() };
        let mut problems: Vec<_> = others.iter().map(not_a_tensor).collect();
        let mut known = HashSet::new();
        for theirs in self.groups.iter().flat_map(|group| &group.theirs) {
            known.extend(&theirs.names);
            problems.extend(theirs.problems(tensors, others));
        }
        for (name, tensor) in tensors.iter().filter(|(name, _)| !known.contains(name)) {
            let table = self.position_tables.iter().find(|table| table.name == name);
            problems.extend(match table {
                Some(table) => self.wrong_table(table, tensor),
                None => Some(TensorProblem::Unknown { name: name.clone() }),
            });
        }
        problems.sort_by_cached_key(ToString::to_string);
        problems
    }

    /// The problem of a table that does not hold our sines and cosines.
    fn wrong_table(&self, table: &PositionTable, tensor: &TensorSnapshot) -> Option<TensorProblem> {
        let mut shape = vec![1, 1, self.d_model];
        if let Some(&len) = tensor.shape.get(table.positions) {
            shape[table.positions] = len;
        }
        if let Some(problem) = wrong_kind(table.name, tensor, &shape) {
            return Some(problem);
        }
        let values = match bytes_of(table.name, tensor) {
            Ok(bytes) => bytes,
            Err(problem) => return Some(problem),
        };
        let ours = values.chunks_exact(ELEMENT).enumerate().all(|(at, bytes)| {
            let bytes = bytes.try_into().expect("chunks of four bytes");
            let position = at / self.d_model;
            let expected = sinusoid(position, at % self.d_model, self.d_model);
            let [first, further] = POSITION_TOLERANCE;
            (f64::from(f32::from_le_bytes(bytes)) - expected).abs()
                <= first + further * position as f64
        });
        (!ours).then(|| TensorProblem::NotPositions {
            name: table.name.to_owned(),
        })
    }
}

impl Theirs {
    /// The tensors under its names.
    fn found<'a>(
        &'a self,
        tensors: &'a BTreeMap<String, TensorSnapshot>,
    ) -> impl Iterator<Item = (&'a str, &'a TensorSnapshot)> {
        let names = self.names.iter().map(String::as_str);
        names.filter_map(|name| Some((name, tensors.get(name)?)))
    }

    fn problems(
        &self,
        tensors: &BTreeMap<String, TensorSnapshot>,
        others: &[String],
    ) -> Vec<TensorProblem> {
        let Some((first, tensor)) = self.found(tensors).next() else {
            let missing = !self.names.iter().any(|name| others.contains(name));
            let name = self.names[0].clone();
            return Vec::from_iter(missing.then_some(TensorProblem::Missing { name }));
        };
        let wrong: Vec<_> = self
            .found(tensors)
            .filter_map(|(name, tensor)| wrong_kind(name, tensor, &self.shape))
            .collect();
        if !wrong.is_empty() {
            return wrong;
        }
        self.found(tensors)
            .skip(1)
            .filter_map(|(name, other)| not_tied((name, other), (first, tensor)))
            .collect()
    }
}

/// The problem of a tensor that differs from the one that it is tied to.
fn not_tied(
    (name, tensor): (&str, &TensorSnapshot),
    (other, other_tensor): (&str, &TensorSnapshot),
) -> Option<TensorProblem> {
    match (bytes_of(name, tensor), bytes_of(other, other_tensor)) {
        (Ok(own), Ok(others)) if own == others => None,
        (Ok(_), Ok(_)) => Some(TensorProblem::NotTied {
            name: name.to_owned(),
            other: other.to_owned(),
        }),
        (Err(problem), _) | (_, Err(problem)) => Some(problem),
    }
}

fn wrong_kind(name: &str, tensor: &TensorSnapshot, shape: &[usize]) -> Option<TensorProblem> {
    let name = name.to_owned();
    if tensor.dtype != DType::F32 {
        return Some(TensorProblem::Type {
            name,
            found: tensor.dtype.name(),
        });
    }
    let found: Vec<usize> = tensor.shape.iter().copied().collect();
    (found != shape).then(|| TensorProblem::Shape {
        name,
        found,
        expected: shape.to_vec(),
    })
}

/// The numbers of a tensor that is in single precision.
fn bytes_of(name: &str, tensor: &TensorSnapshot) -> Result<Bytes, TensorProblem> {
    match tensor.to_data() {
        Ok(data) => Ok(data.bytes),
        Err(error) => Err(TensorProblem::Unreadable {
            name: name.to_owned(),
            problem: error.to_string(),
        }),
    }
}

fn f32_data(bytes: Vec<u8>, shape: &[usize]) -> TensorData {
    TensorData::from_bytes_vec(bytes, shape, DType::F32)
}

impl Layout {
    /// Converts a tensor of the given dimensions from one side's layout to the other's.
    fn turn(self, bytes: &[u8], dims: impl Iterator<Item = usize>) -> Vec<u8> {
        let dims: Vec<usize> = dims.collect();
        match (self, dims.as_slice()) {
            (Self::Transposed, &[rows, columns]) => {
                let mut turned = Vec::with_capacity(bytes.len());
                for column in 0..columns {
                    for row in 0..rows {
                        let at = (row * columns + column) * ELEMENT;
                        turned.extend_from_slice(&bytes[at..at + ELEMENT]);
                    }
                }
                turned
            }
            _ => bytes.to_vec(),
        }
    }
}

/// Builds a map, line by line.
struct Builder<'a> {
    layer: &'a LayerConfig,
    groups: Vec<Group>,
    unnamed: Vec<String>,
}

impl<'a> Builder<'a> {
    fn new(layer: &'a LayerConfig) -> Self {
        Self {
            layer,
            groups: Vec::new(),
            unnamed: Vec::new(),
        }
    }

    /// Adds the parameters outside the layers, some of which may be tied.
    fn add_tied(&mut self, config: &TransformerConfig, lines: &[Line]) {
        self.add("", "", lines, &config.parameters_outside_layers());
        let target = if config.tying.ties_source_target() {
            self.add_names("src_embedding.weight", "tgt_embedding.weight", lines);
            "src_embedding.weight"
        } else {
            "tgt_embedding.weight"
        };
        if config.tying.ties_generator() {
            self.add_names(target, "generator.weight", lines);
        }
    }

    /// Adds to the tensor at `path` the names of the one that is tied to it.
    fn add_names(&mut self, path: &str, tied: &str, lines: &[Line]) {
        let names: Vec<String> = lines
            .iter()
            .flat_map(|line| line.tensors.iter().map(move |tensor| (line, tensor)))
            .filter(|(line, tensor)| format!("{}{}", line.ours[0], tensor.ours) == tied)
            .map(|(line, tensor)| format!("{}{}", line.theirs[0], tensor.theirs))
            .collect();
        let group = self.groups.iter_mut().find(|group| group.ours[0].0 == path);
        if let Some(group) = group {
            group.theirs[0].names.extend(names);
        }
    }

    fn add_layers(&mut self, stack: &str, n: usize, names: &Layer, parameters: &[Parameter]) {
        for index in 0..n {
            let ours = format!("{stack}.layers.{index}.");
            let theirs = names.theirs.replace("{}", &index.to_string());
            self.add(&ours, &theirs, names.lines, parameters);
        }
    }

    /// Adds the lines whose parameters the model has, and records the parameters without a line.
    fn add(&mut self, ours: &str, theirs: &str, lines: &[Line], parameters: &[Parameter]) {
        let mut named = Vec::new();
        for line in lines {
            for tensor in line.tensors {
                let group: Vec<Parameter> = line
                    .ours
                    .iter()
                    .map(|module| format!("{module}{}", tensor.ours))
                    .filter_map(|path| parameters.iter().find(|(own, _)| *own == path).cloned())
                    .collect();
                if group.is_empty() {
                    continue;
                }
                named.extend(group.iter().map(|(path, _)| path.clone()));
                let names = line
                    .theirs
                    .iter()
                    .map(|module| format!("{theirs}{module}{}", tensor.theirs));
                let group = group
                    .into_iter()
                    .map(|(path, shape)| (format!("{ours}{path}"), shape));
                let group = self.group(group.collect(), names.collect(), tensor.layout);
                self.groups.push(group);
            }
        }
        let unnamed = parameters.iter().filter(|(path, _)| !named.contains(path));
        self.unnamed
            .extend(unnamed.map(|(path, _)| format!("{ours}{path}")));
    }

    fn group(&self, ours: Vec<Parameter>, names: Vec<String>, layout: Layout) -> Group {
        let shape = |width: usize| match (ours[0].1.as_slice(), layout) {
            (&[d_input, _], Layout::Transposed) => vec![width, d_input],
            (&[rows, _], Layout::Same) => vec![rows, width],
            _ => vec![width],
        };
        let all = ours.iter().map(|(_, shape)| shape[shape.len() - 1]).sum();
        let (keys, values) = (self.layer.keys(), self.layer.values());
        let widths = match names.len() {
            1 => vec![all],
            2 => vec![keys, values],
            _ => vec![keys, keys, values],
        };
        let theirs = names
            .into_iter()
            .zip(widths)
            .map(|(name, width)| Theirs {
                names: vec![name],
                shape: shape(width),
            })
            .collect();
        Group {
            ours,
            theirs,
            layout,
        }
    }

    fn finish(
        self,
        system: &'static str,
        position_tables: &'static [PositionTable],
    ) -> Result<Map, PytorchError> {
        if self.unnamed.is_empty() {
            Ok(Map {
                groups: self.groups,
                position_tables,
                d_model: self.layer.d_model,
            })
        } else {
            Err(PytorchError::Unnamed {
                system,
                parameters: self.unnamed,
            })
        }
    }
}
