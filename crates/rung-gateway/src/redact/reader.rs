//! Secrets masked in a document while it is read.
//!
//! Memory does not grow with the document. A string of up to two windows is masked as it would be in a document that is held whole, and so
//! is every longer one but for this: a pattern is tried on a window at a time. A match of up to one window is found wherever it stands; one
//! that runs on beyond that masks the rest of its string. Known values are found whatever their length.
//!
//! Whether a long string is a document itself is only known at its end, so the input is read ahead and set back: it must be able to seek.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use serde::de::IgnoredAny;

use super::{
    BESIDE_NAME_BYTES, Captures, Form, MASK, MAX_DEPTH, Redactor, Spans, secret_of, united,
};

/// The longest match of a pattern that is surely found at any place of a long string.
pub const WINDOW_BYTES: usize = 256 << 10;
/// What a window may take as it is written: escapes of escapes can take any multiple of what they mean.
const MAX_WRITTEN_BYTES: usize = 16 << 20;
/// What is read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// The longest character: what stands before and after a match decides whether it is one.
const CHARACTER_BYTES: usize = 4;

impl Redactor {
    /// The first `bytes` bytes of the input, which are a JSON document, without its secrets.
    pub fn reader<R: Read + Seek>(&self, input: R, bytes: u64) -> MaskingReader<R> {
        self.reader_within(input, bytes, WINDOW_BYTES)
    }

    /// The same with a window of this size.
    pub fn reader_within<R: Read + Seek>(
        &self,
        input: R,
        bytes: u64,
        window_bytes: usize,
    ) -> MaskingReader<R> {
        let reach = |pattern: &str| {
            let parsed = regex_syntax::parse(pattern).ok();
            let longest = parsed.and_then(|parsed| parsed.properties().maximum_len());
            longest.map_or(window_bytes, |longest| longest.min(window_bytes))
        };
        let patterns = self.patterns.iter();
        let reaches: Vec<usize> = patterns.map(|pattern| reach(pattern.as_str())).collect();
        let longest_secret = self.secrets.as_ref().map_or(0, |secrets| secrets.longest);
        let longest = reaches.iter().fold(longest_secret, |a, b| a.max(*b));
        MaskingReader {
            redactor: self.clone(),
            held_bytes: 2 * longest.max(window_bytes) + 4 * CHARACTER_BYTES,
            reaches,
            longest_secret,
            source: Source {
                input,
                state: State {
                    left: bytes,
                    ..State::default()
                },
            },
            layers: vec![Layer::default()],
            out: Vec::new(),
            given: 0,
        }
    }
}

/// Reads a document without its secrets.
pub struct MaskingReader<R> {
    redactor: Redactor,
    /// How far a match of each pattern reaches at most.
    reaches: Vec<usize>,
    longest_secret: usize,
    /// What is held of a string.
    held_bytes: usize,
    source: Source<R>,
    /// The document, the document in the string of it that is being read, and so on.
    layers: Vec<Layer>,
    out: Vec<u8>,
    /// How much of `out` was given away.
    given: usize,
}

/// A document that is being read.
#[derive(Default)]
struct Layer {
    /// The string before, while nothing else has come.
    last: Option<String>,
    /// The name of the value that comes next.
    name: Option<String>,
    /// The long string in which the reader is.
    text: Option<Text>,
}

impl Layer {
    fn pass(&mut self, outside: char) {
        match outside {
            ' ' | '\t' | '\n' | '\r' => {}
            ':' => self.name = self.last.take(),
            _ => (self.last, self.name) = (None, None),
        }
    }
}

/// What comes where a document was left.
enum Outside {
    String,
    More,
    End,
}

impl<R: Read + Seek> Read for MaskingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.out.len() {
            self.out.clear();
            self.given = 0;
            if buffer.is_empty() || !self.step()? {
                return Ok(0);
            }
        }
        let next = &self.out[self.given..];
        let bytes = next.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&next[..bytes]);
        self.given += bytes;
        Ok(bytes)
    }
}

impl<R: Read + Seek> MaskingReader<R> {
    /// Masks a little more. False at the end.
    fn step(&mut self) -> io::Result<bool> {
        let depth = self.layers.len() - 1;
        if self.layers[depth].text.is_some() {
            self.text_step(depth)?;
            return Ok(true);
        }
        match self.pass_outside(depth)? {
            Outside::String => self.string(depth)?,
            Outside::More => {}
            Outside::End if depth == 0 => return Ok(!self.out.is_empty()),
            Outside::End => {
                self.layers.pop();
                self.out.extend_from_slice(&self.source.state.quote);
            }
        }
        Ok(true)
    }

    /// Copies what stands before the next string, with its quote.
    fn pass_outside(&mut self, depth: usize) -> io::Result<Outside> {
        let layer = &mut self.layers[depth];
        while self.out.len() < CHUNK_BYTES {
            if depth == 0 {
                let rest = self.source.rest()?;
                let end = memchr::memchr(b'"', rest).unwrap_or(rest.len());
                rest[..end].iter().for_each(|b| layer.pass(char::from(*b)));
                self.out.extend_from_slice(&rest[..end]);
                self.source.state.at += end;
            }
            match self.source.unit(depth, &mut self.out)? {
                Some('"') => return Ok(Outside::String),
                Some(c) => layer.pass(c),
                None => return Ok(Outside::End),
            }
        }
        Ok(Outside::More)
    }

    /// Masks a string from behind its first quote on: all of it, or what is held of it.
    fn string(&mut self, depth: usize) -> io::Result<()> {
        let layer = &mut self.layers[depth];
        let name = layer.name.take();
        layer.last = None;
        let mut text = Text::default();
        let is_whole = self
            .source
            .fill(depth + 1, self.held_bytes, &mut text.held)?;
        let (redactor, content) = (&self.redactor, &text.held.content);
        if is_whole {
            redactor.in_string(name.as_deref(), content, depth, &mut text.spans);
            text.emit(content.len(), &mut self.out);
            self.out.extend_from_slice(&self.source.state.quote);
            self.layers[depth].last = Some(text.held.content);
            return Ok(());
        }
        if let Some(name) = name {
            redactor.beside_name_of_long(&name, content, &mut text.spans);
        }
        if depth < MAX_DEPTH && self.source.is_document(depth + 1, &text.held)? {
            if text.spans.is_empty() {
                self.source.state.put_back(depth + 1, &text.held);
                self.layers.push(Layer::default());
                return Ok(());
            }
            // A part of it would leave something that is no document.
            text.spans.push(0..usize::MAX);
        }
        text.next = vec![Search::default(); self.reaches.len()];
        self.layers[depth].text = Some(text);
        Ok(())
    }

    /// Masks a little more of a long string.
    fn text_step(&mut self, depth: usize) -> io::Result<()> {
        let Some(mut text) = self.layers[depth].text.take() else {
            return Ok(());
        };
        let is_whole = self
            .source
            .fill(depth + 1, self.held_bytes, &mut text.held)?;
        let mut safe = self.search(&mut text, is_whole);
        if !is_whole && text.held.content.len() < self.held_bytes {
            // It is written at such length that no more of it can be held.
            text.spans.push(text.at..usize::MAX);
            safe = safe.max(text.at + 1);
        }
        text.emit(safe, &mut self.out);
        if !is_whole && !text.is_over() {
            text.drop_before(safe);
            self.layers[depth].text = Some(text);
            return Ok(());
        }
        if !is_whole {
            let mut passed = Held::default();
            while !self.source.fill(depth + 1, CHUNK_BYTES, &mut passed)? {
                passed = Held::default();
            }
        }
        self.out.extend_from_slice(&self.source.state.quote);
        Ok(())
    }

    /// Finds what is to be masked in what is held of a long string. Nothing more will be found before the place that it gives back.
    fn search(&self, text: &mut Text, is_whole: bool) -> usize {
        let content = text.held.content.as_str();
        let end = content.len();
        let mut safe = end;
        if let Some(secrets) = &self.redactor.secrets {
            let from = content.floor_char_boundary(text.looked);
            let found = secrets.find.find_overlapping_iter(&content[from..]);
            text.spans
                .extend(found.map(|found| from + found.start()..from + found.end()));
            if !is_whole {
                text.looked = end.saturating_sub(self.longest_secret);
                safe = text.looked;
            }
        }
        let matching: Vec<bool> = match &self.redactor.any {
            None => vec![true; self.reaches.len()],
            Some(any) => {
                let found = any.matches(content);
                (0..self.reaches.len())
                    .map(|at| found.matched(at))
                    .collect()
            }
        };
        for (at, pattern) in self.redactor.patterns.iter().enumerate() {
            let limit = if is_whole {
                end + 1
            } else {
                let reach = self.reaches[at] + CHARACTER_BYTES;
                content.floor_char_boundary(end.saturating_sub(reach))
            };
            safe = safe.min(limit);
            let search = &mut text.next[at];
            while matching[at] && search.from < limit && search.from <= end {
                let Some(found) = search.next(|from| pattern.captures_at(content, from), content)
                else {
                    break;
                };
                let whole = found.get_match();
                if whole.start() >= limit {
                    break;
                }
                let mut secret = secret_of(&found);
                search.after(whole.range());
                if !is_whole && whole.end() + CHARACTER_BYTES > end {
                    secret.end = usize::MAX;
                    search.from = usize::MAX;
                }
                text.spans.push(secret);
            }
            search.from = search.from.max(limit);
        }
        content.floor_char_boundary(safe)
    }
}

/// Where a pattern is tried next, as an iterator over all matches would.
#[derive(Clone, Default)]
struct Search {
    from: usize,
    /// Where the match before ended: an empty one is none there.
    last_end: Option<usize>,
}

impl Search {
    fn next<'t>(
        &self,
        find: impl Fn(usize) -> Option<Captures<'t>>,
        content: &str,
    ) -> Option<Captures<'t>> {
        let found = find(self.from)?;
        let whole = found.get_match();
        if whole.is_empty() && self.last_end == Some(whole.end()) {
            let next = content[whole.end()..].chars().next()?;
            return find(whole.end() + next.len_utf8());
        }
        Some(found)
    }

    fn after(&mut self, found: Range<usize>) {
        self.from = found.end;
        self.last_end = Some(found.end);
    }
}

/// A long string that is being masked. All places are places in what is held.
#[derive(Default)]
struct Text {
    held: Held,
    spans: Spans,
    /// Where each pattern is tried next.
    next: Vec<Search>,
    /// From where on known values are looked for.
    looked: usize,
    /// What is before was given away or masked.
    at: usize,
    /// Whether what was last given away is a mask.
    is_masked: bool,
}

impl Text {
    /// Whether all that comes is masked.
    fn is_over(&self) -> bool {
        self.at == usize::MAX
    }

    /// Gives away all before `safe`, but for what is masked.
    fn emit(&mut self, safe: usize, out: &mut Vec<u8>) {
        let mut walk = Walk::default();
        for span in united(std::mem::take(&mut self.spans)) {
            if span.start >= safe {
                self.spans.push(span);
                continue;
            }
            if !self.is_masked || span.start > self.at {
                let from = walk.to(self.at, &self.held);
                let to = walk.to(span.start.max(self.at), &self.held);
                out.extend_from_slice(&self.held.written[from..to]);
                out.extend_from_slice(MASK.as_bytes());
            }
            self.is_masked = true;
            self.at = self.at.max(span.end);
        }
        if self.at < safe {
            let (from, to) = (walk.to(self.at, &self.held), walk.to(safe, &self.held));
            out.extend_from_slice(&self.held.written[from..to]);
            self.at = safe;
            self.is_masked = false;
        }
    }

    /// Lets go of what is before, but for the character that decides whether a match begins there.
    fn drop_before(&mut self, safe: usize) {
        let content = &self.held.content;
        let bytes = content.floor_char_boundary(safe.saturating_sub(CHARACTER_BYTES));
        let less = |place: usize| match place {
            usize::MAX => usize::MAX,
            place => place.saturating_sub(bytes),
        };
        self.held.drop_front(bytes);
        self.at = less(self.at);
        self.looked = less(self.looked);
        for span in &mut self.spans {
            *span = less(span.start)..less(span.end);
        }
        for search in &mut self.next {
            search.from = less(search.from);
            // An end that is out of sight is none at which anything is found.
            search.last_end = search.last_end.and_then(|end| end.checked_sub(bytes));
        }
    }
}

/// A part of a string: what it means, and how it is written.
#[derive(Default)]
struct Held {
    content: String,
    written: Vec<u8>,
    /// Bytes of content and bytes as written, in turns: those that are as many are the same, others are one character.
    runs: Vec<(usize, usize)>,
}

impl Held {
    fn push(&mut self, content_bytes: usize, written_bytes: usize) {
        match self.runs.last_mut() {
            Some((content, written)) if content == written && content_bytes == written_bytes => {
                *content += content_bytes;
                *written += written_bytes;
            }
            _ => self.runs.push((content_bytes, written_bytes)),
        }
    }

    fn drop_front(&mut self, bytes: usize) {
        let mut walk = Walk::default();
        let written = walk.to(bytes, self);
        self.runs.drain(..walk.run);
        if let Some(first) = self.runs.first_mut().filter(|_| bytes > walk.content) {
            first.0 -= bytes - walk.content;
            first.1 -= bytes - walk.content;
        }
        self.content.drain(..bytes);
        self.written.drain(..written);
    }
}

/// Goes through a part of a string, from places in its content to places as it is written.
#[derive(Default)]
struct Walk {
    run: usize,
    content: usize,
    written: usize,
}

impl Walk {
    /// The place as it is written. None may be before the one that was asked for last.
    fn to(&mut self, place: usize, held: &Held) -> usize {
        while let Some((content, written)) = held.runs.get(self.run)
            && self.content + content <= place
        {
            self.run += 1;
            self.content += content;
            self.written += written;
        }
        self.written + place.min(held.content.len()).saturating_sub(self.content)
    }
}

/// Where the document comes from.
struct Source<R> {
    input: R,
    state: State,
}

/// What is set back after the input was read ahead.
#[derive(Clone, Default)]
struct State {
    buffer: Vec<u8>,
    at: usize,
    /// Bytes that are still to be read.
    left: u64,
    /// What was read ahead of the content of the strings, of the document itself first.
    ahead: Vec<Ahead>,
    /// How the quote is written that ended the last string.
    quote: Vec<u8>,
}

#[derive(Clone, Default)]
struct Ahead {
    /// Characters, with the bytes in which each is written.
    units: VecDeque<(char, usize)>,
    written: VecDeque<u8>,
}

impl State {
    fn ahead(&mut self, depth: usize) -> &mut Ahead {
        if self.ahead.len() <= depth {
            self.ahead.resize_with(depth + 1, Ahead::default);
        }
        &mut self.ahead[depth]
    }

    fn put_back(&mut self, depth: usize, held: &Held) {
        let ahead = self.ahead(depth);
        let mut walk = Walk::default();
        for (at, c) in held.content.char_indices() {
            let from = walk.to(at, held);
            let to = walk.to(at + c.len_utf8(), held);
            ahead.units.push_back((c, to - from));
        }
        ahead.written.extend(&held.written);
    }
}

fn cut_off() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the document ends in a string",
    )
}

fn not_text() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the document is not UTF-8")
}

impl<R: Read + Seek> Source<R> {
    /// What is in the buffer, which is filled where it was empty.
    fn rest(&mut self) -> io::Result<&[u8]> {
        if self.state.at == self.state.buffer.len() {
            self.more()?;
        }
        Ok(&self.state.buffer[self.state.at..])
    }

    /// Reads on. False at the end.
    fn more(&mut self) -> io::Result<bool> {
        let state = &mut self.state;
        state.buffer.drain(..state.at);
        state.at = 0;
        let wanted = usize::try_from(state.left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let held = state.buffer.len();
        state.buffer.resize(held + wanted, 0);
        let read = loop {
            match self.input.read(&mut state.buffer[held..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let bytes = *read.as_ref().unwrap_or(&0);
        state.buffer.truncate(held + bytes);
        state.left -= bytes as u64;
        read.map(|bytes| bytes > 0)
    }

    /// The next character at this depth, and how it is written: 0 is the document, 1 the string of it that is being read, 2 the string of
    /// the document in that. `None` at the end.
    fn unit(&mut self, depth: usize, written: &mut Vec<u8>) -> io::Result<Option<char>> {
        let ahead = self.state.ahead(depth);
        if let Some((c, bytes)) = ahead.units.pop_front() {
            written.extend(ahead.written.drain(..bytes));
            return Ok(Some(c));
        }
        self.new_unit(depth, written)
    }

    fn new_unit(&mut self, depth: usize, written: &mut Vec<u8>) -> io::Result<Option<char>> {
        let Some(outer) = depth.checked_sub(1) else {
            return self.character(written);
        };
        let start = written.len();
        let c = self.unit(outer, written)?.ok_or_else(cut_off)?;
        match c {
            '"' => {
                self.state.quote = written.split_off(start);
                Ok(None)
            }
            '\\' => self.escaped(outer, written).map(Some),
            c => Ok(Some(c)),
        }
    }

    /// The character of an escape, from behind its mark on.
    fn escaped(&mut self, outer: usize, written: &mut Vec<u8>) -> io::Result<char> {
        let kind = self.unit(outer, written)?.ok_or_else(cut_off)?;
        Ok(match kind {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let mut first = 0;
                for _ in 0..4 {
                    let digit = self.unit(outer, written)?.ok_or_else(cut_off)?;
                    first = first << 4 | digit.to_digit(16).unwrap_or_default();
                }
                let low = match first {
                    0xD800..0xDC00 => self.low_surrogate(outer)?,
                    _ => None,
                };
                let Some(low) = low else {
                    return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
                };
                for _ in 0..6 {
                    self.unit(outer, written)?;
                }
                let both = 0x1_0000 + ((first - 0xD800) << 10) + (low - 0xDC00);
                char::from_u32(both).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            c => c,
        })
    }

    /// The second half of a pair, where it follows. It is looked at and not read.
    fn low_surrogate(&mut self, outer: usize) -> io::Result<Option<u32>> {
        let mut unit = 0;
        for at in 0..6 {
            if self.state.ahead(outer).units.len() <= at {
                let mut written = Vec::new();
                // The string that this is in has to end first.
                let c = self.new_unit(outer, &mut written)?.ok_or_else(cut_off)?;
                let ahead = self.state.ahead(outer);
                ahead.units.push_back((c, written.len()));
                ahead.written.extend(written);
            }
            let (c, _) = self.state.ahead(outer).units[at];
            match (at, c) {
                (0, '\\') | (1, 'u') => {}
                (0 | 1, _) => return Ok(None),
                (_, digit) => unit = unit << 4 | digit.to_digit(16).unwrap_or_default(),
            }
        }
        Ok(Some(unit).filter(|unit| (0xDC00..0xE000).contains(unit)))
    }

    /// The next character of the document itself.
    fn character(&mut self, written: &mut Vec<u8>) -> io::Result<Option<char>> {
        loop {
            let rest = self.rest()?;
            let Some(&first) = rest.first() else {
                return Ok(None);
            };
            let bytes = match first {
                0..0x80 => 1,
                0x80..0xE0 => 2,
                0xE0..0xF0 => 3,
                _ => 4,
            };
            let Some(text) = rest.get(..bytes).map(std::str::from_utf8) else {
                if self.more()? {
                    continue;
                }
                return Err(not_text());
            };
            let text = text.map_err(|_| not_text())?;
            written.extend_from_slice(text.as_bytes());
            let c = text.chars().next();
            self.state.at += bytes;
            return Ok(c);
        }
    }

    /// Reads on in the string at this depth until so much of it is held. True where it has ended.
    fn fill(&mut self, depth: usize, bytes: usize, held: &mut Held) -> io::Result<bool> {
        while held.content.len() < bytes && held.written.len() < MAX_WRITTEN_BYTES {
            if depth == 1 && self.is_plain() {
                let wanted = bytes - held.content.len();
                let rest = self.rest()?;
                let rest = &rest[..rest.len().min(wanted)];
                let end = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                let plain = match std::str::from_utf8(&rest[..end]) {
                    Ok(text) => text,
                    Err(error) => {
                        std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default()
                    }
                };
                let plain_bytes = plain.len();
                if plain_bytes > 0 {
                    held.content.push_str(plain);
                    held.written.extend_from_slice(plain.as_bytes());
                    held.push(plain_bytes, plain_bytes);
                    self.state.at += plain_bytes;
                    continue;
                }
            }
            let before = held.written.len();
            let Some(c) = self.unit(depth, &mut held.written)? else {
                return Ok(true);
            };
            held.content.push(c);
            held.push(c.len_utf8(), held.written.len() - before);
        }
        Ok(false)
    }

    /// Whether nothing was read ahead of the outermost string.
    fn is_plain(&self) -> bool {
        let ahead = self.state.ahead.iter();
        ahead.take(2).all(|ahead| ahead.units.is_empty())
    }

    /// Whether the string at this depth, of which so much is held, is a document. Nothing counts as read.
    fn is_document(&mut self, depth: usize, held: &Held) -> io::Result<bool> {
        if !held.content.trim_start().starts_with(['{', '[']) {
            return Ok(false);
        }
        let place = self.input.stream_position()?;
        let state = self.state.clone();
        let rest = Content {
            source: self,
            depth,
            held: Held::default(),
            given: 0,
            is_over: false,
        };
        let all = held.content.as_bytes().chain(rest);
        let is_document = serde_json::from_reader::<_, IgnoredAny>(all).is_ok();
        self.input.seek(SeekFrom::Start(place))?;
        self.state = state;
        Ok(is_document)
    }
}

/// The rest of a string, as what it means.
struct Content<'s, R> {
    source: &'s mut Source<R>,
    depth: usize,
    held: Held,
    given: usize,
    is_over: bool,
}

impl<R: Read + Seek> Read for Content<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.held.content.len() {
            if self.is_over {
                return Ok(0);
            }
            (self.held, self.given) = (Held::default(), 0);
            self.is_over = self.source.fill(self.depth, CHUNK_BYTES, &mut self.held)?;
        }
        let next = &self.held.content.as_bytes()[self.given..];
        let bytes = next.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&next[..bytes]);
        self.given += bytes;
        Ok(bytes)
    }
}

impl Redactor {
    /// Finds what begins in the name of a member and reaches into its long value, of which this is the beginning.
    fn beside_name_of_long(&self, name: &str, content: &str, spans: &mut Spans) {
        for form in Form::ALL {
            self.beside_name(form, name, content, BESIDE_NAME_BYTES, true, spans);
        }
    }
}
