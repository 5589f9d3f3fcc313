//! A wheel: files packed as Python's packages are, with a record of their digests.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Take};
use std::path::{Path, PathBuf};

use data_encoding::BASE64URL_NOPAD;
use flate2::read::DeflateDecoder;
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// Bytes at the end among which the list of files is announced.
const END_BYTES: u64 = 22 + 65_535;
/// Bytes of the list of files, and of a record of their digests, at most.
const MAX_LIST_BYTES: u64 = 16 << 20;

const END: [u8; 4] = *b"PK\x05\x06";
const LISTED: [u8; 4] = *b"PK\x01\x02";
const LOCAL: [u8; 4] = *b"PK\x03\x04";

/// A packed file.
#[derive(Debug)]
struct Entry {
    name: String,
    method: u16,
    packed: u64,
    bytes: u64,
    at: u64,
}

/// A wheel.
#[derive(Debug)]
pub(crate) struct Wheel {
    path: PathBuf,
    file: File,
    entries: Vec<Entry>,
    /// The digests of files, by their names.
    record: Vec<(String, String)>,
}

/// Numbers as they are written in such files.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (own, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(own)
    }

    fn short(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
}

/// Where the list of files is, and how long it is and of how many files.
fn end(tail: &[u8]) -> Option<(u64, u64, usize)> {
    let at = tail.windows(4).rposition(|four| four == END)?;
    let mut fields = Fields(&tail[at + 4..]);
    let (disks, count) = (fields.take(6)?, fields.short()?);
    let (length, start) = (fields.long()?, fields.long()?);
    // More than one disk, or larger than these numbers can say.
    let is_usual = disks[..4] == [0; 4] && count < u16::MAX && start < u32::MAX;
    is_usual.then_some((start.into(), length.into(), count.into()))
}

fn listed(fields: &mut Fields<'_>) -> Option<Entry> {
    if fields.take(4)? != LISTED {
        return None;
    }
    fields.take(6)?;
    let method = fields.short()?;
    fields.take(8)?;
    let (packed, bytes) = (fields.long()?, fields.long()?);
    let (name, further, comment) = (fields.short()?, fields.short()?, fields.short()?);
    fields.take(8)?;
    let at = fields.long()?;
    let name = str::from_utf8(fields.take(name.into())?).ok()?.to_owned();
    fields.take(usize::from(further) + usize::from(comment))?;
    Some(Entry {
        name,
        method,
        packed: packed.into(),
        bytes: bytes.into(),
        at: at.into(),
    })
}

impl Wheel {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| Error::model(path, error);
        let wrong = || Error::model(path, "it is no wheel");
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut tail = Vec::new();
        let start = length.saturating_sub(END_BYTES);
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        (&file)
            .take(END_BYTES)
            .read_to_end(&mut tail)
            .map_err(failed)?;
        let (start, bytes, count) = end(&tail).ok_or_else(wrong)?;
        if bytes > MAX_LIST_BYTES || start + bytes > length {
            return Err(wrong());
        }
        let mut list = Vec::new();
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        (&file).take(bytes).read_to_end(&mut list).map_err(failed)?;
        let mut fields = Fields(&list);
        let entries = (0..count).map(|_| listed(&mut fields));
        let entries: Option<Vec<Entry>> = entries.collect();
        let mut wheel = Self {
            path: path.to_owned(),
            file,
            entries: entries.ok_or_else(wrong)?,
            record: Vec::new(),
        };
        let record = wheel
            .names()
            .find(|name| name.ends_with(".dist-info/RECORD"));
        if let Some(record) = record.map(str::to_owned) {
            let mut text = String::new();
            let read = wheel
                .unpacked(&record)?
                .take(MAX_LIST_BYTES)
                .read_to_string(&mut text);
            read.map_err(failed)?;
            let lines = text.lines().filter_map(|line| {
                let mut parts = line.split(',');
                let (name, digest) = (parts.next()?, parts.next()?);
                Some((name.to_owned(), digest.strip_prefix("sha256=")?.to_owned()))
            });
            wheel.record = lines.collect();
        }
        Ok(wheel)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Whether what was read of a file is what the wheel was made with.
    pub(crate) fn check(&self, name: &str, digest: &[u8; 32]) -> Result<()> {
        let known = self.record.iter().find(|(own, _)| own == name);
        if known.is_some_and(|(_, known)| *known == BASE64URL_NOPAD.encode(digest)) {
            return Ok(());
        }
        let why = format!("{name} is not what its record says");
        Err(Error::model(&self.path, why))
    }

    /// What is in a packed file.
    pub(crate) fn unpacked(&self, name: &str) -> Result<Box<dyn Read + '_>> {
        let failed = |error: io::Error| Error::model(&self.path, error);
        let wrong = |why: &str| Error::model(&self.path, format!("{name} {why}"));
        let entry = self.entries.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| wrong("is not in it"))?;
        let mut file = &self.file;
        file.seek(SeekFrom::Start(entry.at)).map_err(failed)?;
        let mut head = [0; 30];
        file.read_exact(&mut head).map_err(failed)?;
        let mut fields = Fields(&head[26..]);
        let (Some(name_bytes), Some(further), true) =
            (fields.short(), fields.short(), head[..4] == LOCAL)
        else {
            return Err(wrong("does not lie where it should"));
        };
        let skipped = i64::from(name_bytes) + i64::from(further);
        file.seek(SeekFrom::Current(skipped)).map_err(failed)?;
        let packed: Take<&File> = file.take(entry.packed);
        match entry.method {
            0 => Ok(Box::new(packed)),
            8 => {
                let packed = BufReader::with_capacity(1 << 16, packed);
                Ok(Box::new(DeflateDecoder::new(packed).take(entry.bytes)))
            }
            _ => Err(wrong("is packed in a way that is not known here")),
        }
    }
}

/// Reads to the end, and gives the digest of what was read while it is written.
pub(crate) fn copy(mut from: impl Read, mut to: impl io::Write) -> io::Result<[u8; 32]> {
    let mut digest = Sha256::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(digest.finalize().into()),
            read => {
                digest.update(&piece[..read]);
                to.write_all(&piece[..read])?;
            }
        }
    }
}
