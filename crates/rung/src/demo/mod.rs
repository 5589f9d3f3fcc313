//! Sample personal data of a fictional person, deterministic and large enough to try every feature.

mod sample_records;
mod sources;

pub(crate) use sample_records::SampleGenerator;
pub(crate) use sources::SOURCES;
