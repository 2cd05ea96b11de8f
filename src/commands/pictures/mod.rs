//! `transformer attention` and `transformer curves`: pictures, as SVG or PNG.

pub mod attention;
mod attention_picture;
mod axis;
pub mod curves;
mod curves_picture;
mod curves_run;

use std::borrow::Cow;
use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::Pos;
use transformer_train::progress::printable;

use super::{check_output, write_file};

/// The maximum number of pixels of a .png.
const MOST_PIXELS: u64 = 1 << 28;

const FAMILY: &str = "sans-serif";

/// The format of a picture.
#[derive(Debug, Clone, Copy)]
enum Format {
    Svg,
    Png,
}

impl Format {
    /// The format of a file by its extension.
    fn of(path: &Path) -> Result<Self, String> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(format!("{}: must end in .svg or .png", path.display())),
        }
    }
}

/// The font of pictures, which is part of the program.
#[derive(Debug, Clone, Copy)]
pub struct Font(());

impl Font {
    fn load() -> Result<Self, &'static str> {
        let font = dejavu::sans::regular();
        let registered = register_font(FAMILY, FontStyle::Normal, font);
        registered.map_err(|_| "the font cannot be read")?;
        Ok(Self(()))
    }

    /// A style of black letters of that height in pixels, placed by an anchor.
    pub fn style(self, height: i32, anchor: Pos) -> TextStyle<'static> {
        TextStyle::from((FAMILY, height).into_font()).pos(anchor)
    }

    /// A text at a position, [printable].
    pub fn text<'a>(
        self,
        text: &'a str,
        at: (i32, i32),
        style: TextStyle<'a>,
    ) -> Text<'a, (i32, i32), Cow<'a, str>> {
        Text::new(printable(text), at, style)
    }

    /// The width of a text, in pixels.
    pub fn width(self, text: &str, height: i32) -> i32 {
        let size = (FAMILY, height).into_font().box_size(&printable(text));
        // No letter of this font is wider than it is high.
        size.map_or(text.chars().count() as i32 * height, |(width, _)| {
            width as i32
        })
    }
}

/// A drawing that can be rendered to a picture file.
pub trait Drawing {
    /// The advice if a .png would have too many pixels.
    const SMALLER: &'static str;

    /// Width and height, in pixels.
    fn size(&self, font: Font) -> (u32, u32);

    /// Draws on a white area of that size.
    fn draw<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        font: Font,
    ) -> Result<(), Box<dyn Error>>
    where
        D::ErrorType: 'static;
}

/// Checks that a picture can be written to a path, before anything is computed.
pub fn check(path: &Path) -> Result<(), String> {
    Format::of(path)?;
    check_output(path)
}

/// Writes a picture.
pub fn save<P: Drawing>(picture: &P, path: &Path) -> Result<(), Box<dyn Error>> {
    let format = Format::of(path)?;
    let font = Font::load()?;
    let size = picture.size(font);
    let (width, height) = size;
    let pixels = u64::from(width) * u64::from(height);
    if matches!(format, Format::Png) && pixels > MOST_PIXELS {
        let problem = format!("{width} × {height} pixels are too many; {}", P::SMALLER);
        return Err(format!("{}: {problem}", path.display()).into());
    }
    let saved = match format {
        Format::Svg => save_svg(picture, font, size, path),
        Format::Png => save_png(picture, font, size, path),
    };
    saved.map_err(|error| format!("{}: {error}", path.display()).into())
}

fn save_svg(
    picture: &impl Drawing,
    font: Font,
    size: (u32, u32),
    path: &Path,
) -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    draw(picture, font, SVGBackend::with_string(&mut text, size))?;
    // Not written by the backend, which would not notice a full disk.
    Ok(write_file(path, text)?)
}

fn save_png(
    picture: &impl Drawing,
    font: Font,
    size: (u32, u32),
    path: &Path,
) -> Result<(), Box<dyn Error>> {
    let (width, height) = size;
    // Three bytes per pixel: red, green and blue.
    let mut pixels = vec![0; 3 * width as usize * height as usize];
    draw(picture, font, BitMapBackend::with_buffer(&mut pixels, size))?;
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    // Not written by the backend, which would leave a truncated picture if the disk is full.
    Ok(write_file(path, file)?)
}

fn draw<D: DrawingBackend>(
    picture: &impl Drawing,
    font: Font,
    backend: D,
) -> Result<(), Box<dyn Error>>
where
    D::ErrorType: 'static,
{
    let area = backend.into_drawing_area();
    area.fill(&WHITE)?;
    picture.draw(&area, font)?;
    Ok(area.present()?)
}
