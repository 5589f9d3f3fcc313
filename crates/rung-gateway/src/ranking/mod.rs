//! Tools found by what somebody says they should do.
//!
//! Owns: the words of every tool, what each of them is worth, and the order of what is found. Refuses to know: where tools come
//! from, who asks, and who may see what: that is said by a function, once for each document that matches.
//!
//! The laws it keeps: a filter only takes away; the limit only cuts; the exact name of a tool finds that tool first; the same
//! question to the same documents has the same answer. No text is refused, and none makes a search slow.
//!
//! What a word is worth in a document depends on that document alone (lengths are measured against a usual length, not against
//! an average), so no server can raise its tools by what it writes into others. How rare a word is counts all documents.

mod build;
mod search;
mod synonyms;
mod vocabulary;
mod words;

#[cfg(test)]
mod tests;

use vocabulary::{Term, Vocabulary};
pub(crate) use words::Sentence;

/// What is searched: documents, numbered in the order in which they came.
#[derive(Default)]
pub struct Index {
    vocabulary: Vocabulary,
    postings: Postings,
    /// Terms that stand side by side in a name, or a term and the form that it has there, the smaller first, in order; and
    /// the term that the two are together.
    pairs: Box<[((Term, Term), Term)]>,
    names: Names,
}

/// A tool as it is searched.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The name of its server.
    pub server: &'a str,
    /// Its name there.
    pub name: &'a str,
    /// Its title, or nothing.
    pub title: &'a str,
    /// Its description, or nothing.
    pub description: &'a str,
    /// Names and descriptions of its arguments.
    pub arguments: &'a [(&'a str, &'a str)],
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The best, in order.
    pub hits: Vec<Hit>,
    /// All matches that the filter let through, those that the limit cut among them.
    pub total: usize,
}

/// A document that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Its number.
    pub document: u32,
    /// How much of the query it answers, from 0 to 1; more where the query is its name.
    pub score: f32,
}

/// Where each term stands, and what it is worth there.
#[derive(Default)]
struct Postings {
    /// Where the postings of each term begin, and after them where the last ones end.
    starts: Box<[u32]>,
    documents: Box<[u32]>,
    /// From nothing to everything that a term can be worth in a document.
    worths: Box<[u16]>,
}

/// The names of all documents, for the queries that are one.
#[derive(Default)]
struct Names {
    /// Server and tool, one after another.
    text: Box<str>,
    /// Where the server's name ends, and where the tool's does.
    ends: Box<[(u32, u32)]>,
    /// What the letters and digits of the tool's name come to, and those of both names: most names are told apart by that.
    marks: Box<[(u32, u32)]>,
}
