//! Full-text search over tools.
//!
//! Owns: the words of every tool, their weights, and the order of results. Refuses to know: where tools come from, who the
//! caller is, and what it may see: a filter function decides that, once for each matching document.
//!
//! The laws it keeps: a filter only removes results; the limit only truncates; the exact name of a tool ranks that tool
//! first; equal queries over equal documents have equal results. No text is rejected, and none makes a search slow.
//!
//! The weight of a word in a document depends on that document alone (lengths are compared with a typical length, not an
//! average), so no server can raise its tools by the texts of others. The rarity of a word counts all documents.

mod build;
mod search;
mod synonyms;
mod vocabulary;
mod words;

#[cfg(test)]
mod tests;

use vocabulary::{Term, Vocabulary};
pub(crate) use words::StemmedText;

/// The search index. Documents are numbered in the order of insertion.
#[derive(Default)]
pub struct DocumentIndex {
    vocabulary: Vocabulary,
    postings: Postings,
    /// Adjacent terms of a name, or a term and its grammatical form, sorted, the smaller term first; and the term of the
    /// pair.
    pairs: Box<[((Term, Term), Term)]>,
    names: DocumentNames,
}

/// A tool as it is indexed.
#[derive(Debug, Clone, Copy)]
pub struct IndexedDocument<'a> {
    pub server: &'a str,
    /// The tool's name on its server.
    pub name: &'a str,
    /// Title, or empty.
    pub title: &'a str,
    /// Description, or empty.
    pub description: &'a str,
    /// Names and descriptions of the arguments.
    pub arguments: &'a [(&'a str, &'a str)],
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchResults {
    /// The best hits, by descending score.
    pub hits: Vec<DocumentHit>,
    /// Number of matches that pass the filter, including those cut by the limit.
    pub total: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DocumentHit {
    /// The document's number.
    pub document: u32,
    /// Share of the query that the document matches, from 0 to 1; above 1 if the query is its name.
    pub score: f32,
}

/// The documents of each term, with the term's weight in each.
#[derive(Default)]
struct Postings {
    /// Start offset of each term's postings, and a final end offset.
    starts: Box<[u32]>,
    documents: Box<[u32]>,
    /// Weights, scaled from 0 to `u16::MAX`.
    weights: Box<[u16]>,
}

/// The names of all documents, to match queries that are a name.
#[derive(Default)]
struct DocumentNames {
    /// Server and tool names, concatenated.
    text: Box<str>,
    /// End offsets of the server's and the tool's name.
    ends: Box<[(u32, u32)]>,
    /// Hashes of the letters and digits of the tool's name, and of both names. Only names with equal hashes are compared.
    hashes: Box<[(u32, u32)]>,
}
