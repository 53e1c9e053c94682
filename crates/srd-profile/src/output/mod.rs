//! The report for the user: as data, as text and as a page with pictures.

pub mod html;
pub(crate) mod number;
pub(crate) mod report;
pub mod text;
