//! Names and shapes of parameters, without building a module.

/// A parameter: its path in the module, and its shape.
pub(crate) type Parameter = (String, Vec<usize>);

/// The parameters of a module, with their paths inside the part `part` of another module.
pub(crate) fn within(part: &str, parameters: Vec<Parameter>) -> Vec<Parameter> {
    let path = |(path, shape)| (format!("{part}.{path}"), shape);
    parameters.into_iter().map(path).collect()
}

/// The parameters of a linear layer.
pub(crate) fn linear_parameters(d_input: usize, d_output: usize, bias: bool) -> Vec<Parameter> {
    let weight = ("weight".to_owned(), vec![d_input, d_output]);
    let bias = bias.then(|| ("bias".to_owned(), vec![d_output]));
    [weight].into_iter().chain(bias).collect()
}

/// The number of elements of the parameters.
pub(crate) fn count(parameters: &[Parameter]) -> u128 {
    let size = |(_, shape): &Parameter| shape.iter().map(|&size| size as u128).product::<u128>();
    parameters.iter().map(size).sum()
}
