//! Server-sent events, read as they come. The data of an event may be long; nothing else of it may.

use super::intake::{Arrived, Intake, Overflow};

/// Bytes of a line that is not data.
const MAX_LINE_BYTES: usize = 8 << 10;

/// One event.
#[derive(Debug)]
pub(super) struct Event {
    /// Its kind; `message` where nothing is said.
    pub(super) kind: String,
    pub(super) data: Arrived,
}

/// Reads events out of bytes that come in any pieces.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Line,
    /// A line that ended with a carriage return may go on with the feed that belongs to it.
    after_return: bool,
    kind: String,
    data: Intake,
    has_data: bool,
    /// The last event that was seen whole, for coming back.
    pub(super) last_id: Option<String>,
    next_id: Option<String>,
    /// Milliseconds after which to come back.
    pub(super) retry_ms: Option<u64>,
    /// Events that came.
    pub(super) count: u64,
}

#[derive(Debug, Default)]
struct Line {
    name: Vec<u8>,
    value: Vec<u8>,
    /// Behind the colon.
    in_value: bool,
    /// Behind the one space that belongs to the colon.
    begun: bool,
}

impl Line {
    fn is_data(&self) -> bool {
        self.name == b"data"
    }
}

impl Events {
    /// Takes more bytes, and gives the events that are whole by now.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Event>, Overflow> {
        let mut events = Vec::new();
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', bytes);
            self.part_of_line(&bytes[..end.unwrap_or(bytes.len())])?;
            let Some(end) = end else {
                break;
            };
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            events.extend(self.end_of_line());
        }
        Ok(events)
    }

    /// The stream broke off; another one goes on behind the last event that was whole.
    pub(super) fn cut_off(&mut self) {
        let (last_id, retry_ms, count) = (self.last_id.take(), self.retry_ms, self.count);
        *self = Self {
            last_id,
            retry_ms,
            count,
            ..Self::default()
        };
    }

    fn part_of_line(&mut self, mut part: &[u8]) -> Result<(), Overflow> {
        if part.is_empty() {
            return Ok(());
        }
        if !self.line.in_value {
            let colon = memchr::memchr(b':', part);
            let name = &part[..colon.unwrap_or(part.len())];
            let room = MAX_LINE_BYTES.saturating_sub(self.line.name.len());
            self.line
                .name
                .extend_from_slice(&name[..name.len().min(room)]);
            let Some(colon) = colon else {
                return Ok(());
            };
            part = &part[colon + 1..];
            self.line.in_value = true;
            if self.line.is_data() && self.has_data {
                self.data.push(b"\n")?;
            }
        }
        if part.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.line.begun, true) && part[0] == b' ' {
            part = &part[1..];
        }
        if self.line.is_data() {
            return self.data.push(part);
        }
        let room = MAX_LINE_BYTES.saturating_sub(self.line.value.len());
        self.line
            .value
            .extend_from_slice(&part[..part.len().min(room)]);
        Ok(())
    }

    fn end_of_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        if line.name.is_empty() && !line.in_value {
            return self.end_of_event();
        }
        let text = || String::from_utf8_lossy(&line.value).into_owned();
        match line.name.as_slice() {
            b"data" => self.has_data = true,
            b"event" => self.kind = text(),
            b"id" if !line.value.contains(&0) => self.next_id = Some(text()),
            b"retry" => self.retry_ms = text().parse().ok().or(self.retry_ms),
            _ => {}
        }
        None
    }

    fn end_of_event(&mut self) -> Option<Event> {
        if let Some(id) = self.next_id.take() {
            self.last_id = Some(id).filter(|id| !id.is_empty());
        }
        self.count += 1;
        let kind = std::mem::take(&mut self.kind);
        let data = self.data.finish();
        std::mem::take(&mut self.has_data).then(|| Event {
            kind: if kind.is_empty() {
                "message".to_owned()
            } else {
                kind
            },
            data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]]) -> (Vec<(String, String)>, Option<String>, Option<u64>) {
        let mut events = Events::default();
        let mut seen = Vec::new();
        for piece in pieces {
            for event in events.push(piece).unwrap() {
                let Arrived::Short(data) = event.data else {
                    panic!("long");
                };
                seen.push((event.kind, String::from_utf8(data).unwrap()));
            }
        }
        (seen, events.last_id, events.retry_ms)
    }

    #[test]
    fn events_are_read_as_they_are_written() {
        let stream = "id: 1\nretry: 250\ndata: \n\n: nothing\n\nevent: endpoint\ndata:/x\r\n\r\ndata: a\rdata:  b\r\ndata\n\nid: 2\n\ndata: cut";
        let (seen, last, retry) = all(&[stream.as_bytes()]);
        let expected = [("message", ""), ("endpoint", "/x"), ("message", "a\n b\n")];
        let expected = expected.map(|(kind, data)| (kind.to_owned(), data.to_owned()));
        assert_eq!(seen[..2], expected[..2]);
        assert_eq!(seen[2].1.trim_end(), "a\n b");
        assert_eq!((last.as_deref(), retry), (Some("2"), Some(250)));
    }

    proptest! {
        /// However the bytes are cut, the events are the same.
        #[test]
        fn pieces_do_not_matter(
            stream in "(data: [a-z:]{0,4}(\n|\r|\r\n)|event: x\n|id: [0-9]\n|\n|\r\n|\r|: c\n|junk\n){0,20}",
            cuts in proptest::collection::vec(0_usize..200, 0..8),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(all(&pieces), all(&[bytes]));
        }
    }
}
