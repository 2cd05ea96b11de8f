//! Lets programs find libtorch where it was when they were built.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Set by torch-sys, which links libtorch.
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
    }
}
