//! The protocol `ec2`: forms in, XML out, both as the service model describes them.
//!
//! | module | content |
//! |---|---|
//! | [`model`] | the service model |
//! | [`form`] | forms and percent-encoding |
//! | [`request`] | a form becomes a checked tree of values |
//! | [`answer`] | a tree of values becomes XML |

pub mod answer;
pub mod form;
pub mod model;
pub mod request;

pub use request::Request;
