//! Control of the congestion window.
//!
//! | module | content |
//! |---|---|
//! | [`window`] | the congestion window, and the inputs of the algorithms |
//! | [`congestion`] | the closed set of algorithms |
//! | [`cubic`], [`hystart`], [`dctcp`] | CUBIC with HyStart, and DCTCP; NewReno is in [`congestion`] |

pub mod congestion;
pub mod cubic;
pub mod dctcp;
pub mod hystart;
pub mod window;
