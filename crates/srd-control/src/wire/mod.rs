//! The protocols `ec2` and `query`: forms in, XML out, both as the service models describe them.
//!
//! | module | content |
//! |---|---|
//! | [`model`] | the service models |
//! | [`form`] | forms and percent-encoding |
//! | [`request`] | a form becomes a checked tree of values |
//! | [`answer`] | a tree of values becomes XML |

pub mod answer;
pub mod form;
pub mod model;
pub mod request;

pub use request::Request;
