//! The picture of curves: a legend, and panels below each other.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::{Drawing, Font};

/// Colors that people with red-green color blindness can also distinguish (Okabe and Ito, 2008).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];

const GRID: RGBColor = RGBColor(225, 225, 225);

/// Sizes in pixels of the letters, a line of text, a curve's panel, and the space around it.
const LETTERS: i32 = 15;
const LINE: i32 = 22;
const PANEL: (i32, i32) = (760, 220);
const MARGIN: i32 = 14;
/// Room for half of the last label of the x axis.
const RIGHT: i32 = 48;
/// The width of a color sample in the legend.
const SAMPLE: i32 = 36;

/// The radius of the ring around the mark of an average.
const RING: i32 = 8;

/// The space above a panel, for its title, and below it, for the labels of the axis.
const HEAD: i32 = LINE + 6;
const FOOT: i32 = LINE;

/// The stage of a run in which a curve was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Training,
    Validation,
    /// The validation of an average of checkpoints.
    Average,
}

/// A curve of one of the runs.
pub struct Series {
    /// The index of the run.
    pub run: usize,
    pub stage: Stage,
    /// Points of x and y, all finite.
    pub points: Vec<(f64, f64)>,
}

/// The curves of one quantity.
pub struct Panel {
    pub title: String,
    /// Whether the y axis starts at zero.
    pub from_zero: bool,
    /// At least one series, each with at least one point.
    pub series: Vec<Series>,
}

/// Panels below each other, with a common x axis.
pub struct Curves {
    /// The runs' names.
    pub runs: Vec<String>,
    /// The title of the x axis.
    pub over: &'static str,
    pub panels: Vec<Panel>,
}

impl Curves {
    /// The x axis, from zero to the end of the longest curve.
    fn lower_axis(&self) -> Axis {
        let series = self.panels.iter().flat_map(|panel| &panel.series);
        let places = series.flat_map(|series| series.points.iter().map(|point| point.0));
        Axis::new(0.0, places.fold(0.0, f64::max), 8)
    }

    /// The lines of the legend below the runs, which explain the width of a curve.
    fn stages(&self) -> Vec<(Stage, &'static str)> {
        let is_drawn = |stage: Stage| {
            let mut series = self.panels.iter().flat_map(|panel| &panel.series);
            series.any(|series| series.stage == stage)
        };
        let stages = [
            (Stage::Training, "training: thin, without marks"),
            (Stage::Validation, "validation: thick, with a mark each"),
            (
                Stage::Average,
                "average of the last checkpoints: a mark in a ring",
            ),
        ];
        stages
            .into_iter()
            .filter(|&(stage, _)| is_drawn(stage))
            .collect()
    }

    /// The left end of the panels, with room for the widest label.
    fn left(&self, font: Font) -> i32 {
        let ticks = self.panels.iter().flat_map(|panel| panel.axis().ticks());
        let widths = ticks.map(|(_, label)| font.width(&label, LETTERS));
        widths.max().unwrap_or(0) + 2 * MARGIN
    }

    /// The lower end of the legend.
    fn legend_end(&self) -> i32 {
        MARGIN + (self.runs.len() + self.stages().len()) as i32 * LINE
    }
}

impl Panel {
    /// The y axis, over all values, with some space above and below them.
    fn axis(&self) -> Axis {
        let points = self.series.iter().flat_map(|series| &series.points);
        let ends = (f64::INFINITY, f64::NEG_INFINITY);
        let (low, high) = points.fold(ends, |(low, high), &(_, number)| {
            (f64::min(low, number), f64::max(high, number))
        });
        let low = if self.from_zero { low.min(0.0) } else { low };
        let space = (high - low) / 20.0;
        match self.from_zero {
            true => Axis::new(low, high + space, 5),
            false => Axis::new(low - space, high + space, 5),
        }
    }
}

impl Drawing for Curves {
    const SMALLER: &'static str = "draw fewer --numbers";

    fn size(&self, font: Font) -> (u32, u32) {
        let stages = self.stages();
        let stages = stages.iter().map(|&(_, text)| text);
        let names = self.runs.iter().map(String::as_str).chain(stages);
        let legend = names.map(|name| font.width(name, LETTERS)).max();
        let legend = SAMPLE + legend.unwrap_or(0);
        let titles = self.panels.iter().map(|panel| &panel.title);
        let titles = titles.map(|title| font.width(title, LETTERS)).max();
        let content = PANEL.0.max(legend).max(titles.unwrap_or(0));
        let panels = self.panels.len() as i32 * (HEAD + PANEL.1 + FOOT);
        let width = self.left(font) + content + RIGHT;
        let height = self.legend_end() + panels + LINE + MARGIN;
        (width as u32, height as u32)
    }

    fn draw<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        font: Font,
    ) -> Result<(), Box<dyn Error>>
    where
        D::ErrorType: 'static,
    {
        let page = Page {
            area,
            font,
            left: self.left(font),
            lower: self.lower_axis(),
        };
        page.legend(self)?;
        let mut top = self.legend_end();
        for panel in &self.panels {
            page.panel(panel, top + HEAD)?;
            top += HEAD + PANEL.1 + FOOT;
        }
        let middle = (page.left + PANEL.0 / 2, top + 2);
        page.text(self.over, middle, HPos::Center, VPos::Top)
    }
}

/// The area to draw on, and its layout.
struct Page<'a, D: DrawingBackend> {
    area: &'a DrawingArea<D, Shift>,
    font: Font,
    /// The left end of the panels.
    left: i32,
    lower: Axis,
}

type Point = (i32, i32);

impl<D: DrawingBackend> Page<'_, D>
where
    D::ErrorType: 'static,
{
    fn text(&self, text: &str, at: Point, h: HPos, v: VPos) -> Result<(), Box<dyn Error>> {
        let style = self.font.style(LETTERS, Pos::new(h, v));
        Ok(self.area.draw(&self.font.text(text, at, style))?)
    }

    fn line(&self, points: Vec<Point>, style: impl Into<ShapeStyle>) -> Result<(), Box<dyn Error>> {
        Ok(self.area.draw(&PathElement::new(points, style))?)
    }

    /// The runs with their colors and markers, then the explanation of the width of a curve.
    fn legend(&self, curves: &Curves) -> Result<(), Box<dyn Error>> {
        let mut y = MARGIN + LINE / 2;
        for (run, name) in curves.runs.iter().enumerate() {
            let ends = [(self.left, y - 1), (self.left + SAMPLE - 8, y + 1)];
            self.area.draw(&Rectangle::new(ends, color(run).filled()))?;
            self.mark(run, (self.left + SAMPLE / 2 - 4, y))?;
            let at = (self.left + SAMPLE, y);
            self.text(name, at, HPos::Left, VPos::Center)?;
            y += LINE;
        }
        for (_, text) in curves.stages() {
            self.text(text, (self.left, y), HPos::Left, VPos::Center)?;
            y += LINE;
        }
        Ok(())
    }

    /// A panel whose plot starts at `top`, below the title.
    fn panel(&self, panel: &Panel, top: i32) -> Result<(), Box<dyn Error>> {
        let (left, axis) = (self.left, panel.axis());
        let (right, bottom) = (left + PANEL.0, top + PANEL.1);
        let x = |place: f64| left + (self.lower.share(place) * f64::from(PANEL.0)).round() as i32;
        let y = |number: f64| bottom - (axis.share(number) * f64::from(PANEL.1)).round() as i32;

        self.text(&panel.title, (left, top - 6), HPos::Left, VPos::Bottom)?;
        for (place, label) in self.lower.ticks() {
            let x = x(place);
            self.line(vec![(x, top), (x, bottom)], GRID)?;
            self.text(&label, (x, bottom + 4), HPos::Center, VPos::Top)?;
        }
        for (number, label) in axis.ticks() {
            let y = y(number);
            self.line(vec![(left, y), (right, y)], GRID)?;
            let at = (left - 6, y);
            self.text(&label, at, HPos::Right, VPos::Center)?;
        }
        for series in &panel.series {
            let points = series.points.iter();
            let points: Vec<Point> = points.map(|&(place, n)| (x(place), y(n))).collect();
            // A single training point would not be visible without a marker.
            let marked = series.stage != Stage::Training || points.len() == 1;
            if marked {
                for &point in &points {
                    self.mark(series.run, point)?;
                }
            }
            let color = color(series.run);
            match series.stage {
                Stage::Training => self.line(points, color.stroke_width(1))?,
                Stage::Validation => self.line(points, color.stroke_width(2))?,
                Stage::Average => {
                    for point in points {
                        let ring = Circle::new(point, RING, color.stroke_width(2));
                        self.area.draw(&ring)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The marker of a run. Runs with the same color have different markers.
    fn mark(&self, run: usize, (x, y): Point) -> Result<(), Box<dyn Error>> {
        let style = color(run).filled();
        let corners = match run % 4 {
            0 => return Ok(self.area.draw(&Circle::new((x, y), 4, style))?),
            1 => vec![
                (x - 4, y - 4),
                (x + 4, y - 4),
                (x + 4, y + 4),
                (x - 4, y + 4),
            ],
            2 => vec![(x, y - 5), (x + 5, y + 4), (x - 5, y + 4)],
            _ => vec![(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)],
        };
        Ok(self.area.draw(&Polygon::new(corners, style))?)
    }
}

fn color(run: usize) -> RGBColor {
    COLORS[run % COLORS.len()]
}
