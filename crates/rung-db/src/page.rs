//! Long results: the first items at once, and the whole result stored, from one snapshot.
//!
//! A separate thread produces the items and passes them to the result store as they are produced, so neither the size of
//! the result nor a slow reader blocks anything.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use rung_fault::{Code, Fault};

/// Size of a piece passed to the store.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of queued pieces.
const WAITING: usize = 4;

/// Limits of the first page, and the separators between items.
#[derive(Debug, Clone, Copy)]
pub struct Pages {
    pub max_items: usize,
    pub max_bytes: usize,
    /// Text before all items, between two, and after all.
    pub around: [&'static str; 3],
}

/// The first page of a result.
pub struct Page<T, K> {
    /// The value that `make` returned.
    pub value: T,
    /// The first items, serialized.
    pub items: Vec<String>,
    /// Total number of items.
    pub total: usize,
    /// The stored result, if there are more items.
    pub kept: Option<K>,
}

impl Pages {
    /// Returns the first page of the items that `make` produces; its callback returns whether more are wanted. If there are
    /// more items, the whole result goes to `keep`.
    pub fn of<T: Send, K>(
        self,
        make: impl FnOnce(&mut dyn FnMut(String) -> bool) -> Result<T, Fault> + Send,
        keep: impl FnOnce(&mut dyn Read) -> Result<K, Fault>,
    ) -> Result<Page<T, K>, Fault> {
        let (to, from) = sync_channel(WAITING);
        thread::scope(|scope| {
            let maker = scope.spawn(move || self.gather(make, &to));
            // No piece is sent if all items fit in the first page. A send after `keep` returned reports that the receiver
            // is gone.
            let kept = match from.recv() {
                Ok(Ok(piece)) => {
                    let piece = io::Cursor::new(piece);
                    Some(keep(&mut Source { from, piece }))
                }
                Ok(Err(Failed)) | Err(_) => None,
            };
            let gathered = maker.join().unwrap_or_else(|_| {
                let why = "the thread of the result ended early".to_owned();
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

    /// Collects the first page, and sends pieces once there are more items.
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
            // An incomplete result is not stored.
            let last = if done.is_ok() { Ok(piece) } else { Err(Failed) };
            let _gone = to.send(last);
        }
        Ok((done?, items, total))
    }
}

/// Reads the queued pieces.
struct Source {
    from: Receiver<Piece>,
    /// The unread rest of the last piece.
    piece: io::Cursor<Vec<u8>>,
}

/// Serialized items, or a failure that `make` reports itself.
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
                Ok(Err(Failed)) => return Err(io::Error::other("the result is incomplete")),
                Err(_) => return Ok(0),
            }
        }
    }
}
