//! Attributes of nodes in a Chakra trace: a name, and a value of any type in `et_def.proto`.
//!
//! Programs that write traces choose different types for a number: `int64_val`, `uint64_val`,
//! `fixed64_val` and so on. Only the value matters. A list with exactly one value counts as this
//! value.

use prost::{Message, Oneof};

/// An attribute of a node: a name and a value.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// Name of the attribute.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Value of the attribute, which every valid file contains.
    #[prost(
        oneof = "Value",
        tags = "3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, \
                25, 26, 27, 28, 29, 30, 31, 32"
    )]
    pub value: Option<Value>,
}

/// The value of an attribute, in one of the types of `et_def.proto`.
#[derive(Clone, PartialEq, Oneof)]
#[allow(missing_docs, reason = "the types of Protocol Buffers")]
pub enum Value {
    #[prost(double, tag = "3")]
    Double(f64),
    #[prost(message, tag = "4")]
    DoubleList(DoubleList),
    #[prost(float, tag = "5")]
    Float(f32),
    #[prost(message, tag = "6")]
    FloatList(FloatList),
    #[prost(int32, tag = "7")]
    Int32(i32),
    #[prost(message, tag = "8")]
    Int32List(Int32List),
    #[prost(int64, tag = "9")]
    Int64(i64),
    #[prost(message, tag = "10")]
    Int64List(Int64List),
    #[prost(uint32, tag = "11")]
    Uint32(u32),
    #[prost(message, tag = "12")]
    Uint32List(Uint32List),
    #[prost(uint64, tag = "13")]
    Uint64(u64),
    #[prost(message, tag = "14")]
    Uint64List(Uint64List),
    #[prost(sint32, tag = "15")]
    Sint32(i32),
    #[prost(message, tag = "16")]
    Sint32List(Sint32List),
    #[prost(sint64, tag = "17")]
    Sint64(i64),
    #[prost(message, tag = "18")]
    Sint64List(Sint64List),
    #[prost(fixed32, tag = "19")]
    Fixed32(u32),
    #[prost(message, tag = "20")]
    Fixed32List(Fixed32List),
    #[prost(fixed64, tag = "21")]
    Fixed64(u64),
    #[prost(message, tag = "22")]
    Fixed64List(Fixed64List),
    #[prost(sfixed32, tag = "23")]
    Sfixed32(i32),
    #[prost(message, tag = "24")]
    Sfixed32List(Sfixed32List),
    #[prost(sfixed64, tag = "25")]
    Sfixed64(i64),
    #[prost(message, tag = "26")]
    Sfixed64List(Sfixed64List),
    #[prost(bool, tag = "27")]
    Bool(bool),
    #[prost(message, tag = "28")]
    BoolList(BoolList),
    #[prost(string, tag = "29")]
    String(String),
    #[prost(message, tag = "30")]
    StringList(StringList),
    #[prost(bytes = "vec", tag = "31")]
    Bytes(Vec<u8>),
    #[prost(message, tag = "32")]
    BytesList(BytesList),
}

/// A list of values of one type.
macro_rules! list {
    ($name:ident, $kind:ident, $value:ty) => {
        #[doc = concat!("Values of the type `", stringify!($kind), "`.")]
        #[derive(Clone, PartialEq, Message)]
        pub struct $name {
            /// Values of the list.
            #[prost($kind, repeated, tag = "1")]
            pub values: Vec<$value>,
        }
    };
}

list!(DoubleList, double, f64);
list!(FloatList, float, f32);
list!(Int32List, int32, i32);
list!(Int64List, int64, i64);
list!(Uint32List, uint32, u32);
list!(Uint64List, uint64, u64);
list!(Sint32List, sint32, i32);
list!(Sint64List, sint64, i64);
list!(Fixed32List, fixed32, u32);
list!(Fixed64List, fixed64, u64);
list!(Sfixed32List, sfixed32, i32);
list!(Sfixed64List, sfixed64, i64);
list!(BoolList, bool, bool);
list!(StringList, string, String);

/// A list of values of the type `bytes`.
#[derive(Clone, PartialEq, Message)]
pub struct BytesList {
    /// Values of the list.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub values: Vec<Vec<u8>>,
}

/// Value of an attribute in a form that does not depend on its type in the file.
#[derive(Clone, PartialEq, Debug)]
enum Plain {
    Whole(i128),
    Real(f64),
    Text(String),
}

impl Attribute {
    /// Returns the value as a whole number that is not negative.
    pub(super) fn number(&self) -> Result<u64, String> {
        match self.plain()? {
            Plain::Whole(number) => {
                u64::try_from(number).map_err(|_| self.wrong(&format!("is {number}: negative")))
            }
            Plain::Real(real) => {
                let whole = real.fract() == 0.0 && (0.0..=REAL_MAX).contains(&real);
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked above
                let number = whole.then_some(real as u64);
                number.ok_or_else(|| self.wrong(&format!("is {real}: no whole number")))
            }
            Plain::Text(text) => {
                let number = text.trim().parse().ok();
                number.ok_or_else(|| self.wrong("is a text, and no whole number"))
            }
        }
    }

    /// Returns the value as a number that may be negative. The result may only be compared for
    /// equality.
    pub(super) fn mark(&self) -> Result<u64, String> {
        match self.plain()? {
            // Two results are equal if and only if the original values are equal.
            Plain::Whole(number) if number < 0 => {
                let number = i64::try_from(number).map_err(|_| self.wrong("is out of range"))?;
                Ok(number.cast_unsigned())
            }
            _ => self.number(),
        }
    }

    /// Returns the value as a truth value.
    pub(super) fn flag(&self) -> Result<bool, String> {
        match self.plain()? {
            Plain::Whole(number) => Ok(number != 0),
            Plain::Real(real) => Ok(real != 0.0),
            Plain::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "1" => Ok(true),
                "false" | "0" => Ok(false),
                _ => Err(self.wrong("is a text, and neither true nor false")),
            },
        }
    }

    /// Returns the value as text.
    pub(super) fn text(&self) -> Result<String, String> {
        Ok(match self.plain()? {
            Plain::Whole(number) => number.to_string(),
            Plain::Real(real) => real.to_string(),
            Plain::Text(text) => text,
        })
    }

    fn wrong(&self, why: &str) -> String {
        format!("attribute `{}` {why}", self.name)
    }

    fn plain(&self) -> Result<Plain, String> {
        let Some(value) = &self.value else { return Err(self.wrong("has no value")) };
        let one = value.plain();
        one.ok_or_else(|| self.wrong("is a list that has not exactly one value, or no text"))
    }
}

/// Number up to which an `f64` represents every whole number: 2^53.
const REAL_MAX: f64 = 9_007_199_254_740_992.0;

/// Returns the value of a list with exactly one value; `None` for other lists.
fn only<T: Clone>(values: &[T]) -> Option<T> {
    match values {
        [one] => Some(one.clone()),
        _ => None,
    }
}

fn text(bytes: &[u8]) -> Option<Plain> {
    std::str::from_utf8(bytes).ok().map(|text| Plain::Text(text.to_owned()))
}

impl Value {
    /// Returns the value in a form that does not depend on its type. `None` for a list that does
    /// not have exactly one value, and for bytes that are not text.
    fn plain(&self) -> Option<Plain> {
        fn whole<T: Into<i128>>(value: T) -> Plain {
            Plain::Whole(value.into())
        }
        Some(match self {
            Self::Double(value) => Plain::Real(*value),
            Self::DoubleList(list) => Plain::Real(only(&list.values)?),
            Self::Float(value) => Plain::Real((*value).into()),
            Self::FloatList(list) => Plain::Real(only(&list.values)?.into()),
            Self::Int32(value) => whole(*value),
            Self::Int32List(list) => whole(only(&list.values)?),
            Self::Int64(value) => whole(*value),
            Self::Int64List(list) => whole(only(&list.values)?),
            Self::Uint32(value) => whole(*value),
            Self::Uint32List(list) => whole(only(&list.values)?),
            Self::Uint64(value) => whole(*value),
            Self::Uint64List(list) => whole(only(&list.values)?),
            Self::Sint32(value) => whole(*value),
            Self::Sint32List(list) => whole(only(&list.values)?),
            Self::Sint64(value) => whole(*value),
            Self::Sint64List(list) => whole(only(&list.values)?),
            Self::Fixed32(value) => whole(*value),
            Self::Fixed32List(list) => whole(only(&list.values)?),
            Self::Fixed64(value) => whole(*value),
            Self::Fixed64List(list) => whole(only(&list.values)?),
            Self::Sfixed32(value) => whole(*value),
            Self::Sfixed32List(list) => whole(only(&list.values)?),
            Self::Sfixed64(value) => whole(*value),
            Self::Sfixed64List(list) => whole(only(&list.values)?),
            Self::Bool(value) => whole(i32::from(*value)),
            Self::BoolList(list) => whole(i32::from(only(&list.values)?)),
            Self::String(value) => Plain::Text(value.clone()),
            Self::StringList(list) => Plain::Text(only(&list.values)?),
            Self::Bytes(value) => text(value)?,
            Self::BytesList(list) => text(&only(&list.values)?)?,
        })
    }
}
