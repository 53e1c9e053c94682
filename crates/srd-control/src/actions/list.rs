//! Answers to actions `Describe...`: selection of objects by identifiers and filters, and pages.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::field::{Condition, found};
use crate::error::{ApiError, ApiResult};
use crate::wire::Request;
use crate::wire::model::model;

/// Largest number of values of all filters of a request.
const FILTER_VALUES_MAX: usize = 200;
/// Largest number of characters of a value of a filter.
const FILTER_VALUE_MAX: usize = 255;
/// Largest number of objects in one page of an answer.
const PAGE_MAX: i64 = 1000;

/// Filters of an action `Describe...`: the name of the filter, and the path of its values in an
/// answer. A part of a path that names a list stands for all its elements.
pub(super) type Filters = &'static [(&'static str, &'static str)];

/// Properties of one action `Describe...`: how a request selects objects, and where the answer
/// contains them.
pub(super) struct Listing {
    /// Parameter with identifiers; empty if the action has no such parameter.
    pub(super) ids: &'static str,
    /// Member with the identifier.
    pub(super) id: &'static str,
    /// Makes the error for an identifier that does not exist.
    pub(super) not_found: fn(&str) -> ApiError,
    /// Filters that the action supports.
    pub(super) filters: Filters,
    /// Member of the answer that contains the list of objects.
    pub(super) result: &'static str,
}

impl Listing {
    /// Returns the answer with the selected page of these objects.
    pub(super) fn answer(&self, request: &Request, objects: Vec<Value>) -> ApiResult<Value> {
        let objects = self.select(request, objects)?;
        page(request, self.result, self.id, objects)
    }

    /// Returns the objects that the request selects.
    pub(super) fn select(&self, request: &Request, objects: Vec<Value>) -> ApiResult<Vec<Value>> {
        let ids = request.texts(self.ids);
        let mut selected = objects;
        if !ids.is_empty() {
            let wanted: BTreeSet<&str> = ids.iter().copied().collect();
            selected
                .retain(|object| object[self.id].as_str().is_some_and(|id| wanted.contains(id)));
            let found = selected.iter().filter_map(|object| object[self.id].as_str());
            let found: BTreeSet<&str> = found.collect();
            if let Some(id) = ids.iter().find(|id| !found.contains(**id)) {
                return Err((self.not_found)(id));
            }
        }
        filter(request, self.filters, selected)
    }
}

/// Returns the objects that meet all filters.
pub(super) fn filter(
    request: &Request,
    filters: Filters,
    mut objects: Vec<Value>,
) -> ApiResult<Vec<Value>> {
    for filter in Filter::all(request, filters)? {
        objects.retain(|object| {
            filter.accepts(tags(object), |path, condition| found(object, path, condition))
        });
    }
    Ok(objects)
}

fn tags(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    // Interfaces have another name for the list.
    let tags = ["Tags", "TagSet"].into_iter().find_map(|name| object.get(name)?.as_array());
    tags.into_iter()
        .flatten()
        .filter_map(|tag| Some((tag["Key"].as_str()?, tag["Value"].as_str()?)))
}

/// The part of an object that a filter examines.
enum Subject {
    /// The value of the tag with this key.
    Tag(String),
    /// The keys of all tags.
    TagKeys,
    /// The values of all tags.
    TagValues,
    /// The values at this path of the description.
    Path(Vec<&'static str>),
}

/// A filter of a request.
pub(super) struct Filter {
    subject: Subject,
    accepted: Vec<Pattern>,
}

impl Filter {
    /// Returns the filters of a request.
    pub(super) fn all(request: &Request, filters: Filters) -> ApiResult<Vec<Self>> {
        // One action of the model has another name for the list.
        let name = if request.has("Filter") { "Filter" } else { "Filters" };
        let given = request.list(name);
        let values = |filter: &Value| filter["Values"].as_array().map_or(0, Vec::len);
        if given.iter().map(values).sum::<usize>() > FILTER_VALUES_MAX {
            let message = format!("The maximum number of filter values is {FILTER_VALUES_MAX}");
            return Err(ApiError::new("FilterLimitExceeded", message));
        }
        given.iter().map(|filter| Self::read(filter, filters)).collect()
    }

    fn read(filter: &Value, filters: Filters) -> ApiResult<Self> {
        let Some(name) = filter["Name"].as_str() else {
            return Err(ApiError::missing("Filter.Name"));
        };
        let values = filter["Values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let accepted: Vec<Pattern> = values.map(Pattern::new).collect::<ApiResult<_>>()?;
        let subject = match (name, name.strip_prefix("tag:")) {
            ("tag-key", _) => Subject::TagKeys,
            ("tag-value", _) => Subject::TagValues,
            (_, Some(key)) => Subject::Tag(key.to_owned()),
            _ => match filters.iter().find(|(filter, _)| *filter == name) {
                Some((_, path)) => Subject::Path(path.split('.').collect()),
                None => {
                    let message = format!("The filter '{name}' is invalid");
                    return Err(ApiError::invalid(message));
                }
            },
        };
        Ok(Self { subject, accepted })
    }

    /// Whether the filter accepts an object with these tags. `has` returns whether a value at a
    /// path of the object's description meets a condition.
    pub(super) fn accepts<'t>(
        &self,
        mut tags: impl Iterator<Item = (&'t str, &'t str)>,
        has: impl FnOnce(&[&str], Condition<'_>) -> bool,
    ) -> bool {
        let is_accepted = |text: &str| self.accepted.iter().any(|pattern| pattern.matches(text));
        match &self.subject {
            Subject::Tag(key) => tags.any(|(k, value)| k == key && is_accepted(value)),
            Subject::TagKeys => tags.any(|(key, _)| is_accepted(key)),
            Subject::TagValues => tags.any(|(_, value)| is_accepted(value)),
            Subject::Path(path) => has(path, &is_accepted),
        }
    }
}

/// A part of a pattern.
#[derive(PartialEq)]
enum Part {
    Any,
    One,
    Char(char),
}

/// A pattern, in which `*` stands for any characters, and `?` for one. A character after a
/// backslash stands for itself.
enum Pattern {
    /// A text without such characters.
    Text(String),
    Parts(Vec<Part>),
}

impl Pattern {
    fn new(text: &str) -> ApiResult<Self> {
        if text.chars().count() > FILTER_VALUE_MAX {
            let message = format!("A filter value has at most {FILTER_VALUE_MAX} characters");
            return Err(ApiError::new("FilterLimitExceeded", message));
        }
        if !text.contains(['*', '?', '\\']) {
            return Ok(Self::Text(text.to_owned()));
        }
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' => Part::Any,
                '?' => Part::One,
                '\\' => Part::Char(chars.next().unwrap_or('\\')),
                c => Part::Char(c),
            });
        }
        Ok(Self::Parts(parts))
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Text(own) => own == text,
            Self::Parts(parts) => matches(parts, text),
        }
    }
}

/// Whether a pattern matches the text. The time is the product of the lengths at most.
fn matches(parts: &[Part], text: &str) -> bool {
    let (mut part, mut rest) = (0, text.chars());
    // Position after the last `*`, and the characters that it does not cover yet.
    let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        let mut ahead = rest.clone();
        let Some(next) = ahead.next() else { break };
        match parts.get(part) {
            Some(Part::Any) => {
                part += 1;
                retry = Some((part, rest.clone()));
            }
            Some(Part::One) => (part, rest) = (part + 1, ahead),
            Some(Part::Char(c)) if *c == next => (part, rest) = (part + 1, ahead),
            _ => {
                let Some((after, covered)) = &mut retry else { return false };
                covered.next();
                (part, rest) = (*after, covered.clone());
            }
        }
    }
    parts[part..].iter().all(|part| *part == Part::Any)
}

/// Whether an answer of the action can be one of several pages.
fn has_pages(action: &str) -> bool {
    let input = model().operations.get(action).and_then(|operation| operation.input.as_deref());
    let shape = input.and_then(|input| model().shape(input));
    shape.is_some_and(|shape| shape.members.contains_key("NextToken"))
}

/// The part of a list that an answer shows.
pub(super) struct Page {
    /// Positions of the objects.
    pub(super) shown: Range<usize>,
    /// Token of the next page.
    next: Option<String>,
}

/// Begin of a page, which its token names. Objects that are deleted meanwhile do not hide others.
#[derive(Serialize, Deserialize)]
enum PageBegin {
    /// The first object in a row after this one.
    AfterRow(u64),
    /// The object after `last`. If that was deleted, the object `next`, which followed it. If both
    /// were deleted, the first object of all: some objects are shown again, and none is left out.
    Between { last: String, next: String },
}

impl Page {
    /// Returns the page that the request selects of this number of objects. `row` returns the
    /// number of the row of the object at a position; the numbers ascend.
    pub(super) fn of_rows(
        request: &Request,
        count: usize,
        row: impl Fn(usize) -> u64,
    ) -> ApiResult<Self> {
        let begin = match place(request)? {
            None => 0,
            Some(PageBegin::AfterRow(last)) => {
                (0..count).find(|at| row(*at) > last).unwrap_or(count)
            }
            Some(PageBegin::Between { .. }) => return Err(bad_token()),
        };
        Self::new(request, count, begin, |last| PageBegin::AfterRow(row(last)))
    }

    /// Returns the page that the request selects of this number of objects. `id` returns the
    /// identifier of the object at a position; no two objects have the same.
    pub(super) fn of_ids<'a>(
        request: &Request,
        count: usize,
        id: impl Fn(usize) -> Cow<'a, str>,
    ) -> ApiResult<Self> {
        let find = |wanted: &str| (0..count).find(|at| id(*at) == wanted);
        let begin = match place(request)? {
            None => 0,
            Some(PageBegin::Between { last, next }) => {
                find(&last).map(|last| last + 1).or_else(|| find(&next)).unwrap_or(0)
            }
            Some(PageBegin::AfterRow(_)) => return Err(bad_token()),
        };
        Self::new(request, count, begin, |last| PageBegin::Between {
            last: id(last).into_owned(),
            next: id(last + 1).into_owned(),
        })
    }

    /// Returns the page from a position on. `after` returns the begin of the next page after the
    /// object at a position, which is not the last one.
    fn new(
        request: &Request,
        count: usize,
        begin: usize,
        after: impl Fn(usize) -> PageBegin,
    ) -> ApiResult<Self> {
        let size = match request.number("MaxResults") {
            None if has_pages(&request.action) => usize::try_from(PAGE_MAX).unwrap_or(usize::MAX),
            None => usize::MAX,
            Some(size) if (1..=PAGE_MAX).contains(&size) => usize::try_from(size).unwrap_or(1),
            Some(size) => {
                return Err(ApiError::invalid(format!(
                    "Value ( {size} ) for parameter maxResults is invalid. Expecting a value \
                     between 1 and {PAGE_MAX}."
                )));
            }
        };
        let end = begin.saturating_add(size).min(count);
        let next = (end < count).then(|| token(&request.action, &after(end - 1))).transpose()?;
        Ok(Self { shown: begin..end, next })
    }

    /// Returns the answer with the objects of this page.
    pub(super) fn answer(self, result: &str, objects: Vec<Value>) -> Value {
        let mut answer = Map::new();
        if let Some(next) = self.next {
            answer.insert("NextToken".to_owned(), next.into());
        }
        answer.insert(result.to_owned(), objects.into());
        answer.into()
    }
}

fn bad_token() -> ApiError {
    ApiError::new("InvalidNextToken", "The token is invalid")
}

fn token(action: &str, place: &PageBegin) -> ApiResult<String> {
    let token = serde_json::to_string(&(action, place));
    let token = token.map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(token))
}

/// Returns the begin of the page that the token of a request names.
fn place(request: &Request) -> ApiResult<Option<PageBegin>> {
    let Some(token) = request.text("NextToken") else { return Ok(None) };
    let token = URL_SAFE_NO_PAD.decode(token).map_err(|_| bad_token())?;
    let (action, place): (String, PageBegin) =
        serde_json::from_slice(&token).map_err(|_| bad_token())?;
    if action != request.action {
        return Err(bad_token());
    }
    Ok(Some(place))
}

/// Returns the page of these objects that the request selects. `id` names the member with the
/// identifier of an object; no two objects have the same.
pub(super) fn page(
    request: &Request,
    result: &str,
    id: &str,
    objects: Vec<Value>,
) -> ApiResult<Value> {
    let id = |at: usize| objects[at][id].as_str().unwrap_or_default().into();
    let page = Page::of_ids(request, objects.len(), id)?;
    let Range { start, end } = page.shown.clone();
    Ok(page.answer(result, objects.into_iter().take(end).skip(start).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(parameters: Value) -> Request {
        let parameters = parameters.as_object().unwrap().clone();
        Request { action: "DescribeThings".to_owned(), parameters }
    }

    #[test]
    fn patterns_match_as_the_service_documents() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("?b*", "ab", true),
            ("?", "", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("**a**", "xxaxx", true),
            ("", "", true),
            ("", "a", false),
            ("\u{e4}?c*", "\u{e4}\u{20ac}c\u{1f600}", true),
            ("*\u{e4}", "a\u{e4}b", false),
        ] {
            let matches = Pattern::new(pattern).unwrap().matches(text);
            assert_eq!(matches, expected, "{pattern} {text}");
        }
        let hard = Pattern::new(&"*a".repeat(127)).unwrap();
        assert!(!hard.matches(&"a".repeat(126)));
    }

    const FILTERS: Filters = &[("name", "Name"), ("part.size", "Parts.Size"), ("on", "On")];

    fn names(filters: Value) -> ApiResult<Vec<String>> {
        let objects = vec![
            json!({"Name": "a", "On": true, "Parts": [{"Size": 1}, {"Size": 20}],
                   "Tags": [{"Key": "env", "Value": "prod"}]}),
            json!({"Name": "b", "On": false, "Parts": [], "Tags": []}),
        ];
        let objects = filter(&request(json!({"Filters": filters})), FILTERS, objects)?;
        Ok(objects.iter().map(|o| o["Name"].as_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn filters_select_by_paths_and_tags() {
        let one = |name: &str, value: &str| json!([{"Name": name, "Values": [value]}]);
        assert_eq!(names(one("part.size", "20")).unwrap(), ["a"]);
        assert_eq!(names(one("on", "false")).unwrap(), ["b"]);
        assert_eq!(names(one("tag:env", "pr*")).unwrap(), ["a"]);
        assert_eq!(names(one("tag-key", "env")).unwrap(), ["a"]);
        assert_eq!(names(one("tag:other", "*")).unwrap(), [""; 0]);
        assert_eq!(names(json!([{"Name": "name", "Values": ["b", "a"]}])).unwrap(), ["a", "b"]);
        assert_eq!(names(one("bogus", "x")).unwrap_err().code, "InvalidParameterValue");
        let many = json!([{"Name": "name", "Values": vec!["x"; 201]}]);
        assert_eq!(names(many).unwrap_err().code, "FilterLimitExceeded");
        assert!(names(one("name", &"a".repeat(255))).is_ok());
        let long = one("name", &"a".repeat(256));
        assert_eq!(names(long).unwrap_err().code, "FilterLimitExceeded");
    }

    fn things(ids: &[&str]) -> Vec<Value> {
        ids.iter().map(|id| json!({"Id": id})).collect()
    }

    fn ids(answer: &Value) -> Vec<&str> {
        answer["Things"].as_array().unwrap().iter().map(|of| of["Id"].as_str().unwrap()).collect()
    }

    const SEVEN: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

    /// Returns the second page of seven objects, of which only these are left after the first page
    /// with five.
    fn second(left: &[&str]) -> Value {
        let first = page(&request(json!({"MaxResults": 5})), "Things", "Id", things(&SEVEN));
        let first = first.unwrap();
        assert_eq!(ids(&first), SEVEN[..5]);
        let next = json!({"MaxResults": 5, "NextToken": first["NextToken"]});
        page(&request(next), "Things", "Id", things(left)).unwrap()
    }

    /// A deleted object hid others if it was the last one of its page.
    #[test]
    fn regression_pages_follow_each_other_although_objects_are_deleted() {
        for left in [&SEVEN[..], &["a", "c", "d", "e", "f", "g"], &["a", "f", "g"], &["f", "g"]] {
            let second = second(left);
            assert_eq!(ids(&second), ["f", "g"], "{left:?}");
            assert!(second.get("NextToken").is_none());
        }
        assert_eq!(ids(&second(&["a", "g"])), ["a", "g"], "no object is left out");
        assert!(ids(&second(&[])).is_empty());
    }

    #[test]
    fn pages_of_rows_follow_each_other_although_objects_are_deleted() {
        let rows = |rows: &[u64], token: Option<String>| {
            let mut parameters = json!({"MaxResults": 2});
            if let Some(token) = token {
                parameters["NextToken"] = token.into();
            }
            let page = Page::of_rows(&request(parameters), rows.len(), |at| rows[at]).unwrap();
            (rows[page.shown].to_vec(), page.next)
        };
        let (shown, next) = rows(&[3, 5, 8, 9], None);
        assert_eq!(shown, [3, 5]);
        for (left, expected) in [
            (&[3, 5, 8, 9][..], &[8, 9][..]),
            (&[3, 8, 9], &[8, 9]),
            (&[9, 12], &[9, 12]),
            (&[3], &[]),
        ] {
            assert_eq!(rows(left, next.clone()), (expected.to_vec(), None), "{left:?}");
        }
    }

    #[test]
    fn tokens_of_other_lists_are_refused() {
        let of_row = token("DescribeThings", &PageBegin::AfterRow(1)).unwrap();
        let between = PageBegin::Between { last: "a".to_owned(), next: "b".to_owned() };
        let of_other = token("DescribeOthers", &between).unwrap();
        for bad in ["bogus", "%%%", "eA", &of_row, &of_other] {
            let request = request(json!({"NextToken": bad}));
            let error = page(&request, "Things", "Id", things(&SEVEN)).unwrap_err();
            assert_eq!(error.code, "InvalidNextToken");
        }
    }
}
