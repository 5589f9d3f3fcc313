//! Masking of secrets in a JSON document while it is read.
//!
//! Memory use does not grow with the document. A string of up to two windows is masked exactly as in a document held in
//! memory. In a longer string a pattern is tried on one window at a time: a match of up to one window is found at any
//! position; a match that extends further masks the rest of its string. Known values are found at any length.
//!
//! Only the end of a long string shows whether it is itself a document, so the input is read ahead and rewound: it must be
//! seekable.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use serde::de::IgnoredAny;

use super::{
    Captures, MASK, MAX_DEPTH, MemberForm, NAMED_VALUE_BYTES, Redactor, Spans, merge_spans,
    secret_span,
};

/// The longest pattern match that is guaranteed to be found at any position of a long string.
pub const WINDOW_BYTES: usize = 256 << 10;
/// Maximum size of a window as written: nested escapes can take any multiple of their content.
const MAX_WRITTEN_BYTES: usize = 16 << 20;
/// Size of one read.
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum bytes of a character. The characters before and after a match decide whether it counts.
const CHARACTER_BYTES: usize = 4;

impl Redactor {
    /// Returns a reader of the first `bytes` bytes of the input, a JSON document, with its secrets masked.
    pub fn reader<R: Read + Seek>(&self, input: R, bytes: u64) -> MaskingReader<R> {
        self.reader_within(input, bytes, WINDOW_BYTES)
    }

    /// Like [`reader`](Self::reader), with a window of this size.
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
            max_held_bytes: 2 * longest.max(window_bytes) + 4 * CHARACTER_BYTES,
            match_lengths: reaches,
            longest_secret,
            source: JsonInput {
                input,
                state: InputState {
                    left: bytes,
                    ..InputState::default()
                },
            },
            layers: vec![JsonLevel::default()],
            out: Vec::new(),
            given: 0,
        }
    }
}

/// Reads a document with its secrets masked.
pub struct MaskingReader<R> {
    redactor: Redactor,
    /// The maximum length of a match, per pattern.
    match_lengths: Vec<usize>,
    longest_secret: usize,
    /// Maximum bytes of a string held in memory.
    max_held_bytes: usize,
    source: JsonInput<R>,
    /// The outer document, the document in its current string, and so on.
    layers: Vec<JsonLevel>,
    out: Vec<u8>,
    /// The part of `out` that was already returned.
    given: usize,
}

/// Parse state of one nested document.
#[derive(Default)]
struct JsonLevel {
    /// The preceding string, if nothing but whitespace followed it.
    last_string: Option<String>,
    /// The member name of the next value.
    name: Option<String>,
    /// The long string being read.
    text: Option<LongString>,
}

impl JsonLevel {
    fn track_char(&mut self, outside: char) {
        match outside {
            ' ' | '\t' | '\n' | '\r' => {}
            ':' => self.name = self.last_string.take(),
            _ => (self.last_string, self.name) = (None, None),
        }
    }
}

/// The result of copying up to the next string.
enum NextStep {
    String,
    More,
    End,
}

impl<R: Read + Seek> Read for MaskingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.out.len() {
            self.out.clear();
            self.given = 0;
            if buffer.is_empty() || !self.mask_next()? {
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
    /// Masks the next part. Returns false at the end.
    fn mask_next(&mut self) -> io::Result<bool> {
        let depth = self.layers.len() - 1;
        if self.layers[depth].text.is_some() {
            self.mask_long_string_part(depth)?;
            return Ok(true);
        }
        match self.copy_to_string(depth)? {
            NextStep::String => self.mask_string(depth)?,
            NextStep::More => {}
            NextStep::End if depth == 0 => return Ok(!self.out.is_empty()),
            NextStep::End => {
                self.layers.pop();
                self.out.extend_from_slice(&self.source.state.quote);
            }
        }
        Ok(true)
    }

    /// Copies everything before the next string, and its opening quote.
    fn copy_to_string(&mut self, depth: usize) -> io::Result<NextStep> {
        let layer = &mut self.layers[depth];
        while self.out.len() < CHUNK_BYTES {
            if depth == 0 {
                let rest = self.source.buffered()?;
                let end = memchr::memchr(b'"', rest).unwrap_or(rest.len());
                rest[..end]
                    .iter()
                    .for_each(|b| layer.track_char(char::from(*b)));
                self.out.extend_from_slice(&rest[..end]);
                self.source.state.at += end;
            }
            match self.source.next_char(depth, &mut self.out)? {
                Some('"') => return Ok(NextStep::String),
                Some(c) => layer.track_char(c),
                None => return Ok(NextStep::End),
            }
        }
        Ok(NextStep::More)
    }

    /// Masks a string from after its opening quote: all of it, or what fits in memory.
    fn mask_string(&mut self, depth: usize) -> io::Result<()> {
        let layer = &mut self.layers[depth];
        let name = layer.name.take();
        layer.last_string = None;
        let mut text = LongString::default();
        let is_whole = self
            .source
            .read_string(depth + 1, self.max_held_bytes, &mut text.held)?;
        let (redactor, content) = (&self.redactor, &text.held.content);
        if is_whole {
            redactor.find_in_string(name.as_deref(), content, depth, &mut text.spans);
            text.emit(content.len(), &mut self.out);
            self.out.extend_from_slice(&self.source.state.quote);
            self.layers[depth].last_string = Some(text.held.content);
            return Ok(());
        }
        if let Some(name) = name {
            redactor.find_beside_name_in_long_value(&name, content, &mut text.spans);
        }
        if depth < MAX_DEPTH && self.source.is_document(depth + 1, &text.held)? {
            if text.spans.is_empty() {
                self.source.state.put_back(depth + 1, &text.held);
                self.layers.push(JsonLevel::default());
                return Ok(());
            }
            // Masking only a part would leave an invalid document.
            text.spans.push(0..usize::MAX);
        }
        text.next = vec![PatternSearch::default(); self.match_lengths.len()];
        self.layers[depth].text = Some(text);
        Ok(())
    }

    /// Masks the next part of a long string.
    fn mask_long_string_part(&mut self, depth: usize) -> io::Result<()> {
        let Some(mut text) = self.layers[depth].text.take() else {
            return Ok(());
        };
        let is_whole = self
            .source
            .read_string(depth + 1, self.max_held_bytes, &mut text.held)?;
        let mut safe = self.search(&mut text, is_whole);
        if !is_whole && text.held.content.len() < self.max_held_bytes {
            // Its escapes take so much space that no more of it can be held.
            text.spans.push(text.at..usize::MAX);
            safe = safe.max(text.at + 1);
        }
        text.emit(safe, &mut self.out);
        if !is_whole && !text.masks_rest() {
            text.drop_before(safe);
            self.layers[depth].text = Some(text);
            return Ok(());
        }
        if !is_whole {
            let mut passed = StringPart::default();
            while !self
                .source
                .read_string(depth + 1, CHUNK_BYTES, &mut passed)?
            {
                passed = StringPart::default();
            }
        }
        self.out.extend_from_slice(&self.source.state.quote);
        Ok(())
    }

    /// Finds the spans to mask in the held part of a long string. Returns the offset before which no further span will be
    /// found.
    fn search(&self, text: &mut LongString, is_whole: bool) -> usize {
        let content = text.held.content.as_str();
        let end = content.len();
        let mut safe = end;
        if let Some(secrets) = &self.redactor.secrets {
            let from = content.floor_char_boundary(text.values_searched);
            let found = secrets.find.find_overlapping_iter(&content[from..]);
            text.spans
                .extend(found.map(|found| from + found.start()..from + found.end()));
            if !is_whole {
                text.values_searched = end.saturating_sub(self.longest_secret);
                safe = text.values_searched;
            }
        }
        let matching: Vec<bool> = match &self.redactor.any {
            None => vec![true; self.match_lengths.len()],
            Some(any) => {
                let found = any.matches(content);
                (0..self.match_lengths.len())
                    .map(|at| found.matched(at))
                    .collect()
            }
        };
        for (at, pattern) in self.redactor.patterns.iter().enumerate() {
            let limit = if is_whole {
                end + 1
            } else {
                let reach = self.match_lengths[at] + CHARACTER_BYTES;
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
                let mut secret = secret_span(&found);
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

/// The position at which a pattern is tried next, as in an iterator over all matches.
#[derive(Clone, Default)]
struct PatternSearch {
    from: usize,
    /// End of the previous match: an empty match there does not count.
    last_end: Option<usize>,
}

impl PatternSearch {
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

/// A long string that is being masked. All offsets are relative to the held part.
#[derive(Default)]
struct LongString {
    held: StringPart,
    spans: Spans,
    next: Vec<PatternSearch>,
    /// The offset from which known values are searched.
    values_searched: usize,
    /// Everything before this offset was emitted or masked.
    at: usize,
    /// True if the last output was a mask.
    is_masked: bool,
}

impl LongString {
    /// Returns true if the rest of the string is masked.
    fn masks_rest(&self) -> bool {
        self.at == usize::MAX
    }

    /// Emits everything before `safe`, with spans masked.
    fn emit(&mut self, safe: usize, out: &mut Vec<u8>) {
        let mut walk = OffsetMap::default();
        for span in merge_spans(std::mem::take(&mut self.spans)) {
            if span.start >= safe {
                self.spans.push(span);
                continue;
            }
            if !self.is_masked || span.start > self.at {
                let from = walk.written_offset(self.at, &self.held);
                let to = walk.written_offset(span.start.max(self.at), &self.held);
                out.extend_from_slice(&self.held.written[from..to]);
                out.extend_from_slice(MASK.as_bytes());
            }
            self.is_masked = true;
            self.at = self.at.max(span.end);
        }
        if self.at < safe {
            let (from, to) = (
                walk.written_offset(self.at, &self.held),
                walk.written_offset(safe, &self.held),
            );
            out.extend_from_slice(&self.held.written[from..to]);
            self.at = safe;
            self.is_masked = false;
        }
    }

    /// Drops everything before `safe`, except the character that decides whether a match begins there.
    fn drop_before(&mut self, safe: usize) {
        let content = &self.held.content;
        let bytes = content.floor_char_boundary(safe.saturating_sub(CHARACTER_BYTES));
        let less = |place: usize| match place {
            usize::MAX => usize::MAX,
            place => place.saturating_sub(bytes),
        };
        self.held.drop_front(bytes);
        self.at = less(self.at);
        self.values_searched = less(self.values_searched);
        for span in &mut self.spans {
            *span = less(span.start)..less(span.end);
        }
        for search in &mut self.next {
            search.from = less(search.from);
            // An end before the held part no longer affects any match.
            search.last_end = search.last_end.and_then(|end| end.checked_sub(bytes));
        }
    }
}

/// A part of a string: its content and its written form.
#[derive(Default)]
struct StringPart {
    content: String,
    written: Vec<u8>,
    /// Alternating runs of (content bytes, written bytes): equal lengths mean unescaped text, different lengths one
    /// character.
    runs: Vec<(usize, usize)>,
}

impl StringPart {
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
        let mut walk = OffsetMap::default();
        let written = walk.written_offset(bytes, self);
        self.runs.drain(..walk.run);
        if let Some(first) = self.runs.first_mut().filter(|_| bytes > walk.content) {
            first.0 -= bytes - walk.content;
            first.1 -= bytes - walk.content;
        }
        self.content.drain(..bytes);
        self.written.drain(..written);
    }
}

/// Maps increasing content offsets to offsets in the written form.
#[derive(Default)]
struct OffsetMap {
    run: usize,
    content: usize,
    written: usize,
}

impl OffsetMap {
    /// Returns the written offset. Offsets must not decrease between calls.
    fn written_offset(&mut self, place: usize, held: &StringPart) -> usize {
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

/// The input of the document.
struct JsonInput<R> {
    input: R,
    state: InputState,
}

/// The state that is restored after reading ahead.
#[derive(Clone, Default)]
struct InputState {
    buffer: Vec<u8>,
    at: usize,
    /// Bytes still to be read.
    left: u64,
    /// Characters read ahead, per nesting depth, the document itself first.
    ahead: Vec<Lookahead>,
    /// The written form of the quote that ended the last string.
    quote: Vec<u8>,
}

#[derive(Clone, Default)]
struct Lookahead {
    /// Characters, each with its number of written bytes.
    units: VecDeque<(char, usize)>,
    written: VecDeque<u8>,
}

impl InputState {
    fn ahead(&mut self, depth: usize) -> &mut Lookahead {
        if self.ahead.len() <= depth {
            self.ahead.resize_with(depth + 1, Lookahead::default);
        }
        &mut self.ahead[depth]
    }

    fn put_back(&mut self, depth: usize, held: &StringPart) {
        let ahead = self.ahead(depth);
        let mut walk = OffsetMap::default();
        for (at, c) in held.content.char_indices() {
            let from = walk.written_offset(at, held);
            let to = walk.written_offset(at + c.len_utf8(), held);
            ahead.units.push_back((c, to - from));
        }
        ahead.written.extend(&held.written);
    }
}

fn unexpected_end() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the document ends in a string",
    )
}

fn not_utf8() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the document is not UTF-8")
}

impl<R: Read + Seek> JsonInput<R> {
    /// Returns the buffered bytes, after filling an empty buffer.
    fn buffered(&mut self) -> io::Result<&[u8]> {
        if self.state.at == self.state.buffer.len() {
            self.fill_buffer()?;
        }
        Ok(&self.state.buffer[self.state.at..])
    }

    /// Reads more input. Returns false at the end.
    fn fill_buffer(&mut self) -> io::Result<bool> {
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

    /// Returns the next character at this depth and appends its written form: depth 0 is the document, 1 its current
    /// string, 2 the current string of the document in that. Returns `None` at the end.
    fn next_char(&mut self, depth: usize, written: &mut Vec<u8>) -> io::Result<Option<char>> {
        let ahead = self.state.ahead(depth);
        if let Some((c, bytes)) = ahead.units.pop_front() {
            written.extend(ahead.written.drain(..bytes));
            return Ok(Some(c));
        }
        self.read_char(depth, written)
    }

    fn read_char(&mut self, depth: usize, written: &mut Vec<u8>) -> io::Result<Option<char>> {
        let Some(outer) = depth.checked_sub(1) else {
            return self.read_utf8_char(written);
        };
        let start = written.len();
        let c = self.next_char(outer, written)?.ok_or_else(unexpected_end)?;
        match c {
            '"' => {
                self.state.quote = written.split_off(start);
                Ok(None)
            }
            '\\' => self.read_escape(outer, written).map(Some),
            c => Ok(Some(c)),
        }
    }

    /// Reads the character of an escape, from after its backslash.
    fn read_escape(&mut self, outer: usize, written: &mut Vec<u8>) -> io::Result<char> {
        let kind = self.next_char(outer, written)?.ok_or_else(unexpected_end)?;
        Ok(match kind {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let mut first = 0;
                for _ in 0..4 {
                    let digit = self.next_char(outer, written)?.ok_or_else(unexpected_end)?;
                    first = first << 4 | digit.to_digit(16).unwrap_or_default();
                }
                let low = match first {
                    0xD800..0xDC00 => self.peek_low_surrogate(outer)?,
                    _ => None,
                };
                let Some(low) = low else {
                    return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
                };
                for _ in 0..6 {
                    self.next_char(outer, written)?;
                }
                let both = 0x1_0000 + ((first - 0xD800) << 10) + (low - 0xDC00);
                char::from_u32(both).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            c => c,
        })
    }

    /// Returns the low surrogate that follows, without consuming it.
    fn peek_low_surrogate(&mut self, outer: usize) -> io::Result<Option<u32>> {
        let mut unit = 0;
        for at in 0..6 {
            if self.state.ahead(outer).units.len() <= at {
                let mut written = Vec::new();
                // The enclosing string must end first.
                let c = self
                    .read_char(outer, &mut written)?
                    .ok_or_else(unexpected_end)?;
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

    /// Reads the next character of the outermost document.
    fn read_utf8_char(&mut self, written: &mut Vec<u8>) -> io::Result<Option<char>> {
        loop {
            let rest = self.buffered()?;
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
                if self.fill_buffer()? {
                    continue;
                }
                return Err(not_utf8());
            };
            let text = text.map_err(|_| not_utf8())?;
            written.extend_from_slice(text.as_bytes());
            let c = text.chars().next();
            self.state.at += bytes;
            return Ok(c);
        }
    }

    /// Reads the string at this depth until `bytes` bytes of content are held. Returns true if the string ended.
    fn read_string(
        &mut self,
        depth: usize,
        bytes: usize,
        held: &mut StringPart,
    ) -> io::Result<bool> {
        while held.content.len() < bytes && held.written.len() < MAX_WRITTEN_BYTES {
            if depth == 1 && self.has_no_lookahead() {
                let wanted = bytes - held.content.len();
                let rest = self.buffered()?;
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
            let Some(c) = self.next_char(depth, &mut held.written)? else {
                return Ok(true);
            };
            held.content.push(c);
            held.push(c.len_utf8(), held.written.len() - before);
        }
        Ok(false)
    }

    /// Returns true if nothing was read ahead of the outermost string.
    fn has_no_lookahead(&self) -> bool {
        let ahead = self.state.ahead.iter();
        ahead.take(2).all(|ahead| ahead.units.is_empty())
    }

    /// Returns true if the string at this depth, whose beginning is `held`, is a document. Nothing is consumed.
    fn is_document(&mut self, depth: usize, held: &StringPart) -> io::Result<bool> {
        if !held.content.trim_start().starts_with(['{', '[']) {
            return Ok(false);
        }
        let place = self.input.stream_position()?;
        let state = self.state.clone();
        let rest = StringContent {
            source: self,
            depth,
            held: StringPart::default(),
            given: 0,
            is_at_end: false,
        };
        let all = held.content.as_bytes().chain(rest);
        let is_document = serde_json::from_reader::<_, IgnoredAny>(all).is_ok();
        self.input.seek(SeekFrom::Start(place))?;
        self.state = state;
        Ok(is_document)
    }
}

/// Reads the content of the rest of a string.
struct StringContent<'s, R> {
    source: &'s mut JsonInput<R>,
    depth: usize,
    held: StringPart,
    given: usize,
    is_at_end: bool,
}

impl<R: Read + Seek> Read for StringContent<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.held.content.len() {
            if self.is_at_end {
                return Ok(0);
            }
            (self.held, self.given) = (StringPart::default(), 0);
            self.is_at_end = self
                .source
                .read_string(self.depth, CHUNK_BYTES, &mut self.held)?;
        }
        let next = &self.held.content.as_bytes()[self.given..];
        let bytes = next.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&next[..bytes]);
        self.given += bytes;
        Ok(bytes)
    }
}

impl Redactor {
    /// Finds matches that begin in a member's name and extend into its long value, of which `content` is the beginning.
    fn find_beside_name_in_long_value(&self, name: &str, content: &str, spans: &mut Spans) {
        for form in MemberForm::ALL {
            self.find_in_member(form, name, content, NAMED_VALUE_BYTES, true, spans);
        }
    }
}
