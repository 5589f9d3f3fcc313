//! Message frames: one byte for the format, four for the length of the whole frame, and the value.

use rung_edn::Value;

use crate::nippy;
use crate::{Error, Result};

/// The only format that is sent and accepted.
const FORMAT_NIPPY: u8 = 2;
/// The format bits of the first byte.
const FORMAT_BITS: u8 = 0x0f;
/// The compression bit of the first byte.
const COMPRESSED_BIT: u8 = 0x10;
/// Bytes before the content.
pub(crate) const HEADER_BYTES: usize = 5;

/// Encodes a value as a frame.
pub(crate) fn encode(value: &Value) -> Result<Vec<u8>> {
    let mut frame = vec![FORMAT_NIPPY, 0, 0, 0, 0];
    nippy::write_to(&mut frame, value).map_err(Error::Unencodable)?;
    let length = i32::try_from(frame.len()).map_err(|_| {
        Error::Unencodable(nippy::Error {
            at: frame.len(),
            why: nippy::ErrorKind::TooLong("message"),
        })
    })?;
    frame[1..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// Returns the length of the content after this header.
pub(crate) fn content_bytes(header: [u8; HEADER_BYTES], max_bytes: usize) -> Result<usize> {
    let [format, length @ ..] = header;
    if format & COMPRESSED_BIT != 0 {
        return Err(Error::Compressed);
    }
    if format & FORMAT_BITS != FORMAT_NIPPY || format & !FORMAT_BITS != 0 {
        return Err(Error::InvalidResponse(format!(
            "the message format {format} is unknown"
        )));
    }
    let length = u32::from_be_bytes(length) as usize;
    let Some(content) = length.checked_sub(HEADER_BYTES) else {
        return Err(Error::InvalidResponse(format!(
            "{length} is not a valid frame length"
        )));
    };
    if content > max_bytes {
        return Err(Error::TooLarge {
            bytes: content as u64,
            max_bytes,
        });
    }
    Ok(content)
}
