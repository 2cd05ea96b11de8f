//! Lets programs find libtorch where it was when they were built. Examples and benches use this file, too.

fn main() {
    // Run again when this changes, and when the file itself does, wherever the package that uses it lies.
    println!("cargo::rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    // Set by torch-sys, which links libtorch.
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
    }
}
