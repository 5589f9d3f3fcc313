//! The classes of a character, from a table of all characters.

use crate::layout::BLOCK_CHARS;

static BLOCK_NUMBERS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/block_numbers.bin"));
static BLOCKS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/blocks.bin"));
/// The first block: most texts need no other.
static ASCII: &[u8; BLOCK_CHARS] = match BLOCKS.first_chunk() {
    Some(block) => block,
    None => panic!("the table is empty"),
};

/// The class bits of the character at byte `at`, and its length in bytes. `None` at the end of the text.
pub(crate) fn class_at(text: &str, at: usize) -> Option<(u8, usize)> {
    let byte = *text.as_bytes().get(at)?;
    if let Some(class) = ASCII.get(usize::from(byte)) {
        return Some((*class, 1));
    }
    let character = text.get(at..)?.chars().next()?;
    Some((class_of(character), character.len_utf8()))
}

fn class_of(character: char) -> u8 {
    let code = character as usize;
    let block = BLOCK_NUMBERS.get(code / BLOCK_CHARS);
    let at = block.map(|block| usize::from(*block) * BLOCK_CHARS + code % BLOCK_CHARS);
    at.and_then(|at| BLOCKS.get(at)).copied().unwrap_or(0)
}
