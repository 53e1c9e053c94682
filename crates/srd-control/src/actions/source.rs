//! Objects of a table for actions `Describe...`. Identifiers are looked up, filters look at the
//! fields of the objects, and a description is made only for the objects that an answer shows. So
//! the time of a request grows with the fields that its filters name, not with the size of the
//! descriptions.

use std::collections::BTreeMap;

use serde_json::Value;

use super::field::{self, Condition};
use super::list::{Filter, Listing, Page};
use super::support::show;
use crate::error::ApiResult;
use crate::state::{Object, Table};
use crate::wire::Request;

/// Function that returns whether a value at a path of the description meets a condition, and
/// `None` if the description shows the fields of the object there.
type Derived<'a, T> = Box<dyn Fn(&T, &[&str], Condition<'_>) -> Option<bool> + 'a>;

/// Function that returns whether an object meets a condition.
type Meets<'a, T> = Box<dyn Fn(&T) -> bool + 'a>;

/// Objects of a table, with their descriptions.
pub(super) struct Source<'a, T> {
    table: &'a Table<T>,
    condition: Option<Meets<'a, T>>,
    derived: Option<Derived<'a, T>>,
    view: Box<dyn Fn(&T) -> Value + 'a>,
}

impl<'a, T: Object> Source<'a, T> {
    /// All objects of a table. The description of an object consists of its fields.
    pub(super) fn new(table: &'a Table<T>) -> Self {
        Self { table, condition: None, derived: None, view: Box::new(show) }
    }

    /// Removes the objects that do not meet the condition.
    pub(super) fn only(mut self, condition: impl Fn(&T) -> bool + 'a) -> Self {
        self.condition = Some(Box::new(condition));
        self
    }

    /// Sets the description of an object, and the values in which it differs from the fields of the
    /// object: see [`Derived`].
    pub(super) fn shown(
        mut self,
        view: impl Fn(&T) -> Value + 'a,
        derived: impl Fn(&T, &[&str], Condition<'_>) -> Option<bool> + 'a,
    ) -> Self {
        self.view = Box::new(view);
        self.derived = Some(Box::new(derived));
        self
    }

    fn is_in(&self, object: &T) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition(object))
    }

    /// Returns the objects with these identifiers in the order of their creation, or the first
    /// identifier without an object.
    fn named<'i>(&self, ids: &[&'i str]) -> Result<Vec<&'a T>, &'i str> {
        let mut rows = BTreeMap::new();
        for id in ids {
            let row = self.table.row(id).filter(|(_, object)| self.is_in(object));
            let (number, object) = row.ok_or(*id)?;
            rows.insert(number, object);
        }
        Ok(rows.into_values().collect())
    }

    /// Whether a value at a path of the description of an object meets the condition.
    pub(super) fn has(&self, object: &T, path: &[&str], condition: Condition<'_>) -> bool {
        let derived = self.derived.as_ref().and_then(|of| of(object, path, condition));
        derived.unwrap_or_else(|| field::has(object, path, condition))
    }

    /// Returns the description of an object.
    pub(super) fn view(&self, object: &T) -> Value {
        (self.view)(object)
    }

    fn accepts(&self, filter: &Filter, object: &T) -> bool {
        let tags = object.tags().iter().map(|tag| (tag.key.as_str(), tag.value.as_str()));
        filter.accepts(tags, |path, condition| self.has(object, path, condition))
    }
}

impl Listing {
    /// Returns the objects that the request selects.
    pub(super) fn find<'a, T: Object>(
        &self,
        request: &Request,
        source: &Source<'a, T>,
    ) -> ApiResult<Vec<&'a T>> {
        let ids = request.texts(self.ids);
        let mut objects = match ids.is_empty() {
            true => source.table.iter().filter(|object| source.is_in(object)).collect(),
            false => source.named(&ids).map_err(self.not_found)?,
        };
        for filter in Filter::all(request, self.filters)? {
            objects.retain(|object| source.accepts(&filter, object));
        }
        Ok(objects)
    }

    /// Returns the answer with the selected page of the objects.
    pub(super) fn describe<T: Object>(
        &self,
        request: &Request,
        source: &Source<'_, T>,
    ) -> ApiResult<Value> {
        let objects = self.find(request, source)?;
        let row = |at: usize| source.table.row(objects[at].id()).map_or(0, |(row, _)| row);
        let page = Page::of_rows(request, objects.len(), row)?;
        let shown = objects[page.shown.clone()].iter().map(|object| source.view(object));
        let shown = shown.collect();
        Ok(page.answer(self.result, shown))
    }
}
