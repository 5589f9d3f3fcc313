//! How near to each other the terms of a query stand in a document.
//!
//! Places are divided into spans, within which terms follow each other closely and mostly once each. A term is worth more in a span
//! of many terms and little width. It is the measure of the engine that this one takes the place of, to the digit.

/// A term of the query: its weight, and where it stands.
pub(super) struct Stands {
    pub(super) weight: f64,
    pub(super) positions: Vec<u32>,
}

/// The score of a document by nearness.
pub(super) fn score(terms: &[Stands], unique: u32, max_dist: u32) -> f64 {
    let mut worth = vec![0.0; terms.len()];
    each_span(terms, max_dist, |span| {
        let (Some(first), Some(last)) = (span.first(), span.last()) else {
            return;
        };
        let count = count(span.len());
        let width = match span.len() {
            1 => f64::from(max_dist),
            _ => f64::from(last.position - first.position + 1),
        };
        let here = (count / width).powf(0.25) * count.powf(0.3);
        for (at, hit) in span.iter().enumerate() {
            if !span[..at].iter().any(|before| before.term == hit.term) {
                worth[hit.term] += here;
            }
        }
    });
    let worth = terms
        .iter()
        .zip(worth)
        .map(|(term, worth)| term.weight * worth / f64::from(unique));
    worth.sum()
}

fn count(hits: usize) -> f64 {
    // A span has no more hits than positions, which are of 32 bits.
    f64::from(u32::try_from(hits).unwrap_or(u32::MAX))
}

/// A term at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hit {
    term: usize,
    position: u32,
}

fn each_span(terms: &[Stands], max_dist: u32, mut found: impl FnMut(&[Hit])) {
    let mut hits: Vec<Hit> = Vec::new();
    for (term, stands) in terms.iter().enumerate() {
        let positions = stands.positions.iter();
        hits.extend(positions.map(|&position| Hit { term, position }));
    }
    hits.sort_unstable_by_key(|hit| hit.position);
    let mut span: Vec<Hit> = Vec::new();
    for hit in hits {
        if let Some(&last) = span.last() {
            let further = hit.position - last.position;
            if further > max_dist || hit.term == last.term {
                found(&span);
                span.clear();
            } else if let Some(at) = span.iter().position(|before| before.term == hit.term) {
                // It was here before: it is left with what stands nearer.
                let kept = if further < span[at + 1].position - span[at].position {
                    at
                } else {
                    span.len()
                };
                found(&span[..kept]);
                span.drain(..kept);
            }
        }
        span.push(hit);
    }
    found(&span);
}
