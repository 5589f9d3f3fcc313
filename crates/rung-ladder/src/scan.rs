//! Follows a path through JSON without holding the document.
//!
//! The scanner goes forward once, holds a piece and at most one name, and looks at structure alone: skipped
//! values are neither decoded nor checked. Depth costs no memory.

use std::ops::{ControlFlow, Range};

use crate::budget::limits;
use crate::document::{Document, Piece};
use crate::path::Segment;
use crate::{Error, Path, Result};

/// The kind of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonKind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number, `true`, `false` or `null`.
    Scalar,
}

/// A value in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonNode {
    /// The path, with every slice resolved to an index or a name.
    pub(crate) path: Path,
    /// The name, if the value is an entry of an object that was reached by position.
    pub(crate) name: Option<String>,
    /// The range of its bytes.
    pub(crate) span: Range<u64>,
    pub(crate) kind: JsonKind,
}

/// A string that a path leads into.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StringOnPath {
    /// The range of its bytes, with the quotes.
    pub(crate) span: Range<u64>,
    /// The steps of the path that are left.
    pub(crate) steps_left: usize,
}

/// Calls `visit` with every value that `path` leads to, in document order, until it breaks. Returns the first string that has
/// steps of the path left.
pub(crate) fn select<D: Document + ?Sized>(
    doc: &D,
    path: &Path,
    mut visit: impl FnMut(JsonNode) -> ControlFlow<()>,
) -> Result<Option<StringOnPath>, D::Error> {
    let mut scan = PathScanner {
        doc,
        piece: Piece::Borrowed(&[]),
        base: 0,
        at: 0,
        string: None,
    };
    scan.skip_space()?;
    let mut here = Path::root();
    let flow = scan.follow(path.segments(), &mut here, None, &mut visit)?;
    // After a break the rest is not checked. Otherwise nothing may follow the document.
    if flow.is_continue() {
        scan.skip_space()?;
        if scan.peek()?.is_some() {
            return Err(scan.fail());
        }
    }
    Ok(scan.string)
}

/// Calls `visit` with the items of a list from the one that begins at `at`, until it breaks.
pub(crate) fn items_from<D: Document + ?Sized>(
    doc: &D,
    at: u64,
    mut visit: impl FnMut(Range<u64>, JsonKind) -> ControlFlow<()>,
) -> Result<(), D::Error> {
    let mut scan = PathScanner {
        doc,
        piece: Piece::Borrowed(&[]),
        base: at,
        at: 0,
        string: None,
    };
    loop {
        let kind = scan.kind()?;
        let start = scan.offset();
        scan.skip_value()?;
        if visit(start..scan.offset(), kind).is_break() || !scan.has_another(false, b']')? {
            return Ok(());
        }
    }
}

struct PathScanner<'d, D: ?Sized> {
    doc: &'d D,
    piece: Piece<'d>,
    /// Document offset of the piece.
    base: u64,
    at: usize,
    /// The first string that had steps left.
    string: Option<StringOnPath>,
}

type NodeVisitor<'v> = dyn FnMut(JsonNode) -> ControlFlow<()> + 'v;
type Flow<E> = Result<ControlFlow<()>, E>;

impl<'d, D: Document + ?Sized> PathScanner<'d, D> {
    /// At the start of a value: visits the values that the remaining steps lead to, and skips the value.
    fn follow(
        &mut self,
        steps: &[Segment],
        here: &mut Path,
        name: Option<String>,
        visit: &mut NodeVisitor<'_>,
    ) -> Flow<D::Error> {
        let Some((step, rest)) = steps.split_first() else {
            let kind = self.kind()?;
            let start = self.offset();
            self.skip_value()?;
            return Ok(visit(JsonNode {
                path: here.clone(),
                name,
                span: start..self.offset(),
                kind,
            }));
        };
        match self.kind()? {
            JsonKind::Object => self.object(step, rest, here, visit),
            JsonKind::Array => self.array(step, rest, here, visit),
            kind @ (JsonKind::String | JsonKind::Scalar) => {
                let start = self.offset();
                self.skip_value()?;
                if kind == JsonKind::String && self.string.is_none() {
                    self.string = Some(StringOnPath {
                        span: start..self.offset(),
                        steps_left: steps.len(),
                    });
                }
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    fn array(
        &mut self,
        step: &Segment,
        rest: &[Segment],
        here: &mut Path,
        visit: &mut NodeVisitor<'_>,
    ) -> Flow<D::Error> {
        self.expect(b'[')?;
        let mut index = 0;
        while self.has_another(index == 0, b']')? {
            let wanted = matches_position(step, index);
            let into = wanted.then_some((Segment::Index(index), None));
            let flow = self.follow_or_skip(into, rest, here, visit)?;
            if flow.is_break() {
                return Ok(flow);
            }
            index += 1;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn object(
        &mut self,
        step: &Segment,
        rest: &[Segment],
        here: &mut Path,
        visit: &mut NodeVisitor<'_>,
    ) -> Flow<D::Error> {
        self.expect(b'{')?;
        let mut index = 0;
        // The first of two members with the same name counts.
        let mut taken = false;
        while self.has_another(index == 0, b'}')? {
            let name = self.name()?;
            self.expect(b':')?;
            self.skip_space()?;
            let wanted = match step {
                Segment::Name(wanted) => !taken && *wanted == name,
                positional => matches_position(positional, index),
            };
            taken |= wanted;
            let into = wanted.then(|| {
                let by_position = !matches!(step, Segment::Name(_));
                let member = Segment::from(name.as_str());
                (member, by_position.then_some(name))
            });
            let flow = self.follow_or_skip(into, rest, here, visit)?;
            if flow.is_break() {
                return Ok(flow);
            }
            index += 1;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// At a member: follows the remaining steps if the path leads there, else skips it.
    fn follow_or_skip(
        &mut self,
        into: Option<(Segment, Option<String>)>,
        rest: &[Segment],
        here: &mut Path,
        visit: &mut NodeVisitor<'_>,
    ) -> Flow<D::Error> {
        let Some((step, name)) = into else {
            self.skip_value()?;
            return Ok(ControlFlow::Continue(()));
        };
        here.push(step);
        let flow = self.follow(rest, here, name, visit);
        here.pop();
        flow
    }

    /// Between two members: skips the comma, or the closing bracket.
    fn has_another(&mut self, first: bool, close: u8) -> Result<bool, D::Error> {
        self.skip_space()?;
        match self.peek()? {
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            Some(b',') if !first => {
                self.at += 1;
                self.skip_space()?;
                Ok(true)
            }
            Some(_) if first => Ok(true),
            _ => Err(self.fail()),
        }
    }

    fn kind(&mut self) -> Result<JsonKind, D::Error> {
        match self.peek()? {
            Some(b'{') => Ok(JsonKind::Object),
            Some(b'[') => Ok(JsonKind::Array),
            Some(b'"') => Ok(JsonKind::String),
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => Ok(JsonKind::Scalar),
            _ => Err(self.fail()),
        }
    }

    fn name(&mut self) -> Result<String, D::Error> {
        self.skip_space()?;
        let start = self.offset();
        self.skip_string()?;
        let length = usize::try_from(self.offset() - start).unwrap_or(usize::MAX);
        if length > limits::NAME_BYTES {
            return Err(Error::WindowInvalid("the name of a member is too long").into());
        }
        let mut raw = Vec::with_capacity(length);
        // Nearly always the name lies in the current piece.
        match usize::try_from(start.wrapping_sub(self.base)) {
            Ok(at) if start >= self.base => raw.extend_from_slice(&self.piece[at..self.at]),
            _ => {
                while raw.len() < length {
                    let piece = self.doc.piece(start + raw.len() as u64)?;
                    let wanted = (length - raw.len()).min(piece.len());
                    raw.extend_from_slice(&piece[..wanted]);
                }
            }
        }
        // A name with a lone surrogate is not valid; it is skipped unchanged.
        Ok(serde_json::from_slice(&raw)
            .unwrap_or_else(|_| String::from_utf8_lossy(&raw).into_owned()))
    }

    fn skip_value(&mut self) -> Result<(), D::Error> {
        match self.kind()? {
            JsonKind::String => self.skip_string(),
            JsonKind::Scalar => self.skip_while(|byte| !b",]} \t\r\n".contains(&byte)),
            JsonKind::Object | JsonKind::Array => {
                let mut depth = 0_u64;
                loop {
                    self.skip_while(|byte| !b"\"[]{}".contains(&byte))?;
                    match self.peek()? {
                        Some(b'"') => {
                            self.skip_string()?;
                            continue;
                        }
                        Some(b'[' | b'{') => depth += 1,
                        Some(_) => depth -= 1,
                        None => return Err(self.fail()),
                    }
                    self.at += 1;
                    if depth == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn skip_string(&mut self) -> Result<(), D::Error> {
        self.expect(b'"')?;
        loop {
            self.peek()?.ok_or_else(|| self.fail())?;
            let rest = &self.piece[self.at..];
            let Some(found) = memchr::memchr2(b'"', b'\\', rest) else {
                self.at = self.piece.len();
                continue;
            };
            let escape = rest[found] == b'\\';
            self.at += found + 1;
            if !escape {
                return Ok(());
            }
            self.peek()?.ok_or_else(|| self.fail())?;
            self.at += 1;
        }
    }

    fn skip_while(&mut self, pass: impl Fn(u8) -> bool) -> Result<(), D::Error> {
        while self.peek()?.is_some() {
            let rest = &self.piece[self.at..];
            match rest.iter().position(|byte| !pass(*byte)) {
                Some(passed) => {
                    self.at += passed;
                    return Ok(());
                }
                None => self.at = self.piece.len(),
            }
        }
        Ok(())
    }

    fn skip_space(&mut self) -> Result<(), D::Error> {
        self.skip_while(|byte| b" \t\r\n".contains(&byte))
    }

    fn expect(&mut self, byte: u8) -> Result<(), D::Error> {
        self.skip_space()?;
        if self.peek()? == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            Err(self.fail())
        }
    }

    fn peek(&mut self) -> Result<Option<u8>, D::Error> {
        if self.at == self.piece.len() {
            self.base = self.offset();
            self.at = 0;
            let doc: &'d D = self.doc;
            self.piece = doc.piece(self.base)?;
        }
        Ok(self.piece.get(self.at).copied())
    }

    fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    fn fail(&self) -> D::Error {
        Error::NotJson { at: self.offset() }.into()
    }
}

fn matches_position(step: &Segment, index: u64) -> bool {
    match step {
        Segment::Name(_) => false,
        Segment::Index(at) => *at == index,
        Segment::Slice(from, to) => *from <= index && to.is_none_or(|to| index < to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(json: &str, path: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        select(json, &path.parse().unwrap(), |node| {
            let span =
                usize::try_from(node.span.start).unwrap()..usize::try_from(node.span.end).unwrap();
            found.push((node.path.to_string(), json[span].to_owned()));
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    }

    fn one(json: &str, path: &str) -> String {
        let mut found = at(json, path);
        assert_eq!(found.len(), 1, "{path}");
        found.remove(0).1
    }

    #[test]
    fn values_are_found_with_their_exact_bytes() {
        let json = r#" { "a" : [ 1.50 , {"b\n": "x,]}\"" } , [ ] ], "": {"t": true} } "#;
        assert_eq!(one(json, "a[0]"), "1.50");
        assert_eq!(one(json, r#"a[1]["b\n"]"#), r#""x,]}\"""#);
        assert_eq!(one(json, "a[2]"), "[ ]");
        assert_eq!(one(json, r#"[""].t"#), "true");
        assert_eq!(one(json, "$"), json.trim());
        assert!(at(json, "a[9]").is_empty());
        assert!(at(json, "a.b.c").is_empty());
    }

    #[test]
    fn slices_and_stars_resolve_to_places() {
        let json = r#"{"rows":[{"id":1},{"id":2},{"id":3}]}"#;
        assert_eq!(
            at(json, "rows[*].id"),
            [
                ("rows[0].id".to_owned(), "1".to_owned()),
                ("rows[1].id".to_owned(), "2".to_owned()),
                ("rows[2].id".to_owned(), "3".to_owned()),
            ]
        );
        assert_eq!(at(json, "rows[1:2].id").len(), 1);
        assert_eq!(at(json, "[*][0]")[0].0, "rows[0]");
    }

    #[test]
    fn what_is_not_json_says_where() {
        for (json, path, offset) in [
            ("", "$", 0),
            ("hello", "$", 0),
            ("[1", "$", 2),
            ("[1 2]", "[1]", 3),
            ("{\"a\" 1}", "a", 5),
            ("{a:1}", "a", 1),
            ("\"abc", "$", 4),
            ("[\"a\\", "$", 4),
            ("[,]", "[0]", 1),
            ("{\"a\":1}\n{\"a\":2}", "a[*]", 8),
        ] {
            let error = select(json, &path.parse().unwrap(), |_| ControlFlow::Continue(()));
            assert_eq!(error, Err(Error::NotJson { at: offset }), "{json}");
        }
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = format!("{}1{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert_eq!(one(&deep, "$").len(), deep.len());
        assert_eq!(one(&deep, "[0]").len(), deep.len() - 2);
        let open = "[".repeat(1_000_000);
        assert!(select(open.as_str(), &Path::root(), |_| ControlFlow::Continue(())).is_err());
    }
}
