//! Reads whole items: the values of a path with a slice, as many as fit.

use std::ops::ControlFlow;

use crate::cursor::{CursorTarget, Position, Shortcut};
use crate::document::{Document, DocumentPart, Mark, take_chars};
use crate::path::Segment;
use crate::read::{ItemPosition, Range, Reading, check_scalar, locate, read_node};
use crate::scan::{JsonKind, JsonNode, items_from, select};
use crate::text::json_string_bytes;
use crate::window::Extent;
use crate::{Error, Path, Result};

/// Reads whole values that `path` leads to; a value that is too long on its own is read as text.
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
            let why = "a path with several matches combines with no other selector";
            return Err(Error::WindowInvalid(why).into());
        }
    };
    let parent = match shortcut {
        Some(_) => ItemParent::List,
        None => ItemParent::find(doc, path)?,
    };
    let extent = Extent::new(limit_chars, max_bytes)?;
    let mut shown = ItemCollector {
        items: ItemBuffer::new(extent, parent == ItemParent::Object),
        shows_whole: !matches!(range, Range::Item { .. }),
        long: None,
        next_at: None,
        is_full: false,
        error: None,
    };
    let original = match shortcut {
        Some(Shortcut::Item { at, original }) => {
            shown.walk_from(doc, path, first, *at, *original)?;
            *original
        }
        _ => shown.walk_all(doc, path, first)?,
    };
    if let Some(error) = shown.error {
        return Err(error);
    }
    let on = shown
        .next_at
        .filter(|_| parent == ItemParent::List)
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
        // The path that the caller gave, if it identifies the item.
        let at = match parent {
            ItemParent::List => item_path(path, first),
            ItemParent::Object | ItemParent::Several => node.path.clone(),
        };
        let mut reading = read_node(doc, &node, &at, &range, max_bytes)?;
        if let Reading::Text { item: among, .. } = &mut reading {
            *among = Some(ItemPosition {
                path: path.clone(),
                index: first,
                original,
                next_shortcut: on,
            });
        }
        return Ok(reading);
    }
    // `rows[10:]` of ten rows is an empty result; `rows[*].nope` is an error.
    if original == 0 && !matches!(path.segments().last(), Some(Segment::Slice(..))) {
        return Err(Error::PathAbsent(path.to_string()).into());
    }
    let returned = shown.items.returned;
    let end = first + returned;
    Ok(Reading::Items {
        next: (end < original).then(|| Position {
            target: CursorTarget::Items(path.clone()),
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

/// Collects the items to show, and counts the rest.
struct ItemCollector<E> {
    items: ItemBuffer,
    /// True if items are shown whole; else the first one is read as text.
    shows_whole: bool,
    /// The item to read as text: requested, or too long to be shown whole.
    long: Option<JsonNode>,
    /// The offset of the first item that is neither shown nor read as text.
    next_at: Option<u64>,
    is_full: bool,
    error: Option<E>,
}

impl<E: From<Error>> ItemCollector<E> {
    /// Walks the whole document. Returns the number of items.
    fn walk_all<D>(&mut self, doc: &D, path: &Path, first: u64) -> Result<u64, E>
    where
        D: Document<Error = E> + ?Sized,
    {
        let mut original = 0;
        select(doc, path, |node| {
            original += 1;
            if original > first {
                // The walk continues in any case, to count the items.
                let _: ControlFlow<()> = self.add_item(doc, node);
            }
            ControlFlow::Continue(())
        })?;
        Ok(original)
    }

    /// Walks from a known offset, as far as necessary.
    fn walk_from<D>(
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
            let flow = self.add_item(
                doc,
                JsonNode {
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

    /// Adds an item, or notes its offset; breaks when no further item is needed.
    fn add_item<D>(&mut self, doc: &D, node: JsonNode) -> ControlFlow<()>
    where
        D: Document<Error = E> + ?Sized,
    {
        if self.is_full {
            self.next_at.get_or_insert(node.span.start);
            return ControlFlow::Break(());
        }
        let fits = if self.shows_whole {
            self.items.add(doc, &node)
        } else {
            Ok(false)
        };
        match fits {
            Ok(true) => return ControlFlow::Continue(()),
            Ok(false) if self.items.returned == 0 => {
                self.is_full = true;
                self.long = Some(node);
                return ControlFlow::Continue(());
            }
            Ok(false) => self.next_at = Some(node.span.start),
            Err(error) => self.error = Some(error),
        }
        self.is_full = true;
        ControlFlow::Break(())
    }
}

/// Returns the path of one of the items of a list's slice.
fn item_path(path: &Path, index: u64) -> Path {
    let (before, from) = match path.segments() {
        [before @ .., Segment::Slice(from, _)] => (before, *from),
        all => (all, 0),
    };
    let steps = before.iter().cloned();
    let item = Segment::Index(from.saturating_add(index));
    steps.chain([item]).collect()
}

/// The common parent of the values that a path leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemParent {
    /// The values are items of one list.
    List,
    /// The values are entries of one object, and so are shown with their names.
    Object,
    /// The values have several parents.
    Several,
}

impl ItemParent {
    /// Fails for a value that has neither items nor entries, since a slice of it means nothing.
    fn find<D: Document + ?Sized>(doc: &D, path: &Path) -> Result<Self, D::Error> {
        let [before @ .., Segment::Slice(..)] = path.segments() else {
            return Ok(Self::Several);
        };
        let parent: Path = before.iter().cloned().collect();
        if parent.is_plural() {
            return Ok(Self::Several);
        }
        match locate(doc, &parent)?.kind {
            JsonKind::Object => Ok(Self::Object),
            JsonKind::Array => Ok(Self::List),
            JsonKind::String | JsonKind::Scalar => Err(Error::PathAbsent(path.to_string()).into()),
        }
    }
}

/// Joins whole values as long as they fit.
struct ItemBuffer {
    text: String,
    named: bool,
    chars: u64,
    bytes: usize,
    returned: u64,
    extent: Extent,
}

impl ItemBuffer {
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

    /// Adds a value and returns true, or changes nothing and returns false.
    fn add<D: Document + ?Sized>(&mut self, doc: &D, node: &JsonNode) -> Result<bool, D::Error> {
        let room = self.extent.limit_chars.saturating_sub(self.chars);
        let length = node.span.end - node.span.start;
        // A code point has four bytes at most, so this is settled without reading.
        if length > room.saturating_mul(4) {
            return Ok(false);
        }
        let part = DocumentPart::new(doc, node.span.clone())?;
        if node.kind == JsonKind::Scalar {
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
