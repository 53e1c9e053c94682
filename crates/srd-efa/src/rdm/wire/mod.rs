//! The protocol between messaging layers: the frames, and the fields beside them in the verbs'
//! SEND.
//!
//! ```text
//! bytes     0    1         2            4            8
//! HELLO    | 1  | version | 0          | session    | features, incarnation
//! ANSWER   | 2  | version | 0          | session    | the same, limit
//! CREDIT   | 3  | 0       | 0          | session    | limit
//! MESSAGE  | 4  | flags   | 0          | message id | tag? data? token? length? bytes
//! LONG     | 5  | flags   | pieces     | message id | tag? data? token, pieces
//! RECEIPT  | 6  | status  | 0          | 0          | token
//! ATOMIC   | 7  | op      | type, form | message id | token, pieces, operands
//! RESULT   | 8  | status  | 0          | 0          | token, bytes
//! PUT      | 9  | flags   | 0          | 0          | data? address, key, bytes
//! NOTE     | 10 | 0       | 0          | 0          | data, length
//! BATCH   | 11 | messages | 0         | message id | MESSAGEs, each behind its length
//! ```
//!
//! Integers are big-endian. More of a MESSAGE travels without a frame: its SEND has an immediate,
//! the message id's low 16 bits above the 16 bits of its offset. `docs/spec/rdm.md` has the rules.

pub(crate) mod batch;
pub(crate) mod encode;
pub(crate) mod field;
pub(crate) mod frame;
pub(crate) mod message;
