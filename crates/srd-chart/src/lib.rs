//! Output for people: charts as SVG, the page that holds them, and plain tables.
//!
//! All functions return text that depends only on their data; they read no file and no clock. A
//! chart is part of a [`Page`] (`to_svg`, drawn once for windows and once for phones), or an
//! independent file (`to_file`). Both are light or dark as the reader's browser prefers, and load
//! nothing from the network.
//!
//! | module | content |
//! |---|---|
//! | `lines`, `bars` | [`LineChart`] and [`BarChart`] |
//! | `axis` | positions of values, and ticks |
//! | `style` | [`Colour`]s, [`Dashes`], the style sheet |
//! | `svg` | elements and frames |
//! | `page`, `table` | [`Page`] for browsers, [`Table`] for terminals |
//! | `number`, `unit` | text forms of numbers, and selection of units |
//! | `wellformed` | [`check_well_formed`], for tests |
//!
//! Bounds: a legend names 32 lines, and an axis has 100 ticks. The caller limits the number of
//! points of a line.

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
pub use number::{figure, grouped, number};
pub use page::Page;
pub use style::{Colour, Dashes, nth};
pub use svg::escape;
pub use table::Table;
pub use unit::{Unit, converted, more_is_better, quantity};
pub use wellformed::check as check_well_formed;
