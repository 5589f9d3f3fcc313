//! Writes the tables of the crate: the merges of the vocabulary `o200k_base`, and the classes of all characters.
//!
//! The merges are a hash table without collisions. Its pairs are put into groups by their hash, and each group has a pilot, a
//! number that sends its pairs to slots that no other pair has. So a lookup reads one pilot and one slot.

#[path = "src/layout.rs"]
mod layout;

use std::collections::HashMap;
use std::path::Path;
use std::{env, fs};

use layout::{BLOCK_CHARS, GROUPS, TOKEN_BITS};
use layout::{class, entry, group, hash, pair_key, slot};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/layout.rs");
    let folder = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let folder = Path::new(&folder);

    let vocabulary = &bpe_openai::o200k_base().bpe;
    let tokens: Vec<&[u8]> = (0..)
        .map_while(|id| {
            let present = (id as usize) < vocabulary.num_tokens();
            present.then(|| vocabulary.token_bytes(id))
        })
        .collect();
    assert!(
        tokens.len() < 1 << TOKEN_BITS,
        "a token does not fit its bits"
    );

    let byte_tokens = byte_tokens(&tokens);
    let (pilots, slots) = perfect_hash(&merges(&tokens, &byte_tokens));
    let (block_numbers, blocks) = class_blocks();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.join(name), bytes).expect("OUT_DIR is writable");
    };
    let byte_tokens: Vec<u8> = byte_tokens.iter().flat_map(|id| id.to_le_bytes()).collect();
    let pilots: Vec<u8> = pilots
        .iter()
        .flat_map(|pilot| pilot.to_le_bytes())
        .collect();
    let slots: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
    write("byte_tokens.bin", &byte_tokens);
    write("pilots.bin", &pilots);
    write("slots.bin", &slots);
    write("block_numbers.bin", &block_numbers);
    write("blocks.bin", &blocks);
}

/// The token of each single byte.
fn byte_tokens(tokens: &[&[u8]]) -> Vec<u32> {
    let mut of_byte = vec![u32::MAX; 256];
    for (id, token) in (0..).zip(tokens) {
        if let [byte] = token {
            of_byte[usize::from(*byte)] = id;
        }
    }
    assert!(!of_byte.contains(&u32::MAX), "a byte has no token");
    of_byte
}

/// The two tokens that each longer token is merged from, as `(key, token)`.
///
/// The vocabulary lists tokens without their parts. They are what remains of a token when all merges of a lower rank are
/// applied to its bytes. Since tokens are numbered by rank, a pass in that order finds every merge before it is needed.
fn merges(tokens: &[&[u8]], byte_tokens: &[u32]) -> Vec<(u64, u32)> {
    let mut merges: HashMap<u64, u32> = HashMap::with_capacity(tokens.len());
    let mut listed = Vec::with_capacity(tokens.len());
    for (id, token) in (0..).zip(tokens) {
        if token.len() == 1 {
            continue;
        }
        assert!(id > 0, "an entry of zero is an empty slot");
        let mut parts: Vec<u32> = token
            .iter()
            .map(|byte| byte_tokens[usize::from(*byte)])
            .collect();
        let merge_of = |left: u32, right: u32| {
            let token = merges.get(&pair_key(left, right));
            token.copied().unwrap_or(u32::MAX)
        };
        let mut pairs: Vec<u32> = parts
            .windows(2)
            .map(|pair| merge_of(pair[0], pair[1]))
            .collect();
        while parts.len() > 2 {
            let best = (0..pairs.len())
                .min_by_key(|at| pairs[*at])
                .expect("two parts or more");
            assert!(pairs[best] != u32::MAX, "token {id} cannot be merged");
            parts[best] = pairs[best];
            parts.remove(best + 1);
            pairs.remove(best);
            if best > 0 {
                pairs[best - 1] = merge_of(parts[best - 1], parts[best]);
            }
            if best < pairs.len() {
                pairs[best] = merge_of(parts[best], parts[best + 1]);
            }
        }
        let key = pair_key(parts[0], parts[1]);
        let earlier = merges.insert(key, id);
        assert!(
            earlier.is_none(),
            "tokens {earlier:?} and {id} have the same parts"
        );
        listed.push((key, id));
    }
    listed
}

/// The pilots of all groups, and the slots.
fn perfect_hash(merges: &[(u64, u32)]) -> (Vec<u16>, Vec<u64>) {
    let mut groups: Vec<Vec<(u64, u32)>> = vec![Vec::new(); GROUPS];
    for (key, token) in merges {
        groups[group(hash(*key))].push((*key, *token));
    }
    // Nine of ten slots are used. Large groups choose first, while most slots are empty.
    let mut slots = vec![0; merges.len() * 10 / 9];
    let mut pilots = vec![0; GROUPS];
    let mut by_size: Vec<usize> = (0..GROUPS).collect();
    by_size.sort_by_key(|number| std::cmp::Reverse(groups[*number].len()));
    for number in by_size {
        let members = &groups[number];
        let fitting = (0..=u16::MAX).find_map(|pilot| {
            let mut taken: Vec<usize> = Vec::with_capacity(members.len());
            for (key, _) in members {
                let at = slot(hash(*key), pilot, slots.len());
                if slots[at] != 0 || taken.contains(&at) {
                    return None;
                }
                taken.push(at);
            }
            Some((pilot, taken))
        });
        let (pilot, taken) = fitting.expect("a pilot for each group; else use fewer of the slots");
        pilots[number] = pilot;
        for (at, (key, token)) in taken.into_iter().zip(members) {
            slots[at] = entry(*key, *token);
        }
    }
    (pilots, slots)
}

/// The number of each block of characters, and the different blocks with one byte of classes for each character.
fn class_blocks() -> (Vec<u8>, Vec<u8>) {
    let mut classes = vec![0; 0x11_0000];
    let mut add = |pattern: &str, bits: u8| {
        let parsed = regex_syntax::parse(pattern).expect("a valid class");
        let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(ranges)) =
            parsed.kind()
        else {
            panic!("{pattern} is not a class of characters");
        };
        for range in ranges.iter() {
            for class in &mut classes[range.start() as usize..=range.end() as usize] {
                *class |= bits;
            }
        }
    };
    add(r"\p{L}", class::LETTER);
    add(r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", class::HEAD);
    add(r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", class::TAIL);
    add(r"\p{N}", class::NUMBER);
    add(r"\s", class::SPACE);
    add(r"[\r\n]", class::NEWLINE);

    let mut numbers = Vec::new();
    let mut blocks: Vec<&[u8]> = Vec::new();
    for block in classes.chunks(BLOCK_CHARS) {
        let number = blocks
            .iter()
            .position(|other| *other == block)
            .unwrap_or_else(|| {
                blocks.push(block);
                blocks.len() - 1
            });
        numbers.push(u8::try_from(number).expect("at most 256 different blocks"));
    }
    (numbers, blocks.concat())
}
