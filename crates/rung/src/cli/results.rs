//! What was kept, and reading it.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum ResultCommand {
    /// Stores a file, and prints its handle.
    Store {
        /// The file; standard input without one.
        file: Option<PathBuf>,
        /// Its media type; by the file's name without one.
        #[arg(long = "type", value_name = "TYPE")]
        content_type: Option<String>,
        /// Only the handle.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Reads part of a result, as the tool rung.read does.
    Read(ReadArgs),
    /// Writes a result's bytes, all of them and nothing else.
    Export {
        /// The handle, or its rung:// address.
        handle: String,
        /// A new file; standard output without one.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Lists what is kept, in the order in which it came.
    List {
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Forgets a result.
    Remove {
        /// The handle.
        handle: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// The handle, or its rung:// address.
    pub(crate) handle: String,
    /// Goes on from a next or previous cursor.
    #[arg(long)]
    pub(crate) cursor: Option<String>,
    /// Where in a JSON result, as rows[0:20] or rows[*].id.
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// Characters to skip.
    #[arg(long, value_name = "N")]
    pub(crate) offset_chars: Option<u64>,
    /// Characters to read.
    #[arg(long, value_name = "N")]
    pub(crate) limit_chars: Option<u64>,
    /// Lines, as 10-40.
    #[arg(long, value_name = "FIRST-LAST")]
    pub(crate) lines: Option<String>,
    /// A regular expression: lists where it matches.
    #[arg(long, value_name = "REGEX")]
    pub(crate) pattern: Option<String>,
    /// A text: shows its first occurrence.
    #[arg(long, value_name = "TEXT")]
    pub(crate) q: Option<String>,
    /// Characters before it.
    #[arg(long, value_name = "N", requires = "q")]
    pub(crate) before_chars: Option<u64>,
    /// Characters after it.
    #[arg(long, value_name = "N", requires = "q")]
    pub(crate) after_chars: Option<u64>,
    /// The form to print.
    #[arg(long = "as", value_enum, default_value_t = Form::Text, value_name = "FORM")]
    pub(crate) form: Form,
}

/// How a reply is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// What a client sees that reads text alone.
    Text,
    /// What a client sees that reads structured content.
    Structured,
    /// The addresses that a client follows which reads resources.
    Links,
    /// The whole reply.
    Reply,
}
