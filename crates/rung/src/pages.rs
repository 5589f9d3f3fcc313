//! Answers that are too long to be shown at once: their first rows now, and all of them under a handle, as they were at one moment.
//!
//! The query runs in a thread of its own and its rows go to where results are kept as they are found, so neither the whole answer
//! nor a reader's pace holds anything up.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use rung_auth::Permit;
use rung_datalog::{Bounds, Db, Head};
use rung_edn::Value;
use rung_fault::{Code, Fault};
use rung_ladder::Kept;

use crate::shelf::Shelf;

/// Bytes that are gathered before they are passed on.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait to be kept, at most.
const WAITING: usize = 4;

/// The beginning of an answer.
pub(crate) struct Page {
    pub(crate) head: Head,
    pub(crate) rows: Vec<Vec<Value>>,
    /// How many rows there are in all.
    pub(crate) total: usize,
    /// Where all of them are, one in each line, where there are more.
    pub(crate) kept: Option<Kept>,
}

/// A query, and how its rows are written.
pub(crate) struct Question<'q> {
    pub(crate) db: &'q Db,
    pub(crate) query: &'q Value,
    pub(crate) inputs: &'q [Value],
    pub(crate) bounds: &'q Bounds,
    /// How a row is written, in one line.
    pub(crate) write: fn(&Value) -> String,
    /// The media type of that.
    pub(crate) content_type: &'static str,
}

impl Question<'_> {
    /// The first rows of the answer. Where there are more, all are kept for the bearer of `permit`.
    pub(crate) fn page(&self, first: usize, shelf: &Shelf, permit: &Permit) -> Result<Page, Fault> {
        let (to, from) = sync_channel(WAITING);
        thread::scope(|scope| {
            let asked = scope.spawn(|| self.ask(first, to));
            // Nothing comes where the first rows are all. Whoever still sends when this is done learns that nobody takes it.
            let kept = match from.recv() {
                Ok(Ok(piece)) => {
                    let piece = io::Cursor::new(piece);
                    Some(shelf.put(permit, self.content_type, Source { from, piece }))
                }
                Ok(Err(Failed)) | Err(_) => None,
            };
            let asked = asked.join().unwrap_or_else(|_| {
                let why = "the query ended before its time".to_owned();
                Err(Fault::new(Code::Internal, why))
            });
            let (head, rows, total) = asked?;
            Ok(Page {
                head,
                rows,
                total,
                kept: kept.transpose()?,
            })
        })
    }

    /// Asks, and passes on the rows once there are more than the first.
    fn ask(
        &self,
        first: usize,
        to: SyncSender<Piece>,
    ) -> Result<(Head, Vec<Vec<Value>>, usize), Fault> {
        let mut rows: Vec<Vec<Value>> = Vec::new();
        let mut total = 0;
        let mut piece = Vec::new();
        let pass_on = |head: &Head, row: Vec<Value>, piece: &mut Vec<u8>| {
            piece.extend_from_slice((self.write)(&head.row(row)).as_bytes());
            piece.push(b'\n');
            piece.len() < PIECE_BYTES || to.send(Ok(std::mem::take(piece))).is_ok()
        };
        let asked = self
            .db
            .each_row(self.query, self.inputs, self.bounds, &mut |head, row| {
                total += 1;
                if total <= first {
                    rows.push(row);
                    return Ok(true);
                }
                if total == first + 1 {
                    for row in &rows {
                        if !pass_on(head, row.clone(), &mut piece) {
                            return Ok(false);
                        }
                    }
                }
                Ok(pass_on(head, row, &mut piece))
            });
        // What is not whole is not kept.
        let last = if asked.is_ok() {
            Ok(piece)
        } else {
            Err(Failed)
        };
        if total > first {
            let _gone = to.send(last);
        }
        Ok((asked?, rows, total))
    }
}

/// What comes from the query, to be read.
struct Source {
    from: Receiver<Piece>,
    /// What is left of the piece that came last.
    piece: io::Cursor<Vec<u8>>,
}

/// Some of the rows; or that the query failed, which it tells by itself.
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
                Ok(Err(Failed)) => return Err(io::Error::other("the query failed")),
                Err(_) => return Ok(0),
            }
        }
    }
}
