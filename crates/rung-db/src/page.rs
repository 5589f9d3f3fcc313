//! Answers that are too long to be shown at once: their first items now, and all of them kept, as they were at one moment.
//!
//! Items are made in a thread of their own and go to where results are kept as they are made, so neither the whole answer nor a
//! reader's pace holds anything up.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use rung_fault::{Code, Fault};

/// Bytes that are gathered before they are passed on.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait to be kept, at most.
const WAITING: usize = 4;

/// How much of an answer is given at once, and how all of it is written.
#[derive(Debug, Clone, Copy)]
pub struct Pages {
    /// Items, at most.
    pub max_items: usize,
    /// Bytes of them, at most.
    pub max_bytes: usize,
    /// What stands before all items, between two, and after all.
    pub around: [&'static str; 3],
}

/// The beginning of an answer.
pub struct Page<T, K> {
    /// What whoever made the items gave beside them.
    pub value: T,
    /// The first items, as they are written.
    pub items: Vec<String>,
    /// How many there are in all.
    pub total: usize,
    /// Where all of them are, where there are more.
    pub kept: Option<K>,
}

impl Pages {
    /// The first of the items that `make` gives to whom it is given; they say whether more are wanted. Where there are more, all of
    /// them go to `keep`.
    pub fn of<T: Send, K>(
        self,
        make: impl FnOnce(&mut dyn FnMut(String) -> bool) -> Result<T, Fault> + Send,
        keep: impl FnOnce(&mut dyn Read) -> Result<K, Fault>,
    ) -> Result<Page<T, K>, Fault> {
        let (to, from) = sync_channel(WAITING);
        thread::scope(|scope| {
            let maker = scope.spawn(move || self.gather(make, &to));
            // Nothing comes where the first items are all. Whoever still sends when this is done learns that nobody takes it.
            let kept = match from.recv() {
                Ok(Ok(piece)) => {
                    let piece = io::Cursor::new(piece);
                    Some(keep(&mut Source { from, piece }))
                }
                Ok(Err(Failed)) | Err(_) => None,
            };
            let gathered = maker.join().unwrap_or_else(|_| {
                let why = "it ended before its time".to_owned();
                Err(Fault::new(Code::Internal, why))
            });
            let (value, items, total) = gathered?;
            Ok(Page {
                value,
                items,
                total,
                kept: kept.transpose()?,
            })
        })
    }

    /// Has items made, and passes them on once there are more than the first.
    fn gather<T>(
        self,
        make: impl FnOnce(&mut dyn FnMut(String) -> bool) -> Result<T, Fault>,
        to: &SyncSender<Piece>,
    ) -> Result<(T, Vec<String>, usize), Fault> {
        let [before, between, after] = self.around;
        let mut items: Vec<String> = Vec::new();
        let mut piece = before.as_bytes().to_vec();
        let (mut total, mut flows) = (0, false);
        let done = make(&mut |item| {
            if total > 0 {
                piece.extend_from_slice(between.as_bytes());
            }
            total += 1;
            piece.extend_from_slice(item.as_bytes());
            let fits = items.len() < self.max_items && piece.len() <= self.max_bytes;
            if !flows && fits {
                items.push(item);
                return true;
            }
            flows = true;
            piece.len() < PIECE_BYTES || to.send(Ok(std::mem::take(&mut piece))).is_ok()
        });
        if flows {
            piece.extend_from_slice(after.as_bytes());
            // What is not whole is not kept.
            let last = if done.is_ok() { Ok(piece) } else { Err(Failed) };
            let _gone = to.send(last);
        }
        Ok((done?, items, total))
    }
}

/// What is made, to be read.
struct Source {
    from: Receiver<Piece>,
    /// What is left of the piece that came last.
    piece: io::Cursor<Vec<u8>>,
}

/// Some of the items; or that no more could be made, which whoever makes them tells.
type Piece = Result<Vec<u8>, Failed>;

struct Failed;

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(into)?;
            if read > 0 {
                return Ok(read);
            }
            match self.from.recv() {
                Ok(Ok(piece)) => self.piece = io::Cursor::new(piece),
                Ok(Err(Failed)) => return Err(io::Error::other("no more could be made")),
                Err(_) => return Ok(0),
            }
        }
    }
}
