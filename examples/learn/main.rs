//! What the pages of `docs/learn` print and draw.
//!
//! `cargo run --release --example learn -- four_by_four` runs one listing, and prints what its page shows.
//! `cargo run --release --example learn -- --write docs/learn` writes every listing, output and picture into the
//! pages: a test compares them.

#![allow(missing_docs)] // The pages are its documentation.

#[allow(dead_code)] // Its training has a program of its own.
#[path = "../annotated.rs"]
mod annotated;
mod attention;
mod decoding;
mod embeddings;
mod heads;
mod loss;
mod masks;
mod model;
mod pages;
mod positions;
mod sublayers;
mod svg;
mod training;
mod why;

use std::path::PathBuf;

use burn::tensor::Tensor;
use clap::Parser;
use transformer_examples::Failure;

type B = transformer_examples::Backend;

/// A listing: it prints what its page shows.
type Listing = (&'static str, fn());
/// A picture: the name of its file, and what is in it.
type Picture = (&'static str, fn() -> String);

const LISTINGS: &[&[Listing]] = &[
    attention::LISTINGS,
    decoding::LISTINGS,
    embeddings::LISTINGS,
    heads::LISTINGS,
    loss::LISTINGS,
    masks::LISTINGS,
    model::LISTINGS,
    positions::LISTINGS,
    sublayers::LISTINGS,
    training::LISTINGS,
    why::LISTINGS,
];
const PICTURES: &[&[Picture]] = &[
    attention::PICTURES,
    decoding::PICTURES,
    embeddings::PICTURES,
    heads::PICTURES,
    loss::PICTURES,
    masks::PICTURES,
    model::PICTURES,
    positions::PICTURES,
    sublayers::PICTURES,
    training::PICTURES,
    why::PICTURES,
];

/// Prints what the pages of docs/learn show.
#[derive(Parser)]
struct Flags {
    /// Listings to run; without any, their names are printed
    listings: Vec<String>,
    /// Folder of pages to write listings, outputs and pictures into
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
}

fn main() -> Result<(), Failure> {
    let flags = Flags::parse();
    let all = || LISTINGS.iter().copied().flatten();
    if let Some(folder) = &flags.write {
        pages::write(folder)?;
        for (name, draw) in PICTURES.iter().copied().flatten() {
            std::fs::write(folder.join(name).with_extension("svg"), draw())?;
        }
    } else if flags.listings.is_empty() {
        all().for_each(|(name, _)| println!("{name}"));
    }
    for wanted in &flags.listings {
        let found = all().find(|(name, _)| name == wanted);
        let (_, run) = found.ok_or_else(|| format!("{wanted}: not a listing"))?;
        run();
    }
    Ok(())
}

/// Prints a matrix, a row per line.
fn show(name: &str, matrix: Tensor<B, 2>) {
    let [_, columns] = matrix.dims();
    println!("{name}");
    for row in matrix.into_data().iter::<f32>().collect::<Vec<_>>().chunks(columns) {
        let row = row.iter().map(|value| format!("{:6.2}", value + 0.0));
        println!("{}", row.collect::<String>());
    }
}
