//! Records in each program the folder of libtorch at the time of the build, and whether the crate is a packed one. Most
//! packages of the workspace share this file.

fn main() {
    // The tests of a packed crate, beside which cargo writes this file, have no fixtures.
    println!("cargo::rustc-check-cfg=cfg(packaged)");
    if std::path::Path::new("Cargo.toml.orig").exists() {
        println!("cargo::rustc-cfg=packaged");
    }
    // Only this variable and this file make Cargo run the script again.
    println!("cargo::rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    // Set by torch-sys, which links libtorch.
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
    }
}
