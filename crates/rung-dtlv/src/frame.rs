//! How a value is wrapped: a byte that says the format, four that say how long the whole is, and the value.

use rung_edn::Value;

use crate::nippy;
use crate::{Error, Result};

/// The format that is sent, and the only one that is read.
const NIPPY: u8 = 2;
/// Which bits say the format.
const FORMAT: u8 = 0x0f;
/// Whether the content is packed.
const PACKED: u8 = 0x10;
/// What comes before the content.
pub(crate) const HEADER_BYTES: usize = 5;

/// The frame of a value.
pub(crate) fn wrap(value: &Value) -> Result<Vec<u8>> {
    let mut frame = vec![NIPPY, 0, 0, 0, 0];
    nippy::write_to(&mut frame, value).map_err(Error::Request)?;
    let length = i32::try_from(frame.len()).map_err(|_| {
        Error::Request(nippy::Error {
            at: frame.len(),
            why: nippy::Why::Long("message"),
        })
    })?;
    frame[1..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// How many bytes follow a header.
pub(crate) fn content_bytes(header: [u8; HEADER_BYTES], max_bytes: usize) -> Result<usize> {
    let [format, length @ ..] = header;
    if format & PACKED != 0 {
        return Err(Error::Compressed);
    }
    if format & FORMAT != NIPPY || format & !FORMAT != 0 {
        return Err(Error::Answer(format!("format {format} is not known")));
    }
    let length = u32::from_be_bytes(length) as usize;
    let Some(content) = length.checked_sub(HEADER_BYTES) else {
        return Err(Error::Answer(format!("{length} is no length of a frame")));
    };
    if content > max_bytes {
        return Err(Error::TooLarge {
            bytes: content as u64,
            max_bytes,
        });
    }
    Ok(content)
}
