//! The picture of attention weights.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Drawing, Font};

/// The weights of one head: a row per token that attends, a column per token that is attended to.
pub struct Map {
    /// Layer, from 1.
    pub layer: usize,
    /// Head, from 1.
    pub head: usize,
    /// Row by row.
    pub weights: Vec<f32>,
}

/// Maps of the same tokens, with a row of maps per layer.
pub struct Picture<'a> {
    rows: &'a [String],
    columns: &'a [String],
    maps: &'a [Map],
    /// Size of a cell, and height of the letters beside it, in pixels.
    cell: i32,
    font: i32,
    /// Margins for the labels of rows and columns.
    left: i32,
    top: i32,
}

impl<'a> Picture<'a> {
    const TITLE: i32 = 24;
    const MARGIN: i32 = 12;

    pub fn new(rows: &'a [String], columns: &'a [String], maps: &'a [Map]) -> Self {
        let (cell, font) = if maps.len() == 1 { (26, 16) } else { (16, 12) };
        let longest = |labels: &[String]| labels.iter().map(|label| label.chars().count()).max();
        // No letter of this font is wider than it is high.
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

    fn draw_map<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        letters: Font,
        map: &Map,
        (x, y): (i32, i32),
    ) -> Result<(), Box<dyn Error>>
    where
        D::ErrorType: 'static,
    {
        let style = |anchor| letters.style(self.font, anchor);
        let (x, y) = (x + self.left, y + self.top);
        let half = self.cell / 2;

        let title = format!("layer {}, head {}", map.layer, map.head);
        let anchor = Pos::new(HPos::Left, VPos::Top);
        let corner = (x, y - self.top + 4);
        area.draw(&letters.text(&title, corner, style(anchor)))?;
        for (row, label) in self.rows.iter().enumerate() {
            let position = (x - 5, y + row as i32 * self.cell + half);
            let anchor = Pos::new(HPos::Right, VPos::Center);
            area.draw(&letters.text(label, position, style(anchor)))?;
        }
        for (column, label) in self.columns.iter().enumerate() {
            let position = (x + column as i32 * self.cell + half, y - 5);
            let anchor = Pos::new(HPos::Left, VPos::Center);
            let upwards = style(anchor).transform(FontTransform::Rotate270);
            area.draw(&letters.text(label, position, upwards))?;
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

impl Drawing for Picture<'_> {
    const SMALLER: &'static str = "choose --layer or --head";

    fn size(&self, _: Font) -> (u32, u32) {
        let layers = self.maps.chunk_by(|a, b| a.layer == b.layer);
        let (columns, rows) = (layers.clone().map(<[Map]>::len).max(), layers.count());
        let (width, height) = self.panel();
        (
            columns.unwrap_or(0) as u32 * width as u32,
            rows as u32 * height as u32,
        )
    }

    fn draw<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        letters: Font,
    ) -> Result<(), Box<dyn Error>>
    where
        D::ErrorType: 'static,
    {
        let (width, height) = self.panel();
        for (row, layer) in self.maps.chunk_by(|a, b| a.layer == b.layer).enumerate() {
            for (column, map) in layer.iter().enumerate() {
                let corner = (column as i32 * width, row as i32 * height);
                self.draw_map(area, letters, map, corner)?;
            }
        }
        Ok(())
    }
}

/// From nearly white to dark blue.
fn shade(weight: f32) -> RGBColor {
    let mix = |from: f32, to: f32| (from + (to - from) * weight.clamp(0.0, 1.0)) as u8;
    RGBColor(mix(238.0, 8.0), mix(242.0, 48.0), mix(247.0, 107.0))
}
