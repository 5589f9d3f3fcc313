//! Long lists that are produced item by item: the first items in memory, and the whole list stored, from one snapshot.
//!
//! A separate thread produces the items and passes them to the result store as they are produced, so neither the size of
//! the list nor a slow reader blocks anything.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use rung_fault::{Code, Fault};
use rung_ladder::{Measure, json_string_bytes};

/// Size of a piece passed to the store.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of queued pieces.
const WAITING: usize = 4;

/// The limits of the items in memory, and the text around the items where they are stored.
#[derive(Debug)]
pub struct ItemCollector {
    /// Items, at most.
    pub max_items: usize,
    /// Bytes of the items, at most. The first item is collected in any case.
    pub max_bytes: usize,
    /// How these bytes are counted.
    pub measure: Measure,
    /// Text before all items.
    pub prefix: String,
    /// Text between two items.
    pub separator: &'static str,
    /// Text after all items.
    pub suffix: &'static str,
}

/// The first items of a list, and its storage if there are more.
#[derive(Debug)]
pub struct CollectedItems<T, K> {
    /// What the function that produced the items returned.
    pub value: T,
    /// The first items, serialized.
    pub items: Vec<String>,
    /// Total number of items.
    pub total: usize,
    /// The stored list, if there are more items.
    pub stored: Option<K>,
}

impl ItemCollector {
    /// Collects the first of the items that `make` passes to its callback, which returns whether more are wanted. If there are
    /// more items, all of them go to `store`.
    pub fn collect<T: Send, K>(
        self,
        make: impl FnOnce(&mut dyn FnMut(String) -> bool) -> Result<T, Fault> + Send,
        store: impl FnOnce(&mut dyn Read) -> Result<K, Fault>,
    ) -> Result<CollectedItems<T, K>, Fault> {
        let (to, from) = sync_channel(WAITING);
        thread::scope(|scope| {
            let maker = scope.spawn(move || self.gather(make, &to));
            // No piece is sent if all items are collected. A send after `store` returned reports that the receiver is gone.
            let stored = match from.recv() {
                Ok(Ok(piece)) => {
                    let piece = io::Cursor::new(piece);
                    Some(store(&mut QueuedPieces { from, piece }))
                }
                Ok(Err(Failed)) | Err(_) => None,
            };
            let gathered = maker.join().unwrap_or_else(|_| {
                let why = "the thread of the result ended early".to_owned();
                Err(Fault::new(Code::Internal, why))
            });
            let (value, items, total) = gathered?;
            Ok(CollectedItems {
                value,
                items,
                total,
                stored: stored.transpose()?,
            })
        })
    }

    /// Collects the first items, and sends pieces once there are more.
    fn gather<T>(
        self,
        make: impl FnOnce(&mut dyn FnMut(String) -> bool) -> Result<T, Fault>,
        to: &SyncSender<Piece>,
    ) -> Result<(T, Vec<String>, usize), Fault> {
        let mut items: Vec<String> = Vec::new();
        let mut piece = self.prefix.into_bytes();
        let (mut total, mut shown_bytes, mut flows) = (0, 0, false);
        let done = make(&mut |item| {
            if total > 0 {
                piece.extend_from_slice(self.separator.as_bytes());
            }
            total += 1;
            piece.extend_from_slice(item.as_bytes());
            if !flows {
                shown_bytes += match self.measure {
                    Measure::Bare => item.len(),
                    Measure::Quoted => json_string_bytes(&item) - 2,
                };
                let fits = items.len() < self.max_items && shown_bytes <= self.max_bytes;
                flows = !fits;
                // Of a first item that is too long, a part is shown.
                if fits || items.is_empty() {
                    items.push(item);
                }
            }
            !flows || piece.len() < PIECE_BYTES || to.send(Ok(std::mem::take(&mut piece))).is_ok()
        });
        if flows {
            piece.extend_from_slice(self.suffix.as_bytes());
            // An incomplete result is not stored.
            let last = if done.is_ok() { Ok(piece) } else { Err(Failed) };
            let _gone = to.send(last);
        }
        Ok((done?, items, total))
    }
}

/// Reads the queued pieces.
struct QueuedPieces {
    from: Receiver<Piece>,
    /// The unread rest of the last piece.
    piece: io::Cursor<Vec<u8>>,
}

/// A part of the text, or a failure that `make` reports itself.
type Piece = Result<Vec<u8>, Failed>;

struct Failed;

impl Read for QueuedPieces {
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
