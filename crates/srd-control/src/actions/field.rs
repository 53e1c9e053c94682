//! Values of objects at a path of members, as filters name them. A part of a path that names a list
//! stands for all its elements.
//!
//! [`has`] looks at the fields of an object while serde walks over them: no description of the
//! object is made, and fields beside the path are skipped. [`found`] looks at a description.

use std::fmt::{self, Display};

use serde::Serialize;
use serde::ser::{self, Impossible, Serializer};
use serde_json::{Number, Value};

/// Condition on the text of a value.
pub(super) type Condition<'a> = &'a dyn Fn(&str) -> bool;

/// Whether a value of the object at the path meets the condition. The result is that of [`found`]
/// for the object as JSON.
pub(super) fn has<T: Serialize>(object: &T, path: &[&str], condition: Condition<'_>) -> bool {
    object.serialize(Probe { path, condition }).unwrap_or_else(|_| {
        // An object with a part that the probe does not support, for example a map.
        let value = serde_json::to_value(object).unwrap_or_default();
        found(&value, path, condition)
    })
}

/// Whether a value at the path meets the condition.
pub(super) fn found(value: &Value, path: &[&str], condition: Condition<'_>) -> bool {
    match (value, path) {
        (Value::Array(elements), _) => elements.iter().any(|v| found(v, path, condition)),
        (Value::Object(members), [first, rest @ ..]) => {
            members.get(*first).is_some_and(|v| found(v, rest, condition))
        }
        (Value::String(text), []) => condition(text),
        (Value::Bool(flag), []) => condition(flag_text(*flag)),
        (Value::Number(number), []) => condition(&number.to_string()),
        _ => false,
    }
}

fn flag_text(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
}

/// A serializer without output. Its result is whether a value at the path meets the condition.
#[derive(Clone, Copy)]
struct Probe<'a> {
    path: &'a [&'a str],
    condition: Condition<'a>,
}

impl Probe<'_> {
    fn text(self, text: &str) -> Result<bool, fmt::Error> {
        Ok(self.path.is_empty() && (self.condition)(text))
    }

    fn number(self, number: impl Display) -> Result<bool, fmt::Error> {
        match self.path {
            [] => self.text(&number.to_string()),
            _ => Ok(false),
        }
    }
}

/// Serializer of the members or elements of a value. `is_found`: whether one of those visited so
/// far meets the condition of the probe.
struct Parts<'a> {
    probe: Probe<'a>,
    is_found: bool,
}

impl ser::SerializeSeq for Parts<'_> {
    type Ok = bool;
    type Error = fmt::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> fmt::Result {
        self.is_found = self.is_found || value.serialize(self.probe)?;
        Ok(())
    }

    fn end(self) -> Result<bool, fmt::Error> {
        Ok(self.is_found)
    }
}

impl ser::SerializeTuple for Parts<'_> {
    type Ok = bool;
    type Error = fmt::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> fmt::Result {
        ser::SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<bool, fmt::Error> {
        Ok(self.is_found)
    }
}

impl ser::SerializeTupleStruct for Parts<'_> {
    type Ok = bool;
    type Error = fmt::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> fmt::Result {
        ser::SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<bool, fmt::Error> {
        Ok(self.is_found)
    }
}

impl ser::SerializeStruct for Parts<'_> {
    type Ok = bool;
    type Error = fmt::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> fmt::Result {
        if let [first, rest @ ..] = self.probe.path
            && *first == name
        {
            self.is_found = value.serialize(Probe { path: rest, ..self.probe })?;
        }
        Ok(())
    }

    fn end(self) -> Result<bool, fmt::Error> {
        Ok(self.is_found)
    }
}

impl<'a> Serializer for Probe<'a> {
    type Ok = bool;
    type Error = fmt::Error;
    type SerializeSeq = Parts<'a>;
    type SerializeTuple = Parts<'a>;
    type SerializeTupleStruct = Parts<'a>;
    type SerializeTupleVariant = Impossible<bool, fmt::Error>;
    type SerializeMap = Impossible<bool, fmt::Error>;
    type SerializeStruct = Parts<'a>;
    type SerializeStructVariant = Impossible<bool, fmt::Error>;

    fn serialize_bool(self, value: bool) -> Result<bool, fmt::Error> {
        self.text(flag_text(value))
    }

    fn serialize_i8(self, value: i8) -> Result<bool, fmt::Error> {
        self.number(value)
    }

    fn serialize_i16(self, value: i16) -> Result<bool, fmt::Error> {
        self.number(value)
    }

    fn serialize_i32(self, value: i32) -> Result<bool, fmt::Error> {
        self.number(value)
    }

    fn serialize_i64(self, value: i64) -> Result<bool, fmt::Error> {
        self.number(value)
    }

    fn serialize_u8(self, value: u8) -> Result<bool, fmt::Error> {
        self.number(value)
    }

    fn serialize_u16(self, value: u16) -> Result<bool, fmt::Error> {
        self.number(value)
    }

    fn serialize_u32(self, value: u32) -> Result<bool, fmt::Error> {
        self.number(value)
    }

    fn serialize_u64(self, value: u64) -> Result<bool, fmt::Error> {
        self.number(value)
    }

    fn serialize_f32(self, value: f32) -> Result<bool, fmt::Error> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<bool, fmt::Error> {
        Number::from_f64(value).map_or(Ok(false), |number| self.number(number))
    }

    fn serialize_char(self, value: char) -> Result<bool, fmt::Error> {
        self.number(value)
    }

    fn serialize_str(self, value: &str) -> Result<bool, fmt::Error> {
        self.text(value)
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<bool, fmt::Error> {
        Err(fmt::Error)
    }

    fn serialize_none(self) -> Result<bool, fmt::Error> {
        Ok(false)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<bool, fmt::Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<bool, fmt::Error> {
        Ok(false)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<bool, fmt::Error> {
        Ok(false)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<bool, fmt::Error> {
        self.text(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<bool, fmt::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<bool, fmt::Error> {
        Err(fmt::Error)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'a>, fmt::Error> {
        Ok(Parts { probe: self, is_found: false })
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'a>, fmt::Error> {
        Ok(Parts { probe: self, is_found: false })
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'a>, fmt::Error> {
        Ok(Parts { probe: self, is_found: false })
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, fmt::Error> {
        Err(fmt::Error)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, fmt::Error> {
        Err(fmt::Error)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts<'a>, fmt::Error> {
        Ok(Parts { probe: self, is_found: false })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, fmt::Error> {
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    use serde_json::json;

    use super::*;

    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Part {
        size: i64,
        on: Option<bool>,
        weight: f64,
    }

    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Whole {
        name: String,
        address: Ipv4Addr,
        parts: Vec<Part>,
        lists: Vec<Vec<u8>>,
        pair: (u8, char),
        nothing: Option<String>,
        map: BTreeMap<String, String>,
    }

    fn whole() -> Whole {
        let part = |size, on| Part { size, on, weight: 0.5 };
        Whole {
            name: "n".to_owned(),
            address: Ipv4Addr::new(10, 0, 0, 1),
            parts: vec![part(1, None), part(-20, Some(true))],
            lists: vec![vec![1, 2], vec![3]],
            pair: (7, 'x'),
            nothing: None,
            map: [("k".to_owned(), "v".to_owned())].into(),
        }
    }

    /// All texts at a path.
    fn texts(see: impl Fn(&[&str], Condition<'_>) -> bool, path: &str) -> Vec<String> {
        let texts = std::cell::RefCell::new(Vec::new());
        let path: Vec<&str> = path.split('.').filter(|part| !part.is_empty()).collect();
        see(&path, &|text| {
            texts.borrow_mut().push(text.to_owned());
            false
        });
        texts.into_inner()
    }

    #[test]
    fn an_object_has_the_values_of_its_description() {
        let whole = whole();
        let value = serde_json::to_value(&whole).unwrap();
        for (path, expected) in [
            ("Name", json!(["n"])),
            ("Name.Size", json!([])),
            ("Address", json!(["10.0.0.1"])),
            ("Parts.Size", json!(["1", "-20"])),
            ("Parts.On", json!(["true"])),
            ("Parts.Weight", json!(["0.5", "0.5"])),
            ("Parts", json!([])),
            ("Lists", json!(["1", "2", "3"])),
            ("Pair", json!(["7", "x"])),
            ("Nothing", json!([])),
            ("Map.k", json!(["v"])),
            ("Other", json!([])),
            ("", json!([])),
        ] {
            let of_object = texts(|path, condition| has(&whole, path, condition), path);
            assert_eq!(json!(of_object), expected, "{path}");
            let of_value = texts(|path, condition| found(&value, path, condition), path);
            assert_eq!(of_value, of_object, "{path}");
        }
        assert!(has(&whole, &["Parts", "Size"], &|text| text == "-20"));
        assert!(has(&whole, &["Parts", "Size"], &|text| text == "1"));
        assert!(!has(&whole, &["Parts", "Size"], &|text| text == "2"));
    }
}
