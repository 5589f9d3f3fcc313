//! Arguments of `rung result`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum ResultCommand {
    /// Store a file and print its handle.
    Store {
        /// File to store; by default standard input.
        file: Option<PathBuf>,
        /// Media type; by default from the file's extension.
        #[arg(long = "type", value_name = "TYPE")]
        content_type: Option<String>,
        /// Print only the handle.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Read part of a stored result, as the tool rung.read does.
    ///
    /// Prints a line of JSON about the part, a line with the next call or `end`, and then the text. `rung result export` writes
    /// the bytes alone, and `rung result list` names the results.
    Read(ReadArgs),
    /// Write all bytes of a stored result, unchanged.
    Export {
        /// Handle of the result, or its rung:// URI.
        handle: String,
        /// New file to write; by default standard output.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// List the stored results, oldest first.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Delete a stored result.
    Remove {
        /// Handle of the result.
        handle: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// Handle of the result, or its rung:// URI.
    pub(crate) handle: String,
    /// Continue from a next or previous cursor.
    #[arg(long)]
    pub(crate) cursor: Option<String>,
    /// Path in a JSON result, such as rows[0:20] or rows[*].id.
    #[arg(long)]
    pub(crate) path: Option<String>,
    /// Number of characters to skip.
    #[arg(long, value_name = "N")]
    pub(crate) offset_chars: Option<u64>,
    /// Maximum number of characters to read.
    #[arg(long, value_name = "N")]
    pub(crate) limit_chars: Option<u64>,
    /// Range of lines to read, such as 10-40.
    #[arg(long, value_name = "FIRST-LAST")]
    pub(crate) lines: Option<String>,
    /// Regular expression to search for; lists its matches.
    #[arg(long, value_name = "REGEX")]
    pub(crate) pattern: Option<String>,
    /// Text to search for; shows its first occurrence.
    #[arg(long, value_name = "TEXT")]
    pub(crate) q: Option<String>,
    /// Characters to show before the occurrence.
    #[arg(long, value_name = "N", requires = "q")]
    pub(crate) before_chars: Option<u64>,
    /// Characters to show after the occurrence.
    #[arg(long, value_name = "N", requires = "q")]
    pub(crate) after_chars: Option<u64>,
    /// Part of the reply to print.
    #[arg(long = "as", value_enum, default_value_t = ReplyFormat::Text, value_name = "FORM")]
    pub(crate) form: ReplyFormat,
}

/// Part of a reply that is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplyFormat {
    /// Text, as a client without structured content sees it.
    Text,
    /// Structured content.
    Structured,
    /// URIs of the resource links.
    Links,
    /// Whole reply, as JSON.
    Reply,
}
