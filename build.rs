//! Records in each program the folder of libtorch at the time of the build. Examples and benches share this file.

fn main() {
    // Only this variable and this file make Cargo run the script again.
    println!("cargo::rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    // Set by torch-sys, which links libtorch.
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
    }
}
