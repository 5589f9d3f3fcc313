//! Reading by whole items: what a path with a slice leads to, as many as fit.

use std::ops::ControlFlow;

use crate::cursor::{Place, Position, Shortcut};
use crate::document::{Document, Mark, Part, take_chars};
use crate::path::Segment;
use crate::read::{Among, Range, Reading, check_scalar, locate, read_node};
use crate::scan::{Kind, Node, items_from, select};
use crate::text::json_string_bytes;
use crate::window::Extent;
use crate::{Error, Path, Result};

/// Whole values that `path` leads to; one that is too long on its own is read as text.
pub(crate) fn read_items<D: Document + ?Sized>(
    doc: &D,
    path: &Path,
    range: &Range,
    shortcut: Option<&Shortcut>,
    max_bytes: usize,
) -> Result<Reading, D::Error> {
    let (first, limit_chars) = match range {
        Range::Items { first, limit_chars } => (*first, *limit_chars),
        Range::Item {
            index, limit_chars, ..
        } => (*index, *limit_chars),
        Range::Chars {
            offset_chars: 0,
            limit_chars,
        } => (0, *limit_chars),
        _ => {
            let why = "a path that leads to several places takes no other selector";
            return Err(Error::WindowInvalid(why).into());
        }
    };
    let parent = match shortcut {
        Some(_) => Parent::List,
        None => Parent::of(doc, path)?,
    };
    let extent = Extent::new(limit_chars, max_bytes)?;
    let mut shown = Shown {
        items: Items::new(extent, parent == Parent::Object),
        whole: !matches!(range, Range::Item { .. }),
        long: None,
        next_at: None,
        full: false,
        failed: None,
    };
    let original = match shortcut {
        Some(Shortcut::Item { at, original }) => {
            shown.walk_on(doc, path, first, *at, *original)?;
            *original
        }
        _ => shown.walk_all(doc, path, first)?,
    };
    if let Some(error) = shown.failed {
        return Err(error);
    }
    let on = shown
        .next_at
        .filter(|_| parent == Parent::List)
        .map(|at| Shortcut::Item { at, original });
    if let Some(node) = shown.long {
        let offset_chars = match range {
            Range::Item { offset_chars, .. } => *offset_chars,
            _ => 0,
        };
        let range = Range::Chars {
            offset_chars,
            limit_chars,
        };
        // As it was asked for, where that says which one it is.
        let at = match parent {
            Parent::List => item_path(path, first),
            Parent::Object | Parent::Several => node.path.clone(),
        };
        let mut reading = read_node(doc, &node, &at, &range, max_bytes)?;
        if let Reading::Text { among, .. } = &mut reading {
            *among = Some(Among {
                path: path.clone(),
                index: first,
                original,
                behind: on,
            });
        }
        return Ok(reading);
    }
    // `rows[10:]` of ten rows is an empty answer; `rows[*].nope` is a wrong question.
    if original == 0 && !matches!(path.segments().last(), Some(Segment::Slice(..))) {
        return Err(Error::PathAbsent(path.to_string()).into());
    }
    let returned = shown.items.returned;
    let end = first + returned;
    Ok(Reading::Items {
        next: (end < original).then(|| Position {
            place: Place::Items(path.clone()),
            offset: end,
            limit_chars,
            shortcut: on,
        }),
        path: path.clone(),
        first,
        returned,
        original,
        text: shown.items.finish(),
    })
}

/// What of the items is shown, and what is known of the rest.
struct Shown<E> {
    items: Items,
    /// Whether items are shown whole; else the first one is read as text.
    whole: bool,
    /// The item that is to be read as text: asked for, or too long to be shown whole.
    long: Option<Node>,
    /// Where the first item begins that is neither shown nor read as text.
    next_at: Option<u64>,
    full: bool,
    failed: Option<E>,
}

impl<E: From<Error>> Shown<E> {
    /// Walks the whole document, and says how many items there are.
    fn walk_all<D>(&mut self, doc: &D, path: &Path, first: u64) -> Result<u64, E>
    where
        D: Document<Error = E> + ?Sized,
    {
        let mut original = 0;
        select(doc, path, |node| {
            original += 1;
            if original > first {
                // However that goes, how many there are is to be told.
                let _: ControlFlow<()> = self.take(doc, node);
            }
            ControlFlow::Continue(())
        })?;
        Ok(original)
    }

    /// Walks from a place that is known, as far as need be.
    fn walk_on<D>(
        &mut self,
        doc: &D,
        path: &Path,
        first: u64,
        at: u64,
        original: u64,
    ) -> Result<(), E>
    where
        D: Document<Error = E> + ?Sized,
    {
        let mut index = first;
        items_from(doc, at, |span, kind| {
            let path = item_path(path, index);
            index += 1;
            let flow = self.take(
                doc,
                Node {
                    path,
                    name: None,
                    span,
                    kind,
                },
            );
            // The slice may end before the list does.
            if index == original {
                ControlFlow::Break(())
            } else {
                flow
            }
        })
    }

    /// Takes an item, or notes where it is; breaks when no further one is of interest.
    fn take<D>(&mut self, doc: &D, node: Node) -> ControlFlow<()>
    where
        D: Document<Error = E> + ?Sized,
    {
        if self.full {
            self.next_at.get_or_insert(node.span.start);
            return ControlFlow::Break(());
        }
        let fits = if self.whole {
            self.items.add(doc, &node)
        } else {
            Ok(false)
        };
        match fits {
            Ok(true) => return ControlFlow::Continue(()),
            Ok(false) if self.items.returned == 0 => {
                self.full = true;
                self.long = Some(node);
                return ControlFlow::Continue(());
            }
            Ok(false) => self.next_at = Some(node.span.start),
            Err(error) => self.failed = Some(error),
        }
        self.full = true;
        ControlFlow::Break(())
    }
}

/// The place of one of the items that a list's slice leads to.
fn item_path(path: &Path, index: u64) -> Path {
    let (before, from) = match path.segments() {
        [before @ .., Segment::Slice(from, _)] => (before, *from),
        all => (all, 0),
    };
    let steps = before.iter().cloned();
    let item = Segment::Index(from.saturating_add(index));
    steps.chain([item]).collect()
}

/// What the values that a path leads to have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parent {
    /// They are items of one list.
    List,
    /// They are entries of one object, and so can be told with their names.
    Object,
    /// They come from here and there.
    Several,
}

impl Parent {
    /// What has neither items nor entries has no part that a slice could mean.
    fn of<D: Document + ?Sized>(doc: &D, path: &Path) -> Result<Self, D::Error> {
        let [before @ .., Segment::Slice(..)] = path.segments() else {
            return Ok(Self::Several);
        };
        let parent: Path = before.iter().cloned().collect();
        if parent.is_plural() {
            return Ok(Self::Several);
        }
        match locate(doc, &parent)?.kind {
            Kind::Object => Ok(Self::Object),
            Kind::Array => Ok(Self::List),
            Kind::String | Kind::Scalar => Err(Error::PathAbsent(path.to_string()).into()),
        }
    }
}

/// Whole values, put together as long as they fit.
struct Items {
    text: String,
    named: bool,
    chars: u64,
    bytes: usize,
    returned: u64,
    extent: Extent,
}

impl Items {
    fn new(extent: Extent, named: bool) -> Self {
        Self {
            text: String::new(),
            named,
            // The brackets.
            chars: 2,
            bytes: 2,
            returned: 0,
            extent,
        }
    }

    /// Adds a value and says yes, or leaves everything as it was and says no.
    fn add<D: Document + ?Sized>(&mut self, doc: &D, node: &Node) -> Result<bool, D::Error> {
        let room = self.extent.limit_chars.saturating_sub(self.chars);
        let length = node.span.end - node.span.start;
        // A code point has four bytes at most, so this is settled without reading.
        if length > room.saturating_mul(4) {
            return Ok(false);
        }
        let part = Part::new(doc, node.span.clone())?;
        if node.kind == Kind::Scalar {
            check_scalar(&part, node.span.start)?;
        }
        let mut value = match &node.name {
            Some(name) if self.named => format!("{}:", serde_json::Value::from(name.as_str())),
            _ => String::new(),
        };
        value.push_str(&take_chars(&part, Mark::default(), u64::MAX)?);
        let separator = u64::from(self.returned > 0);
        let chars = value.chars().count() as u64 + separator;
        let bytes = json_string_bytes(&value) - 2 + usize::from(self.returned > 0);
        if chars > room || self.bytes + bytes > self.extent.max_bytes {
            return Ok(false);
        }
        if self.returned > 0 {
            self.text.push(',');
        }
        self.text.push_str(&value);
        self.chars += chars;
        self.bytes += bytes;
        self.returned += 1;
        Ok(true)
    }

    fn finish(self) -> String {
        if self.named {
            format!("{{{}}}", self.text)
        } else {
            format!("[{}]", self.text)
        }
    }
}
