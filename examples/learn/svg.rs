//! Pictures in SVG.

use std::fmt::Display;

/// The color of lines.
pub const DARK: &str = "#1b4f8a";

/// A picture of this width and height, in pixels.
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    pub fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], fill: &str) {
        self.add(format_args!(
            r##"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}" stroke="#888" stroke-width="0.5"/>"##
        ));
    }

    /// A box with rounded corners, and lines of text in its middle.
    pub fn boxed(
        &mut self,
        [x, y]: [f64; 2],
        [width, height]: [f64; 2],
        fill: &str,
        lines: &[&str],
    ) {
        self.add(format_args!(
            r##"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="6" fill="{fill}" stroke="#555"/>"##
        ));
        let middle = y + height / 2.0 - 8.0 * (lines.len() as f64 - 1.0) + 4.0;
        for (number, line) in lines.iter().enumerate() {
            let size = if number == 0 { 13 } else { 11 };
            self.text([x + width / 2.0, middle + 16.0 * number as f64], "middle", size, line);
        }
    }

    /// Text that begins, is centered or ends at a place: `start`, `middle` or `end`.
    pub fn text(&mut self, [x, y]: [f64; 2], anchor: &str, size: u32, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        self.add(format_args!(
            r##"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}" fill="#222">{text}</text>"##
        ));
    }

    /// A line through points.
    pub fn line(&mut self, points: &[[f64; 2]], colour: &str, width: f64) {
        self.path(points, colour, width, "");
    }

    /// A line with an arrow at its end.
    pub fn arrow(&mut self, points: &[[f64; 2]], colour: &str) {
        self.path(points, colour, 1.5, r##" marker-end="url(#arrow)""##);
    }

    fn path(&mut self, points: &[[f64; 2]], colour: &str, width: f64, more: &str) {
        let points = points.iter().map(|[x, y]| format!("{x:.1},{y:.1} "));
        let points = points.collect::<String>();
        self.add(format_args!(
            r##"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"{more}/>"##
        ));
    }

    /// A square per value, the darker the larger; 0 is white, 1 is dark. Labels stand beside rows and above columns.
    pub fn heat_map(
        &mut self,
        [x, y]: [f64; 2],
        cell: f64,
        rows: &[Vec<f32>],
        beside: &[&str],
        above: &[&str],
    ) {
        for (i, row) in rows.iter().enumerate() {
            for (j, &value) in row.iter().enumerate() {
                let place = [x + cell * j as f64, y + cell * i as f64];
                self.rect(place, [cell, cell], &shade(value));
            }
        }
        for (i, label) in beside.iter().enumerate() {
            self.text([x - 6.0, y + cell * (i as f64 + 0.5) + 4.0], "end", 12, label);
        }
        for (j, label) in above.iter().enumerate() {
            self.text([x + cell * (j as f64 + 0.5), y - 6.0], "middle", 12, label);
        }
    }

    /// A heat map of many cells without labels, in 27 shades. A path per shade keeps the file small.
    pub fn fine_heat_map(&mut self, [x, y]: [f64; 2], cell: f64, rows: &[Vec<f32>]) {
        let y = y + cell / 2.0;
        self.add(format_args!(
            r##"<g transform="translate({x:.1} {y:.1}) scale({cell})" shape-rendering="crispEdges">"##
        ));
        for level in -13..=13 {
            let mut path = String::new();
            for (i, row) in rows.iter().enumerate() {
                for (j, value) in row.iter().enumerate() {
                    if (value * 13.0).round() as i32 == level {
                        path += &format!("M{j} {i}h1");
                    }
                }
            }
            let colour = shade(level as f32 / 13.0);
            self.add(format_args!(r##"<path d="{path}" stroke="{colour}"/>"##));
        }
        self.add("</g>");
    }

    fn add(&mut self, element: impl Display) {
        self.body += &format!("{element}\n");
    }

    /// The file's text.
    pub fn finish(self) -> String {
        let Self { width, height, body } = self;
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif">
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#444"/></marker></defs>
<rect width="{width}" height="{height}" fill="#fff"/>
{body}</svg>
"##
        )
    }
}

/// From white for 0 to dark blue for 1; values below 0 turn red.
pub fn shade(value: f32) -> String {
    let value = value.clamp(-1.0, 1.0);
    let [red, green, blue] = if value < 0.0 { [178, 60, 50] } else { [0x1b, 0x4f, 0x8a] };
    let mix = |channel: i32| (255.0 + (channel as f32 - 255.0) * value.abs()).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(red), mix(green), mix(blue))
}
