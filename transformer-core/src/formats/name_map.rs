//! Maps tensor names for one configuration.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::rc::Rc;

use burn::tensor::{DType, TensorData};

use crate::formats::error::TensorProblem;
use crate::formats::fill::Readable;
use crate::formats::parameter::{Int8Rows, StoredParameter};
use crate::formats::pytorch::names::{Layer, Layout, Line, Names, PositionTable};
use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::stored::{ElementType, StoredTensor};
use crate::models::config::TransformerConfig;
use crate::nn::layer::LayerConfig;
use crate::nn::parameters::Parameter;
use crate::nn::positions::Positions;

/// Bytes of an element: all our tensors are in single precision.
const ELEMENT: usize = size_of::<f32>();

/// Tolerances for a table of sines and cosines: at its first position, and added per further position. PyTorch computes
/// the angles in single precision.
const POSITION_TOLERANCE: [f64; 2] = [1e-5, 4e-7];

/// The largest rounding error of a value from -1 to 1 in a file's element type.
fn rounding(element: &ElementType) -> f64 {
    match element {
        ElementType::F16 => 2_f64.powi(-12),
        ElementType::Bf16 => 2_f64.powi(-9),
        _ => 0.0,
    }
}

/// The correspondence between our tensors and those of another system ("theirs").
pub(crate) struct Map {
    groups: Vec<Group>,
    position_tables: Vec<PositionTable>,
    /// Tensors that the model does not use.
    ignored: Vec<String>,
    positions: Positions,
    d_model: usize,
}

/// Tensors of ours and of theirs that, each concatenated, hold the same values.
struct Group {
    ours: Vec<Parameter>,
    theirs: Vec<Theirs>,
    layout: Layout,
}

/// A tensor of theirs.
struct Theirs {
    /// Its name, or all its names if weights are tied.
    names: Vec<String>,
    shape: Vec<usize>,
}

/// The names under which a tied tensor is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TiedNames {
    Every,
    First,
}

impl Map {
    /// The map of a whole model.
    ///
    /// At most `max_layers` layers per stack are mapped.
    ///
    /// # Errors
    /// The parameters without a name.
    pub fn transformer(
        names: &Names,
        config: &TransformerConfig,
        max_layers: usize,
    ) -> Result<Self, Vec<String>> {
        let mut builder = Builder::default();
        builder.add_tied(config, names.outside);
        for (stack, config, names) in [
            ("encoder", config.encoder(), &names.encoder),
            ("decoder", config.decoder(), &names.decoder),
        ] {
            builder.attention = Some(config.layer.self_attention.widths());
            let parameters = config.layer.parameters();
            let n_layers = config.n_layers.min(max_layers);
            builder.add_layers(stack, n_layers, names, &parameters);
        }
        let position_tables = match config.positions {
            Positions::Sinusoidal | Positions::SinesThenCosines { .. } => names.position_tables,
            _ => &[],
        };
        if !builder.unnamed.is_empty() {
            return Err(builder.unnamed);
        }
        Ok(Self {
            groups: builder.groups,
            position_tables: position_tables.to_vec(),
            ignored: Vec::new(),
            positions: config.positions,
            d_model: config.d_model,
        })
    }

    /// The map of a single encoder layer.
    ///
    /// # Errors
    /// The parameters that have no name there.
    pub fn encoder_layer(names: &Layer, layer: &LayerConfig) -> Result<Self, Vec<String>> {
        let mut builder = Builder {
            attention: Some(layer.self_attention.widths()),
            ..Builder::default()
        };
        builder.add("", "", names.lines, &layer.parameters());
        if !builder.unnamed.is_empty() {
            return Err(builder.unnamed);
        }
        Ok(Self {
            groups: builder.groups,
            position_tables: Vec::new(),
            ignored: Vec::new(),
            positions: Positions::Sinusoidal,
            d_model: layer.d_model(),
        })
    }

    /// Ignores tensors of these names.
    pub fn ignoring(mut self, names: &[&str]) -> Self {
        self.ignored
            .extend(names.iter().map(|&name| name.to_owned()));
        self
    }

    /// Removes this name from a tensor that has others.
    pub fn without_name(mut self, name: &str) -> Self {
        for theirs in self.theirs_mut() {
            theirs.names.retain(|own| own != name);
        }
        self
    }

    /// Replaces a part of all names.
    pub fn with_part(mut self, part: &str, other: &str) -> Self {
        for theirs in self.theirs_mut() {
            for name in &mut theirs.names {
                *name = name.replace(part, other);
            }
        }
        self
    }

    /// Removes `prefix` from all names.
    pub fn without_prefix(mut self, prefix: &str) -> Self {
        let strip = |name: &mut String| {
            if let Some(rest) = name.strip_prefix(prefix) {
                *name = rest.to_owned();
            }
        };
        self.theirs_mut()
            .flat_map(|theirs| &mut theirs.names)
            .for_each(strip);
        self.ignored.iter_mut().for_each(strip);
        for table in &mut self.position_tables {
            table.name = table.name.strip_prefix(prefix).unwrap_or(table.name);
        }
        self
    }

    fn theirs_mut(&mut self) -> impl Iterator<Item = &mut Theirs> {
        self.groups.iter_mut().flat_map(|group| &mut group.theirs)
    }

    /// The names and shapes of a state dict, with tied tensors under each of their names.
    pub fn shapes(&self) -> BTreeMap<String, Vec<usize>> {
        let theirs = self.groups.iter().flat_map(|group| &group.theirs);
        theirs
            .flat_map(|tensor| {
                let names = tensor.names.iter();
                names.map(|name| (name.clone(), tensor.shape.clone()))
            })
            .collect()
    }

    /// Our tensors, to be read from theirs, which must have no [problems](Self::problems).
    pub fn imports(&self, dict: &StateDict) -> Vec<Import> {
        let mut imports = Vec::new();
        for group in &self.groups {
            let found = group
                .theirs
                .iter()
                .flat_map(|tensor| tensor.found(dict).next());
            let theirs: Rc<[(String, StoredTensor)]> = found
                .map(|(name, tensor)| (name.to_owned(), tensor.clone()))
                .collect();
            let mut first = match (group.layout, group.ours.first()) {
                (Layout::AfterRows(rows), Some((_, shape))) => rows * shape[1],
                _ => 0,
            };
            for (path, shape) in &group.ours {
                imports.push(Import {
                    path: path.clone(),
                    shape: shape.clone(),
                    layout: group.layout,
                    first,
                    theirs: Rc::clone(&theirs),
                });
                first += shape.iter().product::<usize>();
            }
        }
        imports
    }

    /// Their tensors by name, from ours by path.
    pub fn export(
        &self,
        ours: &HashMap<String, TensorData>,
        tied: TiedNames,
    ) -> BTreeMap<String, TensorData> {
        let mut exported = BTreeMap::new();
        for group in &self.groups {
            let mut bytes = Vec::new();
            for (path, shape) in &group.ours {
                group
                    .layout
                    .export(ours[path].as_bytes(), shape, &mut bytes);
            }
            let mut rest = bytes.as_slice();
            for tensor in &group.theirs {
                let size = tensor.shape.iter().product::<usize>() * ELEMENT;
                let (own, after) = rest.split_at(size);
                rest = after;
                let names = match tied {
                    TiedNames::Every => &tensor.names[..],
                    TiedNames::First => &tensor.names[..1],
                };
                for name in names {
                    exported.insert(name.clone(), f32_data(own.to_vec(), &tensor.shape));
                }
            }
        }
        exported
    }

    /// The system's tables of sines and cosines, with `len` positions.
    pub fn position_tables(&self, len: usize) -> Vec<(String, TensorData)> {
        let waves = self.positions.waves(self.d_model).unwrap_or_default();
        let values: Vec<_> = (0..len)
            .flat_map(|position| waves.iter().map(move |wave| wave.at(position) as f32))
            .collect();
        self.position_tables
            .iter()
            .map(|table| {
                let data = TensorData::new(values.clone(), self.table_shape(table, len));
                (table.name.to_owned(), data)
            })
            .collect()
    }

    fn table_shape(&self, table: &PositionTable, len: usize) -> Vec<usize> {
        let mut shape = vec![1; table.dimensions];
        shape[table.positions] = len;
        shape[table.dimensions - 1] = self.d_model;
        shape
    }

    /// All problems of their tensors, by name.
    pub fn problems(&self, dict: &StateDict) -> Vec<TensorProblem> {
        let mut problems = self.wrong_kinds(dict);
        problems.extend(self.wrong_numbers(dict));
        problems.sort_by_cached_key(ToString::to_string);
        problems
    }

    /// Tensors that are missing, unknown, or of the wrong type or shape. No values are read.
    pub fn wrong_kinds(&self, dict: &StateDict) -> Vec<TensorProblem> {
        let not_a_tensor = |name: &String| TensorProblem::NotATensor { name: name.clone() };
        let mut problems: Vec<_> = dict.others.iter().map(not_a_tensor).collect();
        let mut known: HashSet<&str> = self.ignored.iter().map(String::as_str).collect();
        for theirs in self.groups.iter().flat_map(|group| &group.theirs) {
            known.extend(theirs.names.iter().map(String::as_str));
            problems.extend(theirs.wrong_kinds(dict));
        }
        let unknown = |name: &str| !known.contains(name);
        for (name, tensor) in dict.tensors.iter().filter(|(name, _)| unknown(name)) {
            problems.extend(match self.table(name) {
                Some(table) => self.wrong_table_kind(table, tensor),
                None => Some(TensorProblem::Unknown { name: name.clone() }),
            });
        }
        problems.sort_by_cached_key(ToString::to_string);
        problems
    }

    /// Tied tensors that differ, and tables that are not of sines and cosines, among the tensors of the
    /// right type and shape.
    pub fn wrong_numbers(&self, dict: &StateDict) -> Vec<TensorProblem> {
        let theirs = self.groups.iter().flat_map(|group| &group.theirs);
        let mut problems: Vec<_> = theirs.flat_map(|theirs| theirs.not_tied(dict)).collect();
        for (name, tensor) in &dict.tensors {
            if let Some(table) = self.table(name)
                && self.wrong_table_kind(table, tensor).is_none()
            {
                problems.extend(self.wrong_table(table, tensor));
            }
        }
        problems
    }

    fn table(&self, name: &str) -> Option<&PositionTable> {
        self.position_tables.iter().find(|table| table.name == name)
    }

    fn wrong_table_kind(
        &self,
        table: &PositionTable,
        tensor: &StoredTensor,
    ) -> Option<TensorProblem> {
        // As many positions as the tensor has.
        let len = tensor.shape.get(table.positions).copied().unwrap_or(1);
        wrong_kind(table.name, tensor, &self.table_shape(table, len))
    }

    /// The problem of a table that differs from our sines and cosines.
    fn wrong_table(&self, table: &PositionTable, tensor: &StoredTensor) -> Option<TensorProblem> {
        match self.is_table(tensor) {
            Ok(true) => None,
            Ok(false) => Some(TensorProblem::NotPositions {
                name: table.name.to_owned(),
            }),
            Err(error) => Some(TensorProblem::unreadable(table.name, &error)),
        }
    }

    fn is_table(&self, tensor: &StoredTensor) -> io::Result<bool> {
        is_table(tensor, self.positions, 0, self.d_model)
    }
}

/// Whether a tensor, `[positions, d_model]`, is the table of these sines and cosines from position `first` on.
pub(crate) fn is_table(
    tensor: &StoredTensor,
    positions: Positions,
    first: usize,
    d_model: usize,
) -> io::Result<bool> {
    let [tolerance, further] = POSITION_TOLERANCE;
    let tolerance = tolerance + rounding(&tensor.element);
    let Some(waves) = positions.waves(d_model) else {
        return Ok(false);
    };
    let mut parts = tensor.parts()?;
    let mut at = 0;
    while let Some(part) = parts.read()? {
        for &number in part {
            let position = first + at / d_model;
            let expected = waves[at % d_model].at(position);
            let tolerance = tolerance + further * position as f64;
            let is_close = (f64::from(number) - expected).abs() <= tolerance;
            // NaN is close to nothing.
            if !is_close {
                return Ok(false);
            }
            at += 1;
        }
    }
    Ok(true)
}

/// A tensor of ours, to be read from theirs.
pub(crate) struct Import {
    path: String,
    shape: Vec<usize>,
    layout: Layout,
    /// Number of their concatenated elements before ours.
    first: usize,
    theirs: Rc<[(String, StoredTensor)]>,
}

impl Readable for Import {
    fn path(&self) -> &str {
        &self.path
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn read(&self) -> Result<TensorData, TensorProblem> {
        Ok(TensorData::new(self.floats()?, self.shape.clone()))
    }
}

impl Import {
    /// Converts it to a stored parameter.
    pub fn into_parameter(self) -> StoredParameter {
        let (path, shape) = (self.path.clone(), self.shape.clone());
        match self.is_int8() {
            true => StoredParameter::int8(path, shape, move || self.int8_rows()),
            false => StoredParameter::floats(path, shape, move || self.floats()),
        }
    }

    /// Whether all of theirs are matrices of 8-bit integers with a scale per row.
    fn is_int8(&self) -> bool {
        let is_int8 = |(_, tensor): &(_, StoredTensor)| tensor.row_scales().is_some();
        self.shape.len() == 2 && self.theirs.iter().all(is_int8)
    }

    /// The integers and scales of our rows, which follow `first` elements of theirs.
    fn int8_rows(&self) -> Result<Int8Rows, TensorProblem> {
        let (mut integers, mut scales) = (Vec::new(), Vec::new());
        let mut width = 1;
        for (name, tensor) in self.theirs.iter() {
            let read = tensor.int8s();
            integers.extend(read.map_err(|error| TensorProblem::unreadable(name, &error))?);
            scales.extend_from_slice(tensor.row_scales().unwrap_or_default());
            width = tensor.shape[1].max(1);
        }
        let first = self.first / width;
        let rows = self.shape.iter().product::<usize>() / width;
        let integers = integers[first * width..][..rows * width].to_vec();
        Ok((integers, scales[first..][..rows].to_vec()))
    }

    fn floats(&self) -> Result<Vec<f32>, TensorProblem> {
        let mut numbers = vec![0.0; self.shape.iter().product()];
        let mut at = 0;
        for (name, tensor) in self.theirs.iter() {
            let mut read = || -> io::Result<()> {
                let mut parts = tensor.parts()?;
                while let Some(part) = parts.read()? {
                    self.place(&mut numbers, at, part);
                    at += part.len();
                }
                Ok(())
            };
            read().map_err(|error| TensorProblem::unreadable(name, &error))?;
        }
        Ok(numbers)
    }

    /// Copies a part of theirs, starting at their element `at`, to its place in ours.
    fn place(&self, numbers: &mut [f32], at: usize, part: &[f32]) {
        if let (Layout::Transposed, &[columns, width]) = (self.layout, &self.shape[..]) {
            // Their rows are our columns.
            let (row, first) = (at / columns, self.first / columns);
            let begin = row.max(first);
            let end = (row + part.len() / columns).min(first + width);
            if begin < end {
                for column in 0..columns {
                    let own = &mut numbers[column * width + begin - first..][..end - begin];
                    let theirs = part[(begin - row) * columns + column..].iter();
                    for (own, &number) in own.iter_mut().zip(theirs.step_by(columns)) {
                        *own = number;
                    }
                }
            }
        } else {
            let begin = at.max(self.first);
            let end = (at + part.len()).min(self.first + numbers.len());
            if begin < end {
                numbers[begin - self.first..end - self.first]
                    .copy_from_slice(&part[begin - at..end - at]);
            }
        }
    }
}

impl Theirs {
    /// The tensors under its names.
    fn found<'a>(
        &'a self,
        dict: &'a StateDict,
    ) -> impl Iterator<Item = (&'a str, &'a StoredTensor)> {
        let names = self.names.iter().map(String::as_str);
        names.filter_map(|name| Some((name, dict.tensors.get(name)?)))
    }

    fn wrong_kinds(&self, dict: &StateDict) -> Vec<TensorProblem> {
        if self.found(dict).next().is_none() {
            let missing = !self.names.iter().any(|name| dict.others.contains(name));
            let name = self.names[0].clone();
            return Vec::from_iter(missing.then_some(TensorProblem::Missing { name }));
        }
        self.found(dict)
            .filter_map(|(name, tensor)| wrong_kind(name, tensor, &self.shape))
            .collect()
    }

    /// The problems of tensors that differ from the one to which they are tied.
    fn not_tied(&self, dict: &StateDict) -> Vec<TensorProblem> {
        let mut right = self
            .found(dict)
            .filter(|(name, tensor)| wrong_kind(name, tensor, &self.shape).is_none());
        let Some((other, first)) = right.next() else {
            return Vec::new();
        };
        let problem = |(name, tensor): (&str, &StoredTensor)| match first.equals(tensor) {
            Ok(true) => None,
            Ok(false) => Some(TensorProblem::NotTied {
                name: name.to_owned(),
                other: other.to_owned(),
            }),
            Err(error) => Some(TensorProblem::unreadable(name, &error)),
        };
        right.filter_map(problem).collect()
    }
}

fn wrong_kind(name: &str, tensor: &StoredTensor, shape: &[usize]) -> Option<TensorProblem> {
    let name = name.to_owned();
    if !tensor.is_float() {
        return Some(TensorProblem::Type {
            name,
            found: tensor.element.name().to_owned(),
        });
    }
    let found = tensor.shape.clone();
    (found != shape).then(|| TensorProblem::Shape {
        name,
        found,
        expected: shape.to_vec(),
    })
}

fn f32_data(bytes: Vec<u8>, shape: &[usize]) -> TensorData {
    TensorData::from_bytes_vec(bytes, shape, DType::F32)
}

impl Layout {
    /// Appends a tensor of ours, of this shape, in their layout.
    fn export(self, bytes: &[u8], shape: &[usize], theirs: &mut Vec<u8>) {
        match (self, shape) {
            (Self::Transposed, &[rows, columns]) => {
                for column in 0..columns {
                    for row in 0..rows {
                        let at = (row * columns + column) * ELEMENT;
                        theirs.extend_from_slice(&bytes[at..at + ELEMENT]);
                    }
                }
            }
            (Self::AfterRows(unused), &[_, columns]) => {
                theirs.resize(theirs.len() + unused * columns * ELEMENT, 0);
                theirs.extend_from_slice(bytes);
            }
            _ => theirs.extend_from_slice(bytes),
        }
    }
}

/// Builds a map, line by line.
#[derive(Default)]
struct Builder {
    /// Widths of queries, keys and values in the layers being added.
    attention: Option<[usize; 3]>,
    groups: Vec<Group>,
    /// The groups by the path of their first parameter.
    by_path: HashMap<String, Vec<usize>>,
    unnamed: Vec<String>,
}

impl Builder {
    /// Adds the parameters outside the layers, some of which may be tied.
    fn add_tied(&mut self, config: &TransformerConfig, lines: &[Line]) {
        self.add("", "", lines, &config.parameters(0));
        let target = if config.is_language_model() {
            "embedding.weight"
        } else if config.tying.ties_source_target() {
            self.add_names("src_embedding.weight", "tgt_embedding.weight", lines);
            "src_embedding.weight"
        } else {
            "tgt_embedding.weight"
        };
        if config.tying.ties_generator() {
            self.add_names(target, "generator.weight", lines);
        }
    }

    /// Adds to the tensor at `path` the names of the tensor tied to it.
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
            let theirs = theirs.replace("{1}", &(index + 1).to_string());
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
                let mut group = self.group(group.collect(), names.collect(), tensor.layout);
                let also = line.also.iter();
                let also = also.map(|module| format!("{theirs}{module}{}", tensor.theirs));
                group.theirs[0].names.extend(also);
                self.push(group);
            }
        }
        let unnamed = parameters.iter().filter(|(path, _)| !named.contains(path));
        self.unnamed
            .extend(unnamed.map(|(path, _)| format!("{ours}{path}")));
    }

    /// Adds a group, or its names to the group of the same parameters.
    fn push(&mut self, group: Group) {
        let of_path = self.by_path.entry(group.ours[0].0.clone()).or_default();
        let mut of_path_too = of_path.iter().copied();
        match of_path_too.find(|&own| self.groups[own].ours == group.ours) {
            None => {
                of_path.push(self.groups.len());
                self.groups.push(group);
            }
            Some(own) => {
                for (own, other) in self.groups[own].theirs.iter_mut().zip(group.theirs) {
                    own.names.extend(other.names);
                }
            }
        }
    }

    fn group(&self, ours: Vec<Parameter>, names: Vec<String>, layout: Layout) -> Group {
        let shape = |width: usize| match (ours[0].1.as_slice(), layout) {
            (&[d_input, _], Layout::Transposed) => vec![width, d_input],
            (&[rows, _], Layout::AfterRows(unused)) => vec![unused + rows, width],
            (&[rows, _], _) => vec![rows, width],
            (_, Layout::Row) => vec![1, width],
            _ => vec![width],
        };
        let all = ours.iter().map(|(_, shape)| shape[shape.len() - 1]).sum();
        let widths = match (names.len(), self.attention) {
            (2, Some([_, keys, values])) => vec![keys, values],
            (3, Some(widths)) => widths.to_vec(),
            _ => vec![all],
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
}
