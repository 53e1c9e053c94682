//! The protocol between messaging layers: the frames, and their additional fields in the verbs'
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
//! Integers are big-endian. Further parts of a MESSAGE are sent without a frame: the immediate of
//! their SEND contains the low 16 bits of the message id, above the 16 bits of the offset.
//! `docs/spec/rdm.md` has the rules.

pub(crate) mod batch;
pub(crate) mod encode;
pub(crate) mod field;
pub(crate) mod frame;
pub(crate) mod message;
