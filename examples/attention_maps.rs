//! Draws what attends to what in a sentence pair, as the paper's appendix does.
//!
//! `cargo run --release --example attention_maps -- --model model --source "Where are you?"`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use clap::{Parser, ValueEnum};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontTransform, register_font};
use transformer::{BackendTask, Common, finish, run_on};
use transformer_core::{Tokenizer, Translator, attention_maps};

/// Draws the attention weights of a model for a sentence and its translation: each row is a token
/// that attends, each column one that is attended to, and the darker a field, the more.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    common: Common,
    /// Directory of a trained model
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// The sentence
    #[arg(long, value_name = "TEXT")]
    source: String,
    /// Its translation; without it, the model's own
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,
    /// Which attention
    #[arg(long, value_enum, default_value_t = Kind::Cross)]
    kind: Kind,
    /// Layer, from 1 [default: all]
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    /// Head, from 1 [default: all]
    #[arg(long, value_name = "N")]
    head: Option<usize>,
    /// Picture, .svg or .png
    #[arg(long, value_name = "FILE", default_value = "attention.svg")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Of the source to itself
    Encoder,
    /// Of the target to itself
    Decoder,
    /// Of the target to the source
    Cross,
}

/// Tokens of a sentence beyond which its picture is no picture.
const MOST_TOKENS: usize = 256;
/// Pixels of a .png.
const MOST_PIXELS: u64 = 1 << 28;

fn main() -> ExitCode {
    let cli = Cli::parse();
    finish(run_on(cli.common.backend, cli))
}

/// The weights of one head: what attends in rows, what is attended to in columns.
struct Map {
    layer: usize,
    head: usize,
    weights: Vec<f32>,
}

impl BackendTask for Cli {
    type Output = Result<(), Box<dyn Error>>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let format = Format::of(&self.out)?;
        let translator = Translator::<B>::load(&self.model, &device)?;
        let (model, tokenizer) = (translator.model(), translator.tokenizer());
        let target = match &self.target {
            Some(target) => target.clone(),
            None => translator.translate(&self.source)?,
        };
        println!("{}\n{target}", self.source);
        let mut source = tokenizer.encode(self.source.trim())?;
        source.push(model.config().eos_id);
        let target = tokenizer.encode(target.trim())?;
        for (side, tokens) in [("source", source.len()), ("target", target.len() + 1)] {
            if tokens > MOST_TOKENS {
                return Err(
                    format!("the {side} has {tokens} tokens, more than {MOST_TOKENS}").into(),
                );
            }
        }
        let (encoder, decoder) = attention_maps(model, &source, &target, &device)?;
        let maps = match self.kind {
            Kind::Encoder => encoder,
            Kind::Decoder => decoder.self_attention,
            Kind::Cross => decoder.cross_attention,
        };

        let names = |tokens: &[u32]| -> Vec<String> {
            tokens.iter().map(|&token| name(tokenizer, token)).collect()
        };
        let source = names(&source);
        let target = names(&[&[model.config().bos_id], &target[..]].concat());
        let (rows, columns) = match self.kind {
            Kind::Encoder => (&source, &source),
            Kind::Decoder => (&target, &target),
            Kind::Cross => (&target, &source),
        };
        let maps = self.chosen(maps)?;
        let picture = Picture::new(rows, columns, &maps);
        picture.save(&self.out, format)?;
        println!("{}: {} maps", self.out.display(), maps.len());
        Ok(())
    }
}

/// What a token says, without the space before it.
fn name(tokenizer: &Tokenizer, token: u32) -> String {
    match tokenizer.token(token).trim() {
        // Byte-level vocabularies' name for a space.
        "" | "Ġ" => "␣".into(),
        name => name.into(),
    }
}

impl Cli {
    /// The maps of the layer and head that were asked for, or of all.
    fn chosen<B: Backend>(&self, layers: Vec<Tensor<B, 4>>) -> Result<Vec<Map>, String> {
        let n_heads = layers.first().map_or(0, |layer| layer.dims()[1]);
        for (name, chosen, most) in [
            ("--layer", self.layer, layers.len()),
            ("--head", self.head, n_heads),
        ] {
            if let Some(chosen) = chosen.filter(|chosen| !(1..=most).contains(chosen)) {
                return Err(format!("{name} {chosen}: the model has 1 to {most}"));
            }
        }
        let mut maps = Vec::new();
        for (layer, weights) in layers.into_iter().enumerate() {
            for (head, weights) in weights.split(1, 1).into_iter().enumerate() {
                let (layer, head) = (layer + 1, head + 1);
                let is_chosen = self.layer.is_none_or(|chosen| chosen == layer)
                    && self.head.is_none_or(|chosen| chosen == head);
                if is_chosen {
                    let weights = weights.into_data().iter().collect();
                    maps.push(Map {
                        layer,
                        head,
                        weights,
                    });
                }
            }
        }
        Ok(maps)
    }
}

#[derive(Debug, Clone, Copy)]
enum Format {
    Svg,
    Png,
}

impl Format {
    fn of(path: &Path) -> Result<Self, String> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(format!("{}: neither .svg nor .png", path.display())),
        }
    }
}

/// Maps with the same tokens, a row of maps for each layer.
struct Picture<'a> {
    rows: &'a [String],
    columns: &'a [String],
    maps: &'a [Map],
    /// Side of a field, and height of the letters beside it, in pixels.
    cell: i32,
    font: i32,
    /// Room for the rows' labels, and for the columns'.
    left: i32,
    top: i32,
}

impl<'a> Picture<'a> {
    const TITLE: i32 = 24;
    const MARGIN: i32 = 12;

    fn new(rows: &'a [String], columns: &'a [String], maps: &'a [Map]) -> Self {
        let (cell, font) = if maps.len() == 1 { (26, 16) } else { (16, 12) };
        let longest = |labels: &[String]| labels.iter().map(|label| label.chars().count()).max();
        // No letter of this font is wider than high.
        let room = |labels: &[String]| longest(labels).unwrap_or(0) as i32 * font * 3 / 4 + 8;
        Self {
            rows,
            columns,
            maps,
            cell,
            font,
            left: room(rows),
            top: room(columns) + Self::TITLE,
        }
    }

    /// Width and height of one map with its labels.
    fn panel(&self) -> (i32, i32) {
        (
            self.left + self.columns.len() as i32 * self.cell + Self::MARGIN,
            self.top + self.rows.len() as i32 * self.cell + Self::MARGIN,
        )
    }

    fn save(&self, path: &Path, format: Format) -> Result<(), Box<dyn Error>> {
        let font = dejavu::sans::regular();
        register_font("sans-serif", FontStyle::Normal, font)
            .map_err(|_| "the font cannot be read")?;
        let layers = self.maps.chunk_by(|a, b| a.layer == b.layer);
        let grid = (layers.clone().map(<[Map]>::len).max(), layers.count());
        let (width, height) = self.panel();
        let size = (
            grid.0.unwrap_or(0) as u32 * width as u32,
            grid.1 as u32 * height as u32,
        );
        let pixels = u64::from(size.0) * u64::from(size.1);
        if matches!(format, Format::Png) && pixels > MOST_PIXELS {
            let (width, height) = size;
            let problem =
                format!("{width} × {height} pixels are too many; choose --layer or --head");
            return Err(format!("{}: {problem}", path.display()).into());
        }
        let named = |error: &dyn Error| format!("{}: {error}", path.display());
        match format {
            Format::Svg => self.draw(SVGBackend::new(path, size).into_drawing_area()),
            Format::Png => self.draw(BitMapBackend::new(path, size).into_drawing_area()),
        }
        .map_err(|error| named(&*error).into())
    }

    fn draw<D: DrawingBackend>(&self, area: DrawingArea<D, Shift>) -> Result<(), Box<dyn Error>>
    where
        D::ErrorType: 'static,
    {
        area.fill(&WHITE)?;
        let (width, height) = self.panel();
        for (row, layer) in self.maps.chunk_by(|a, b| a.layer == b.layer).enumerate() {
            for (column, map) in layer.iter().enumerate() {
                let corner = (column as i32 * width, row as i32 * height);
                self.draw_map(&area, map, corner)?;
            }
        }
        Ok(area.present()?)
    }

    fn draw_map<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        map: &Map,
        (x, y): (i32, i32),
    ) -> Result<(), Box<dyn Error>>
    where
        D::ErrorType: 'static,
    {
        let style = |anchor| TextStyle::from(("sans-serif", self.font).into_font()).pos(anchor);
        let (x, y) = (x + self.left, y + self.top);
        let half = self.cell / 2;

        let title = format!("layer {}, head {}", map.layer, map.head);
        let anchor = Pos::new(HPos::Left, VPos::Top);
        let corner = (x, y - self.top + 4);
        area.draw(&Text::new(title, corner, style(anchor)))?;
        for (row, label) in self.rows.iter().enumerate() {
            let place = (x - 5, y + row as i32 * self.cell + half);
            let anchor = Pos::new(HPos::Right, VPos::Center);
            area.draw(&Text::new(label.as_str(), place, style(anchor)))?;
        }
        for (column, label) in self.columns.iter().enumerate() {
            let place = (x + column as i32 * self.cell + half, y - 5);
            let anchor = Pos::new(HPos::Left, VPos::Center);
            let upwards = style(anchor).transform(FontTransform::Rotate270);
            area.draw(&Text::new(label.as_str(), place, upwards))?;
        }
        for (at, &weight) in map.weights.iter().enumerate() {
            let (row, column) = (at / self.columns.len(), at % self.columns.len());
            let corner = (x + column as i32 * self.cell, y + row as i32 * self.cell);
            let opposite = (corner.0 + self.cell - 1, corner.1 + self.cell - 1);
            let color = shade(weight);
            area.draw(&Rectangle::new([corner, opposite], color.filled()))?;
        }
        Ok(())
    }
}

/// From nearly white to dark blue.
fn shade(weight: f32) -> RGBColor {
    let mix = |from: f32, to: f32| (from + (to - from) * weight.clamp(0.0, 1.0)) as u8;
    RGBColor(mix(238.0, 8.0), mix(242.0, 48.0), mix(247.0, 107.0))
}
