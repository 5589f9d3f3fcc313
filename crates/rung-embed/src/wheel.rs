//! Reading of wheels: the ZIP archives of Python packages, with a record of digests.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Take};
use std::path::{Path, PathBuf};

use data_encoding::BASE64URL_NOPAD;
use flate2::read::DeflateDecoder;
use sha2::{Digest as _, Sha256};

use crate::{Error, Result};

/// Bytes at the end of the archive that can contain the end record.
const MAX_END_BYTES: u64 = 22 + 65_535;
/// Bytes of the central directory, and of `RECORD`.
const MAX_DIRECTORY_BYTES: u64 = 16 << 20;

const END_SIGNATURE: [u8; 4] = *b"PK\x05\x06";
const ENTRY_SIGNATURE: [u8; 4] = *b"PK\x01\x02";
const LOCAL_SIGNATURE: [u8; 4] = *b"PK\x03\x04";

/// An entry of the central directory.
#[derive(Debug)]
struct ZipEntry {
    name: String,
    method: u16,
    packed: u64,
    bytes: u64,
    at: u64,
}

#[derive(Debug)]
pub(crate) struct Wheel {
    path: PathBuf,
    file: File,
    entries: Vec<ZipEntry>,
    /// File names and their digests.
    record: Vec<(String, String)>,
}

/// A reader of little-endian ZIP fields.
struct ZipFields<'b>(&'b [u8]);

impl<'b> ZipFields<'b> {
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

/// Parses the end record. Returns start, length and number of entries of the central directory.
fn parse_end_record(tail: &[u8]) -> Option<(u64, u64, usize)> {
    let at = tail.windows(4).rposition(|four| four == END_SIGNATURE)?;
    let mut fields = ZipFields(&tail[at + 4..]);
    let (disks, count) = (fields.take(6)?, fields.short()?);
    let (length, start) = (fields.long()?, fields.long()?);
    // Multi-disk and ZIP64 archives are not supported.
    let is_usual = disks[..4] == [0; 4] && count < u16::MAX && start < u32::MAX;
    is_usual.then_some((start.into(), length.into(), count.into()))
}

fn parse_entry(fields: &mut ZipFields<'_>) -> Option<ZipEntry> {
    if fields.take(4)? != ENTRY_SIGNATURE {
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
    Some(ZipEntry {
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
        let wrong = || Error::model(path, "it is not a wheel");
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut tail = Vec::new();
        let start = length.saturating_sub(MAX_END_BYTES);
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        (&file)
            .take(MAX_END_BYTES)
            .read_to_end(&mut tail)
            .map_err(failed)?;
        let (start, bytes, count) = parse_end_record(&tail).ok_or_else(wrong)?;
        if bytes > MAX_DIRECTORY_BYTES || start + bytes > length {
            return Err(wrong());
        }
        let mut list = Vec::new();
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        (&file).take(bytes).read_to_end(&mut list).map_err(failed)?;
        let mut fields = ZipFields(&list);
        let entries = (0..count).map(|_| parse_entry(&mut fields));
        let entries: Option<Vec<ZipEntry>> = entries.collect();
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
                .open_entry(&record)?
                .take(MAX_DIRECTORY_BYTES)
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

    /// Checks the digest of a file against `RECORD`.
    pub(crate) fn verify_digest(&self, name: &str, digest: &[u8; 32]) -> Result<()> {
        let known = self.record.iter().find(|(own, _)| own == name);
        if known.is_some_and(|(_, known)| *known == BASE64URL_NOPAD.encode(digest)) {
            return Ok(());
        }
        let why = format!("{name} does not match its record");
        Err(Error::model(&self.path, why))
    }

    /// Opens a file of the archive for reading.
    pub(crate) fn open_entry(&self, name: &str) -> Result<Box<dyn Read + '_>> {
        let failed = |error: io::Error| Error::model(&self.path, error);
        let wrong = |why: &str| Error::model(&self.path, format!("{name} {why}"));
        let entry = self.entries.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| wrong("is missing"))?;
        let mut file = &self.file;
        file.seek(SeekFrom::Start(entry.at)).map_err(failed)?;
        let mut head = [0; 30];
        file.read_exact(&mut head).map_err(failed)?;
        let mut fields = ZipFields(&head[26..]);
        let (Some(name_bytes), Some(further), true) =
            (fields.short(), fields.short(), head[..4] == LOCAL_SIGNATURE)
        else {
            return Err(wrong("is not at its recorded position"));
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
            _ => Err(wrong("has an unsupported compression")),
        }
    }
}

/// Copies to the end, and returns the SHA-256 digest of the copied bytes.
pub(crate) fn copy_with_digest(
    mut from: impl Read,
    mut to: impl io::Write,
) -> io::Result<[u8; 32]> {
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
