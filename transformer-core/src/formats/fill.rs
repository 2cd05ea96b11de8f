//! Loads the tensors of a file into the parameters of a module.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use burn::module::ParamId;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, TensorData};
use burn_store::{ModuleSnapshot, TensorSnapshot, TensorSnapshotError};

use crate::formats::error::{TensorProblem, not_of_model};

/// A parameter in a file.
pub(crate) trait Readable: 'static {
    /// Its path in the module.
    fn path(&self) -> &str;

    /// Its shape in the module.
    fn shape(&self) -> &[usize];

    /// Reads the values in the module's order, floating-point ones in single precision.
    ///
    /// # Errors
    /// When a tensor of the file cannot be read.
    fn read(&self) -> Result<TensorData, TensorProblem>;
}

/// Fills a module, reading one tensor at a time.
///
/// # Errors
/// When a tensor cannot be read, or the tensors do not match the module.
pub(crate) fn fill<B: Backend, M: ModuleSnapshot<B>>(
    module: &mut M,
    tensors: Vec<impl Readable>,
) -> Result<(), String> {
    let parameters = module.collect(None, None, false).into_iter();
    let types: HashMap<String, DType> = parameters
        .map(|parameter| (parameter.full_path(), parameter.dtype))
        .collect();
    let unreadable = Rc::new(RefCell::new(None));
    let snapshots = tensors.into_iter().map(|tensor| {
        // An unknown tensor is refused, so its type does not matter.
        let dtype = types.get(tensor.path()).copied().unwrap_or(DType::F32);
        snapshot(tensor, dtype, Rc::clone(&unreadable))
    });
    let applied = module.apply(snapshots.collect(), None, None, false);
    if let Some(problem) = unreadable.take() {
        return Err(problem);
    }
    let missing = applied.missing.into_iter();
    let missing = missing.map(|(name, _)| TensorProblem::Missing { name }.to_string());
    let unknown = applied.unused.into_iter();
    let unknown = unknown.map(|name| TensorProblem::Unknown { name }.to_string());
    let others = applied.errors.iter().map(ToString::to_string);
    let problems: Vec<String> = missing.chain(unknown).chain(others).collect();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(not_of_model(&problems)),
    }
}

/// A tensor for burn-store to read, in the module's type. `problem` keeps the first read error.
fn snapshot(
    tensor: impl Readable,
    dtype: DType,
    problem: Rc<RefCell<Option<String>>>,
) -> TensorSnapshot {
    let path = tensor.path().split('.').map(str::to_owned).collect();
    let shape = tensor.shape().to_vec().into();
    let read = move || match tensor.read() {
        Ok(data) => Ok(data.convert_dtype(dtype)),
        Err(error) => {
            let error = error.to_string();
            problem.borrow_mut().get_or_insert(error.clone());
            Err(TensorSnapshotError::IoError(error))
        }
    };
    TensorSnapshot::from_closure(
        Rc::new(read),
        dtype,
        shape,
        path,
        Vec::new(),
        ParamId::new(),
    )
}

/// A module's tensors by path, in single precision.
pub(crate) fn collected<B: Backend>(
    module: &impl ModuleSnapshot<B>,
) -> HashMap<String, TensorData> {
    module
        .collect(None, None, false)
        .into_iter()
        .map(|tensor| {
            let data = tensor.to_data().expect("a module's tensors can be read");
            (tensor.full_path(), data.convert_dtype(DType::F32))
        })
        .collect()
}
