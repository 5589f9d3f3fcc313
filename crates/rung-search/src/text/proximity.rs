//! The proximity score: how near to each other the terms of a query are in a document.
//!
//! Positions are divided into spans, within which terms follow each other closely and mostly once each. A term scores more in a
//! narrow span of many terms. The scores are identical to Datalevin's.

/// A term of the query: its weight, and its positions in the document.
pub(super) struct TermPositions {
    pub(super) weight: f64,
    pub(super) positions: Vec<u32>,
}

/// Returns the proximity score of a document.
pub(super) fn score(terms: &[TermPositions], unique: u32, max_dist: u32) -> f64 {
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
    // A span has at most as many hits as there are 32-bit positions.
    f64::from(u32::try_from(hits).unwrap_or(u32::MAX))
}

/// A term at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PositionedTerm {
    term: usize,
    position: u32,
}

fn each_span(terms: &[TermPositions], max_dist: u32, mut found: impl FnMut(&[PositionedTerm])) {
    let mut hits: Vec<PositionedTerm> = Vec::new();
    for (term, stands) in terms.iter().enumerate() {
        let positions = stands.positions.iter();
        hits.extend(positions.map(|&position| PositionedTerm { term, position }));
    }
    hits.sort_unstable_by_key(|hit| hit.position);
    let mut span: Vec<PositionedTerm> = Vec::new();
    for hit in hits {
        if let Some(&last) = span.last() {
            let further = hit.position - last.position;
            if further > max_dist || hit.term == last.term {
                found(&span);
                span.clear();
            } else if let Some(at) = span.iter().position(|before| before.term == hit.term) {
                // The span has the term already: the old occurrence stays in the part that is nearer to it.
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
