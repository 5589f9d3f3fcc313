//! Makes a JSON value fit a budget: the result is valid JSON, and every cut is on record.
//!
//! A preview is grown, not cut down. It starts as a skeleton (the members of the outermost object, with empty
//! lists, objects and long texts) and is revealed level by level: at level *n* a list shows its first *n* items,
//! a long text its first *n* chunks, an object its first *n* groups of members. So a large answer shows
//! many items in little detail rather than one item in full, and small members do not wait for large ones.
//!
//! The steps come in one fixed order that does not depend on the budget; the budget only decides after how
//! many of them to stop. That is why a larger budget never shows less. The price of the records counts
//! as part of each step. The work done is bounded by the budget, except that a long text that is entered is
//! counted to its end, since its record tells its length.

use std::collections::VecDeque;
use std::io;

use serde_json::{Map, Value};

use crate::budget::limits;
use crate::cut::Mode;
use crate::handle::{is_handle, outside_handle};
use crate::path::Segment;
use crate::{Budget, Cut, Error, Measure, Path, Result};

/// A value that fits, and the cuts that were made.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The value, or a preview of it, or null.
    pub value: Value,
    /// The cuts; empty if nothing was cut.
    pub cuts: Vec<Cut>,
}

/// Returns the bytes of `value` as compact JSON in the context of `measure`.
pub fn json_bytes(value: &impl serde::Serialize, measure: Measure) -> usize {
    json_bytes_within(value, measure, usize::MAX)
        .expect("what serialises, serialises into a counter")
}

/// Returns the bytes of `value` as compact JSON; `None` if there are more than `max_bytes`.
fn json_bytes_within(
    value: &impl serde::Serialize,
    measure: Measure,
    max_bytes: usize,
) -> Option<usize> {
    struct Counter {
        bytes: usize,
        measure: Measure,
        max: usize,
    }
    impl io::Write for Counter {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            self.bytes += buffer.len();
            if self.measure == Measure::Quoted {
                self.bytes += memchr::memchr2_iter(b'"', b'\\', buffer).count();
            }
            if self.bytes > self.max {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            Ok(buffer.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter {
        bytes: 0,
        measure,
        max: max_bytes,
    };
    serde_json::to_writer(&mut counter, value).ok()?;
    Some(counter.bytes)
}

/// Makes `value` fit: the value and the records of its cuts take at most `budget.max_bytes` together.
///
/// `at` is the path of the value in the document that the caller stores; the records point there.
pub fn fit(value: &Value, at: &Path, budget: &Budget) -> Result<Fitted> {
    let whole = budget.allows_items(value)
        && json_bytes_within(value, budget.measure, budget.max_bytes).is_some();
    if whole {
        return Ok(Fitted {
            value: value.clone(),
            cuts: Vec::new(),
        });
    }
    let mut preview = PreviewBuilder::new(at, budget);
    if let Some(root) = preview.grow(value) {
        return Ok(preview.finish(&root));
    }
    let omitted = Fitted {
        value: Value::Null,
        cuts: vec![Cut::Bytes {
            path: at.clone(),
            limit: budget.max_bytes as u64,
            mode: Mode::Omitted,
        }],
    };
    if json_bytes(&(&omitted.value, &omitted.cuts), budget.measure) > budget.max_bytes {
        return Err(Error::BudgetTooSmall {
            max_bytes: budget.max_bytes,
        });
    }
    Ok(omitted)
}

/// A value in the preview.
enum PreviewValue<'v> {
    /// The whole value.
    Whole(&'v Value),
    /// As much as the part with this number shows.
    Part(usize),
}

/// A list, object or long text that may be shown in part.
struct PreviewPart<'v> {
    body: PreviewBody<'v>,
    /// The enclosing part, and the step from there.
    place: Option<(usize, Segment)>,
    depth: usize,
    /// Bytes of its record while it is incomplete.
    record_bytes: usize,
}

enum PreviewBody<'v> {
    Text {
        text: &'v str,
        /// Chunks allotted; before a handle a little less may be shown.
        chunks: usize,
        shown_bytes: usize,
        shown_chars: usize,
        chars: usize,
    },
    List {
        items: &'v [Value],
        shown: Vec<PreviewValue<'v>>,
        /// The most items that may be shown.
        most: usize,
    },
    Object {
        entries: &'v Map<String, Value>,
        shown: Vec<PreviewValue<'v>>,
    },
}

impl PreviewBody<'_> {
    fn is_complete(&self) -> bool {
        match self {
            Self::Text {
                text, shown_bytes, ..
            } => *shown_bytes == text.len(),
            Self::List { items, shown, .. } => shown.len() == items.len(),
            Self::Object { entries, shown } => shown.len() == entries.len(),
        }
    }

    /// Returns true if another step would show more of it.
    fn can_grow(&self) -> bool {
        match self {
            Self::List { shown, most, .. } => shown.len() < *most,
            Self::Text { .. } | Self::Object { .. } => !self.is_complete(),
        }
    }

    fn original(&self) -> usize {
        match self {
            Self::Text { chars, .. } => *chars,
            Self::List { items, .. } => items.len(),
            Self::Object { entries, .. } => entries.len(),
        }
    }

    /// Returns the extent that is shown, in the units that [`PreviewBody::shrink`] takes.
    fn extent(&self) -> (usize, usize) {
        match self {
            Self::Text {
                shown_bytes,
                shown_chars,
                ..
            } => (*shown_bytes, *shown_chars),
            Self::List { shown, .. } | Self::Object { shown, .. } => (shown.len(), 0),
        }
    }

    fn shrink(&mut self, to: (usize, usize)) {
        match self {
            Self::Text {
                shown_bytes,
                shown_chars,
                ..
            } => (*shown_bytes, *shown_chars) = to,
            Self::List { shown, .. } | Self::Object { shown, .. } => shown.truncate(to.0),
        }
    }
}

struct PreviewBuilder<'v, 'p> {
    at: &'p Path,
    budget: &'p Budget,
    parts: Vec<PreviewPart<'v>>,
    /// The parts that can still grow, in the order in which they will.
    growing: VecDeque<usize>,
    /// Bytes of the shown values.
    shown_bytes: usize,
    /// Bytes of the records for what is not shown.
    record_bytes: usize,
}

impl<'v, 'p> PreviewBuilder<'v, 'p> {
    fn new(at: &'p Path, budget: &'p Budget) -> Self {
        // Numbers in records are charged at their longest, so that what a step costs does not depend on
        // how far the preview has got.
        let whole = [Cut::Bytes {
            path: at.clone(),
            limit: u64::MAX,
            mode: Mode::Preview,
        }];
        Self {
            at,
            budget,
            parts: Vec::new(),
            growing: VecDeque::new(),
            shown_bytes: 0,
            record_bytes: json_bytes(&whole, budget.measure),
        }
    }

    /// Reveals as much of `value` as fits; `None` if the skeleton is too large already.
    fn grow(&mut self, value: &'v Value) -> Option<PreviewValue<'v>> {
        let root = self.reveal(value, None, 0, 0);
        let mut fits = self.fits();
        // The steps since the last state that fitted.
        let mut undo: Vec<(usize, (usize, usize))> = Vec::new();
        let mut level = 0;
        // A later state can fit although this one does not, since completing a part drops its record;
        // once the bare value is too large, none can.
        while !self.overflows() && !self.growing.is_empty() {
            level += 1;
            for _ in 0..self.growing.len() {
                let Some(number) = self.growing.pop_front() else {
                    break;
                };
                undo.push((number, self.parts[number].body.extent()));
                self.step(number, level);
                if self.fits() {
                    fits = true;
                    undo.clear();
                }
                if self.overflows() {
                    break;
                }
            }
        }
        for (number, extent) in undo.into_iter().rev() {
            self.parts[number].body.shrink(extent);
        }
        fits.then_some(root)
    }

    fn fits(&self) -> bool {
        self.shown_bytes + self.record_bytes <= self.budget.max_bytes
    }

    /// Returns true if no later state can fit either, so that the current step may be abandoned.
    fn overflows(&self) -> bool {
        self.shown_bytes > self.budget.max_bytes
    }

    /// Shows one more unit of a part.
    fn step(&mut self, number: usize, level: usize) {
        self.extend(number, level, 1);
        let part = &self.parts[number];
        if part.body.is_complete() {
            self.record_bytes -= part.record_bytes;
        } else if part.body.can_grow() {
            self.growing.push_back(number);
        }
    }

    /// Shows `value` in the detail of `level`.
    fn reveal(
        &mut self,
        value: &'v Value,
        place: Option<(usize, Segment)>,
        depth: usize,
        level: usize,
    ) -> PreviewValue<'v> {
        let body = match value {
            Value::String(text) if !is_atom(text) => {
                self.shown_bytes += json_bytes(&"", self.budget.measure);
                PreviewBody::Text {
                    text,
                    chunks: 0,
                    shown_bytes: 0,
                    shown_chars: 0,
                    chars: text.chars().count(),
                }
            }
            Value::Array(items) if !items.is_empty() => {
                self.shown_bytes += 2;
                PreviewBody::List {
                    items,
                    shown: Vec::new(),
                    most: if self.is_at_top(place.as_ref()) {
                        items.len().min(self.budget.max_items.unwrap_or(usize::MAX))
                    } else {
                        items.len()
                    },
                }
            }
            Value::Object(entries) if !entries.is_empty() => {
                self.shown_bytes += 2;
                PreviewBody::Object {
                    entries,
                    shown: Vec::new(),
                }
            }
            whole => {
                self.shown_bytes += json_bytes(whole, self.budget.measure);
                return PreviewValue::Whole(whole);
            }
        };
        // The outermost object shows its members from the start: they are the shape of the answer.
        let units = level + usize::from(depth == 0 && matches!(body, PreviewBody::Object { .. }));
        let number = self.parts.len();
        self.parts.push(PreviewPart {
            body,
            place,
            depth,
            record_bytes: 0,
        });
        if depth < limits::PREVIEW_DEPTH {
            self.extend(number, level, units);
        }
        if !self.parts[number].body.is_complete() {
            let original = self.parts[number].body.original() as u64;
            let record = Cut::Items {
                path: self.path(number),
                limit: original,
                returned: original,
                original,
            };
            // And its comma.
            let record_bytes = json_bytes(&record, self.budget.measure) + 1;
            self.parts[number].record_bytes = record_bytes;
            self.record_bytes += record_bytes;
            if depth < limits::PREVIEW_DEPTH && self.parts[number].body.can_grow() {
                self.growing.push_back(number);
            }
        }
        PreviewValue::Part(number)
    }

    /// Returns true if [`Budget::allows_items`] applies to a list at this place.
    fn is_at_top(&self, place: Option<&(usize, Segment)>) -> bool {
        let Some((outer, _)) = place else { return true };
        let outer = &self.parts[*outer];
        outer.depth == 0 && matches!(outer.body, PreviewBody::Object { .. })
    }

    /// Shows `units` more of a part: chunks of a text, items of a list, groups of an object's entries.
    fn extend(&mut self, number: usize, level: usize, units: usize) {
        let depth = self.parts[number].depth + 1;
        match &mut self.parts[number].body {
            PreviewBody::Text {
                text,
                chunks,
                shown_bytes,
                shown_chars,
                ..
            } => {
                let text = *text;
                *chunks += units;
                let more = *chunks * limits::ATOM_CHARS - *shown_chars;
                let to = text[*shown_bytes..]
                    .char_indices()
                    .nth(more)
                    .map_or(text.len(), |(at, _)| *shown_bytes + at);
                let to = outside_handle(text, to).max(*shown_bytes);
                let added = &text[*shown_bytes..to];
                *shown_bytes = to;
                *shown_chars += added.chars().count();
                self.shown_bytes +=
                    json_bytes(&added, self.budget.measure) - json_bytes(&"", self.budget.measure);
            }
            PreviewBody::List { items, shown, most } => {
                let items = *items;
                let from = shown.len();
                let to = (*most).min(from + units);
                for (at, item) in items.iter().enumerate().take(to).skip(from) {
                    if self.overflows() {
                        break;
                    }
                    self.shown_bytes += usize::from(at > 0);
                    let place = Some((number, Segment::Index(at as u64)));
                    let item = self.reveal(item, place, depth, level);
                    if let PreviewBody::List { shown, .. } = &mut self.parts[number].body {
                        shown.push(item);
                    }
                }
            }
            PreviewBody::Object { entries, shown } => {
                let entries = *entries;
                let from = shown.len();
                let group = entries
                    .iter()
                    .skip(from)
                    .take(units * limits::OBJECT_ENTRIES);
                for (at, (name, value)) in group.enumerate() {
                    if self.overflows() {
                        break;
                    }
                    // Objects within objects come a level later, or a few levels of nesting would
                    // multiply into one step.
                    let level = level - usize::from(value.is_object() && level > 0);
                    let comma = usize::from(from + at > 0);
                    self.shown_bytes += json_bytes(name, self.budget.measure) + 1 + comma;
                    let place = Some((number, step_to(name, from + at)));
                    let entry = self.reveal(value, place, depth, level);
                    if let PreviewBody::Object { shown, .. } = &mut self.parts[number].body {
                        shown.push(entry);
                    }
                }
            }
        }
    }

    fn path(&self, number: usize) -> Path {
        let mut steps = Vec::new();
        let mut part = &self.parts[number];
        while let Some((outer, step)) = &part.place {
            steps.push(step.clone());
            part = &self.parts[*outer];
        }
        let before = self.at.segments().iter().cloned();
        before.chain(steps.into_iter().rev()).collect()
    }

    fn finish(&self, root: &PreviewValue<'v>) -> Fitted {
        let mut cuts = Vec::new();
        let mut capped = true;
        let value = self.build(root, &mut cuts, &mut capped);
        // If only the cap on items cut, the bytes were not the reason.
        if !capped {
            let whole = Cut::Bytes {
                path: self.at.clone(),
                limit: self.budget.max_bytes as u64,
                mode: Mode::Preview,
            };
            cuts.insert(0, whole);
        }
        Fitted { value, cuts }
    }

    fn build(&self, shown: &PreviewValue<'v>, cuts: &mut Vec<Cut>, capped: &mut bool) -> Value {
        let number = match shown {
            PreviewValue::Whole(value) => return (*value).clone(),
            PreviewValue::Part(number) => *number,
        };
        let part = &self.parts[number];
        if !part.body.is_complete() {
            cuts.push(self.cut(number));
            *capped &= !part.body.can_grow();
        }
        match &part.body {
            PreviewBody::Text {
                text, shown_bytes, ..
            } => Value::from(&text[..*shown_bytes]),
            PreviewBody::List { shown, .. } => shown
                .iter()
                .map(|item| self.build(item, cuts, capped))
                .collect(),
            PreviewBody::Object { entries, shown } => entries
                .keys()
                .zip(shown)
                .map(|(name, entry)| (name.clone(), self.build(entry, cuts, capped)))
                .collect(),
        }
    }

    fn cut(&self, number: usize) -> Cut {
        let body = &self.parts[number].body;
        let path = self.path(number);
        let original = body.original() as u64;
        match body {
            PreviewBody::Text { shown_chars, .. } => Cut::Chars {
                path,
                limit: *shown_chars as u64,
                returned: *shown_chars as u64,
                original,
            },
            PreviewBody::List { shown, .. } | PreviewBody::Object { shown, .. } => Cut::Items {
                path,
                limit: shown.len() as u64,
                returned: shown.len() as u64,
                original,
            },
        }
    }
}

/// Returns true if a text is shown whole or not at all.
fn is_atom(text: &str) -> bool {
    text.chars().nth(limits::ATOM_CHARS).is_none() || is_handle(text)
}

/// Returns the step to a member: its name, or its position if the name is long.
fn step_to(name: &str, position: usize) -> Segment {
    let step = Segment::from(name);
    if step.to_string().len() <= limits::STEP_BYTES {
        step
    } else {
        Segment::Index(position as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn preview(value: &Value, max_bytes: usize) -> Fitted {
        let fitted = fit(value, &Path::root(), &Budget::bytes(max_bytes)).unwrap();
        assert!(!fitted.value.is_null(), "something is shown");
        fitted
    }

    #[test]
    fn objects_within_objects_do_not_multiply() {
        let names = || (0..32).map(|n| format!("name {n}"));
        let leaf: Map<_, _> = names().map(|name| (name, json!("short"))).collect();
        let middle: Map<_, _> = names().map(|name| (name, json!(leaf))).collect();
        let value: Value = names()
            .map(|name| (name, json!(middle)))
            .collect::<Map<_, _>>()
            .into();
        for max_bytes in [8_000, 50_000, 200_000] {
            let fitted = preview(&value, max_bytes);
            let used =
                json_bytes(&fitted.value, Measure::Bare) + json_bytes(&fitted.cuts, Measure::Bare);
            assert!(used * 3 > max_bytes, "{used} of {max_bytes}");
        }
    }

    #[test]
    fn one_huge_member_does_not_hide_the_others() {
        let value = json!({"id": 7, "body": format!("res_{}", "a".repeat(90_000)), "tags": ["x"]});
        let fitted = preview(&value, 10_000);
        assert_eq!(
            (&fitted.value["id"], &fitted.value["tags"]),
            (&json!(7), &json!(["x"]))
        );
        assert!(fitted.value["body"].as_str().unwrap().len() > 5_000);
    }

    #[test]
    fn a_member_with_a_long_name_is_cut_by_its_position() {
        let name = "n".repeat(500);
        let value = json!({"a": 1, name.as_str(): "x".repeat(9_000)});
        let fitted = preview(&value, 4_000);
        assert_eq!(fitted.cuts[1].path().to_string(), "[1]");
    }

    #[test]
    fn the_work_is_bounded_by_the_budget() {
        let inner: Vec<Value> = (0..1_000_000).map(Value::from).collect();
        let value = json!([inner, inner, inner]);
        let (at, budget) = (Path::root(), Budget::bytes(2_000));
        let mut preview = PreviewBuilder::new(&at, &budget);
        preview.grow(&value);
        assert!(preview.parts.len() < 100);
        assert!(preview.shown_bytes < 5_000);
    }
}
