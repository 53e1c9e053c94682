//! Output for people: charts as SVG, the page that holds them, and plain tables.
//!
//! Everything is text from data, without a file or a clock. A chart is part of a [`Page`]
//! (`to_svg`, once for windows and once for phones), or a file of its own (`to_file`); either is
//! light or dark as its reader prefers and needs nothing from outside.
//!
//! | module | what |
//! |---|---|
//! | `lines`, `bars` | [`LineChart`] and [`BarChart`] |
//! | `axis` | from values to places, and where the ticks are |
//! | `style` | [`Colour`]s, [`Dashes`], the style sheet |
//! | `svg` | elements and frames |
//! | `page`, `table` | [`Page`] for browsers, [`Table`] for terminals |
//! | `number`, `unit` | how numbers are written, and in which unit |
//! | `wellformed` | [`check_well_formed`], for tests |
//!
//! Bounds: a legend names 32 lines, an axis has 100 ticks. The caller bounds the number of points
//! of a line.

mod axis;
mod bars;
mod lines;
mod number;
mod page;
mod style;
mod svg;
mod table;
mod unit;
mod wellformed;

pub use axis::Axis;
pub use bars::{Bar, BarChart};
pub use lines::{ChartLine, LineChart, Mark};
pub use number::{figure, number};
pub use page::Page;
pub use style::{Colour, Dashes, nth};
pub use svg::escape;
pub use table::Table;
pub use unit::{Unit, converted, more_is_better, quantity};
pub use wellformed::check as check_well_formed;
