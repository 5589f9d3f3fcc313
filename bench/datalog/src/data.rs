//! Data that is the same each time: people with a few attributes, and a graph.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

const NAMES: [&str; 4] = ["Ivan", "Petr", "Sergei", "Oleg"];
const LAST_NAMES: [&str; 4] = ["Ivanov", "Petrov", "Sidorov", "Kovalev"];
const NODES: u64 = 25_000;

/// Numbers that look like chance and are none.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

pub fn schema(name: &str) -> &'static str {
    match name {
        "people" => {
            "{:key {:db/valueType :db.type/string, :db/unique :db.unique/identity} :name {:db/valueType :db.type/string} \
              :last-name {:db/valueType :db.type/string} :sex {:db/valueType :db.type/keyword} :age {:db/valueType :db.type/long} \
              :salary {:db/valueType :db.type/long}}"
        }
        _ => "{:to {:db/valueType :db.type/ref, :db/cardinality :db.cardinality/many}}",
    }
}

/// Writes the data as transactions, and gives the folder where they are.
pub fn write(folder: &Path, people: usize) -> Result<PathBuf> {
    let folder = folder.join("data");
    std::fs::create_dir_all(&folder)?;
    let mut chance = Chance(0x2545_F491_4F6C_DD1D);
    let mut text = "[".to_owned();
    for n in 1..=people {
        let name = NAMES[usize::try_from(chance.below(4))?];
        let last = LAST_NAMES[usize::try_from(chance.below(4))?];
        let sex = if chance.below(2) == 0 { ":male" } else { ":female" };
        writeln!(text, "{{:db/id {n} :key \"p{n}\" :name \"{name}\" :last-name \"{last}\" :sex {sex} :age {} :salary {}}}", chance.below(100), chance.below(1_000) * 100)?;
    }
    text.push(']');
    std::fs::write(folder.join("people.edn"), text)?;
    let mut text = "[".to_owned();
    for n in 1..=NODES {
        for _ in 0..2 {
            writeln!(text, "[:db/add {n} :to {}]", chance.below(NODES) + 1)?;
        }
    }
    text.push(']');
    std::fs::write(folder.join("graph.edn"), text)?;
    Ok(folder)
}
