//! Attention weights as a picture.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontTransform, register_font};

/// Most pixels of a .png.
const MOST_PIXELS: u64 = 1 << 28;

/// The weights of one head: a row for each token that attends, a column for each that is attended to.
pub struct Map {
    /// Layer, from 1.
    pub layer: usize,
    /// Head, from 1.
    pub head: usize,
    /// Row by row.
    pub weights: Vec<f32>,
}

/// The format of a picture.
#[derive(Debug, Clone, Copy)]
pub enum Format {
    Svg,
    Png,
}

impl Format {
    /// By the extension of the file.
    pub fn of(path: &Path) -> Result<Self, String> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(format!("{}: neither .svg nor .png", path.display())),
        }
    }
}

/// Maps of the same tokens, a row of maps for each layer.
pub struct Picture<'a> {
    rows: &'a [String],
    columns: &'a [String],
    maps: &'a [Map],
    /// Side of a field, and height of the letters beside it, in pixels.
    cell: i32,
    font: i32,
    /// Margins for the rows' labels, and for the columns'.
    left: i32,
    top: i32,
}

impl<'a> Picture<'a> {
    const TITLE: i32 = 24;
    const MARGIN: i32 = 12;

    pub fn new(rows: &'a [String], columns: &'a [String], maps: &'a [Map]) -> Self {
        let (cell, font) = if maps.len() == 1 { (26, 16) } else { (16, 12) };
        let longest = |labels: &[String]| labels.iter().map(|label| label.chars().count()).max();
        // No letter of this font is wider than high.
        let margin = |labels: &[String]| longest(labels).unwrap_or(0) as i32 * font * 3 / 4 + 8;
        Self {
            rows,
            columns,
            maps,
            cell,
            font,
            left: margin(rows),
            top: margin(columns) + Self::TITLE,
        }
    }

    /// Width and height of one map with its labels.
    fn panel(&self) -> (i32, i32) {
        (
            self.left + self.columns.len() as i32 * self.cell + Self::MARGIN,
            self.top + self.rows.len() as i32 * self.cell + Self::MARGIN,
        )
    }

    /// Writes the picture.
    pub fn save(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let format = Format::of(path)?;
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
            let position = (x - 5, y + row as i32 * self.cell + half);
            let anchor = Pos::new(HPos::Right, VPos::Center);
            area.draw(&Text::new(label.as_str(), position, style(anchor)))?;
        }
        for (column, label) in self.columns.iter().enumerate() {
            let position = (x + column as i32 * self.cell + half, y - 5);
            let anchor = Pos::new(HPos::Left, VPos::Center);
            let upwards = style(anchor).transform(FontTransform::Rotate270);
            area.draw(&Text::new(label.as_str(), position, upwards))?;
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
