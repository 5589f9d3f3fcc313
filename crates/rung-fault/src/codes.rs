//! The table. One row a code; every face reads the same row.

/// Who has to act for the call to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The request is wrong; the caller can correct it.
    Caller,
    /// The caller may not do this.
    Auth,
    /// What was named does not exist, or the caller may not see it.
    Absent,
    /// A limit was reached.
    Limit,
    /// Nothing is wrong, but not now.
    Busy,
    /// Something we depend on failed.
    Upstream,
    /// We failed, or what we stand on did.
    Broken,
}

impl Class {
    /// The class's word, as it appears in the reference.
    pub fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Auth => "auth",
            Self::Absent => "absent",
            Self::Limit => "limit",
            Self::Busy => "busy",
            Self::Upstream => "upstream",
            Self::Broken => "broken",
        }
    }
}

/// Whether the same call is worth making again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// It will fail the same way.
    No,
    /// After correcting what the message names.
    Corrected,
    /// Unchanged, later.
    Later,
}

impl Retry {
    /// The advice's word, as it appears on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Corrected => "corrected",
            Self::Later => "later",
        }
    }
}

/// A surface whose contract prescribes names and shapes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Face {
    /// Our own tools.
    #[default]
    Rung,
    /// The personal-data API and its tools.
    Pdpp,
    /// The `datalevin_*` tools.
    Datalevin,
}

/// A row reads: variant, name, class, HTTP status, retry advice, names on other faces, meaning.
macro_rules! codes {
    ($($variant:ident $name:literal $class:ident $status:literal $retry:ident
       $(pdpp $pdpp:literal)? $(datalevin $datalevin:literal)? : $meaning:literal;)*) => {
        /// A stable error code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $(#[doc = $meaning] $variant,)* }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &[Code] = &[$(Code::$variant,)*];

            /// The code's name on our own face.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Who has to act.
            pub fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class,)* }
            }

            /// The status of an HTTP reply that carries this code.
            pub fn http_status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Whether to try again.
            pub fn retry(self) -> Retry {
                match self { $(Self::$variant => Retry::$retry,)* }
            }

            /// One sentence: when a caller meets this code.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }

            /// The code's name on `face`.
            pub fn name_on(self, face: Face) -> &'static str {
                match (face, self) {
                    $($((Face::Pdpp, Self::$variant) => $pdpp,)?)*
                    $($((Face::Datalevin, Self::$variant) => $datalevin,)?)*
                    // Datalevin's word for everything its contract has no word for.
                    (Face::Datalevin, _) => ":tool-error",
                    (Face::Rung | Face::Pdpp, _) => self.name(),
                }
            }
        }
    };
}

codes! {
    // requests
    InvalidArguments "invalid_arguments" Caller 400 Corrected pdpp "invalid_argument" datalevin ":invalid-params":
        "The arguments do not match the tool's published schema.";
    InvalidRequest "invalid_request" Caller 400 Corrected datalevin ":invalid-request":
        "The request names a parameter that is not known, or gives one a value that it cannot have.";
    InvalidSort "invalid_sort" Caller 400 Corrected:
        "A stream is ordered by its cursor field alone, and in one direction.";
    InvalidExpand "invalid_expand" Caller 400 Corrected:
        "The relation cannot be read along: not declared for it, nested, or more of it than is allowed.";
    InvalidFilter "invalid_filter" Caller 400 Corrected:
        "A filter is an object of fields, each with a value or with bounds, and is not empty.";
    InvalidRecordIdentity "invalid_record_identity" Caller 400 Corrected:
        "The text is not the id of a record: a part is missing, or has what no name has.";
    ConflictingConnection "conflicting_connection_id" Caller 400 Corrected:
        "The id names one connection, and the argument another.";
    InvalidFieldWindowSelector "invalid_field_window_selector" Caller 400 Corrected:
        "The record or the part of its field is named in two ways, or in none.";
    UnknownField "unknown_field" Caller 400 Corrected:
        "The stream declares no field of this name.";
    UnsupportedVersion "unsupported_version" Caller 400 Corrected:
        "The PDPP-Version header names a version that is not spoken here.";
    AmbiguousConnection "ambiguous_connection" Caller 409 Corrected:
        "Several connections hold it; one must be chosen.";
    AmbiguousSchemaDetail "ambiguous_schema_detail" Caller 409 Corrected:
        "Several sources have a stream of this name; one must be chosen.";
    ConnectorInstanceClosed "connector_instance_not_writable" Caller 409 Corrected:
        "The connection is paused or revoked, and takes no records.";
    InvalidCursor "invalid_cursor" Caller 400 Corrected:
        "The cursor was not issued for this read: malformed, forged, or made for another subject, field or grant.";
    StaleCursor "stale_cursor" Caller 409 Corrected:
        "The cursor is genuine, but the text it pointed into has changed since.";
    InvalidHandle "invalid_handle" Caller 400 Corrected datalevin ":invalid-handle":
        "The text is not shaped like a handle.";
    InvalidWindow "invalid_window" Caller 400 Corrected:
        "The window's bounds are out of range, or two ways of selecting a window were mixed.";
    InvalidPath "invalid_path" Caller 400 Corrected pdpp "invalid_field_path":
        "The JSON path does not parse, or uses an operator that is not offered.";
    InvalidPattern "invalid_pattern" Caller 400 Corrected:
        "The regular expression does not compile within its size limit.";
    InvalidEdn "invalid_edn" Caller 400 Corrected datalevin ":invalid-request":
        "The text is not EDN.";
    InvalidQuery "invalid_query" Caller 400 Corrected:
        "The query or the pattern cannot be understood, or calls a function as it cannot be called.";
    InvalidAttributes "invalid_attributes" Caller 400 Corrected:
        "The schema cannot be understood, or the data that is there does not allow the change.";
    InvalidTransaction "invalid_transaction" Caller 400 Corrected:
        "The transaction cannot be understood, or a value does not have its attribute's type.";
    TransactionConflict "transaction_conflict" Caller 409 Corrected:
        "What the transaction says of an entity does not agree with what is there. Nothing of it was done.";
    MissingCapability "missing_capability" Caller 400 No:
        "The call must ask something that this client has not declared it can answer.";
    NotText "not_text" Caller 422 No pdpp "field_not_text":
        "A text window was asked of something that is not UTF-8 text.";
    NotJson "not_json" Caller 422 No:
        "A JSON path was asked of something that is not JSON.";
    InvalidSetting "invalid_setting" Caller 400 Corrected:
        "A setting has a value of the wrong type or out of range.";
    UnknownSetting "unknown_setting" Caller 400 Corrected:
        "A settings file or variable names a setting that does not exist.";
    UntrustedProject "untrusted_project" Caller 403 Corrected:
        "A project file asks for something that needs the user's approval first.";
    // permission
    AuthenticationError "authentication_error" Auth 401 Corrected:
        "No credential, or one that is not valid.";
    GrantExpired "grant_expired" Auth 403 No:
        "The credential was valid once; its time is over.";
    GrantRevoked "grant_revoked" Auth 403 No:
        "The owner took the grant back.";
    GrantInvalid "grant_invalid" Auth 403 No:
        "The grant on record cannot be used; the owner has to give a new one.";
    PermissionError "permission_error" Auth 403 No:
        "This kind of token may not do this.";
    GrantConsumed "grant_consumed" Auth 403 No:
        "The grant was for one use, and that was made.";
    PackageRevoked "package_revoked" Auth 403 No:
        "None of the grants that were given together holds any more.";
    InvalidClient "invalid_client" Auth 401 Corrected:
        "No application is known by this id, or it did not prove who it is.";
    UnauthorizedClient "unauthorized_client" Auth 400 No:
        "The application did not register for this.";
    InvalidClientMetadata "invalid_client_metadata" Caller 400 Corrected:
        "What the application says of itself cannot be taken in.";
    InvalidRedirectUri "invalid_redirect_uri" Caller 400 Corrected:
        "The address to go back to is not exactly one of those that the application registered.";
    InvalidAuthorizationDetails "invalid_authorization_details" Caller 400 Corrected:
        "What is asked for is not in the form that it must have, or is not there.";
    InvalidGrant "invalid_grant" Auth 400 No:
        "The code, refresh token or polling code is not valid, was used, or is somebody else's.";
    InvalidTarget "invalid_target" Caller 400 Corrected:
        "The resource that is named is not served here.";
    UnsupportedGrantType "unsupported_grant_type" Caller 400 Corrected:
        "Tokens are not given in this way.";
    UnsupportedResponseType "unsupported_response_type" Caller 400 Corrected:
        "Only codes are given in answer.";
    AuthorizationPending "authorization_pending" Busy 429 Later:
        "The owner has not decided yet.";
    SlowDown "slow_down" Limit 429 Later:
        "This is asked too often.";
    AccessDenied "access_denied" Auth 403 No:
        "The owner said no.";
    ExpiredToken "expired_token" Auth 400 No:
        "The owner did not decide in time.";
    ApprovalConflict "approval_conflict" Caller 409 No:
        "It was decided already.";
    OwnerSessionRequired "owner_session_required" Auth 401 Corrected:
        "The owner has to sign in first.";
    MisdirectedRequest "misdirected_request" Caller 421 No:
        "This server is not known by the name that the request came to.";
    GrantStreamNotAllowed "grant_stream_not_allowed" Auth 403 Corrected:
        "The stream is not in the grant.";
    FieldNotGranted "field_not_granted" Auth 403 Corrected:
        "The field is declared, and is not in the grant.";
    InsufficientScope "insufficient_scope" Auth 403 Corrected:
        "What is to be read along lies in a stream that is not in the grant.";
    WritesDisabled "writes_disabled" Auth 403 No pdpp "permission_error" datalevin ":writes-disabled":
        "The call would write, and the caller's permit only reads.";
    // absence
    NotFound "not_found" Absent 404 Corrected:
        "Nothing the caller may see has this name or handle.";
    ConnectionNotFound "connection_not_found" Absent 404 Corrected:
        "No connection the caller may see has this id.";
    ConnectorInstanceNotFound "connector_instance_not_found" Absent 404 Corrected:
        "No connection to write to has this id.";
    StreamNotDeclared "stream_not_declared" Absent 404 Corrected:
        "The source declares no stream of this name.";
    BlobNotFound "blob_not_found" Absent 404 Corrected:
        "No record that the caller may see refers to this blob.";
    CursorExpired "cursor_expired" Absent 410 Corrected:
        "The history of changes does not reach back to the bookmark.";
    UnknownTool "unknown_tool" Absent 404 Corrected datalevin ":unknown-tool":
        "No tool the caller may use has this name.";
    UnknownServer "unknown_server" Absent 404 Corrected:
        "No server the caller may use has this name.";
    UnknownTask "unknown_task" Absent 404 Corrected:
        "No task of the caller's has this id.";
    UnknownDatabase "unknown_database" Absent 404 Corrected datalevin ":unknown-database":
        "No open database has this id.";
    UnknownKv "unknown_kv" Absent 404 Corrected datalevin ":unknown-kv":
        "No open key-value store has this id.";
    UnknownSearchIndex "unknown_search_index" Absent 404 Corrected datalevin ":unknown-search-index":
        "No open search index has this id.";
    UnknownVectorIndex "unknown_vector_index" Absent 404 Corrected datalevin ":unknown-vector-index":
        "No open vector index has this id.";
    QueryNotFound "query_not_found" Absent 404 Corrected:
        "The text searched for does not occur.";
    PathNotFound "path_not_found" Absent 404 Corrected pdpp "field_not_found":
        "The JSON path leads to nothing in this document.";
    // limits
    ResultTooLarge "result_too_large" Limit 413 Corrected pdpp "resource_limit" datalevin ":result-too-large":
        "The result is larger than may be kept for one caller.";
    QueryTooLarge "query_too_large" Limit 413 Corrected:
        "The query needs more memory than one query may have.";
    BudgetTooSmall "budget_too_small" Limit 400 Corrected datalevin ":result-too-large":
        "Not even the smallest form of the reply fits the byte budget.";
    StoreFull "store_full" Limit 507 Later:
        "The disk has no room for the write; nothing of it was kept.";
    // weather
    DeadlineExceeded "deadline_exceeded" Busy 504 Later:
        "The call did not finish before its deadline.";
    CallCancelled "call_cancelled" Caller 409 No:
        "The call was cancelled on request. What it had done by then, it may have done.";
    WorkPending "work_pending" Busy 503 Later:
        "Calls or tasks are under way that this would end.";
    StoreBusy "store_busy" Busy 503 Later:
        "The store could not be opened or locked just now.";
    IngestBatchStorageError "ingest_batch_storage_error" Busy 503 Later:
        "The store could not take the batch; send all of it again.";
    IndexBuilding "index_building" Busy 503 Later:
        "The field was declared lately, and what it is found by is still being made.";
    SourceFailed "source_failed" Upstream 502 Later:
        "The source failed, or gave something that cannot be used.";
    SourceRefused "source_refused" Upstream 502 Corrected:
        "The server behind the source refused the request; the message has its own words.";
    SourceUnauthorized "source_unauthorized" Upstream 502 Corrected:
        "The server behind the source wants a credential that it was not given.";
    SourceUnavailable "source_unavailable" Upstream 503 Later:
        "The server behind the source could not be started or reached; nothing was asked of it.";
    OutcomeUnknown "outcome_unknown" Upstream 502 No:
        "The call was sent and its answer was lost: whether it was done is not known. It was not repeated.";
    InvalidSchema "invalid_schema" Upstream 502 No:
        "A tool's published schema cannot be used: not valid, too large, or too costly to check.";
    // ourselves
    StoreFormat "store_format" Broken 500 No:
        "The data folder was written by a version of this program that this one cannot read.";
    StoreBroken "store_broken" Broken 500 No:
        "The store failed in a way that trying again will not mend.";
    Internal "internal" Broken 500 No pdpp "api_error":
        "A bug of ours.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_snake_case_and_never_shared() {
        let mut seen = HashSet::new();
        for code in Code::ALL {
            let name = code.name();
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            assert!(seen.insert(name), "{name} stands twice");
            assert!(code.meaning().ends_with('.'), "{name} has no sentence");
        }
    }

    #[test]
    fn a_face_that_prescribes_a_word_gets_that_word() {
        assert_eq!(Code::StaleCursor.name_on(Face::Pdpp), "stale_cursor");
        assert_eq!(
            Code::UnknownDatabase.name_on(Face::Datalevin),
            ":unknown-database"
        );
        assert_eq!(Code::NotText.name_on(Face::Pdpp), "field_not_text");
        assert_eq!(Code::StoreFull.name_on(Face::Datalevin), ":tool-error");
    }

    #[test]
    fn statuses_agree_with_classes() {
        for code in Code::ALL {
            let status = code.http_status();
            let fits = match code.class() {
                Class::Caller | Class::Auth => (400..500).contains(&status),
                Class::Absent => matches!(status, 404 | 410),
                Class::Limit => matches!(status, 400..=499 | 507),
                Class::Busy => matches!(status, 429 | 503 | 504),
                Class::Upstream => matches!(status, 502..=504),
                Class::Broken => status == 500,
            };
            assert!(fits, "{} is {:?} with {status}", code.name(), code.class());
        }
    }
}
