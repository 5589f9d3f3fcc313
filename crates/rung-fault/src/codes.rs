//! The table of error codes: one row per code. Every face reads the same row.

/// The party or system that has to act for the call to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The request is wrong; the caller can correct it.
    Caller,
    /// The caller may not do this.
    Auth,
    /// The named thing does not exist, or the caller may not see it.
    Absent,
    /// A limit was reached.
    Limit,
    /// The request is valid but cannot be served now.
    Busy,
    /// A system that Rung depends on failed.
    Upstream,
    /// Rung itself or its storage failed.
    Broken,
}

impl Class {
    /// Returns the name of the class, as it appears in the reference.
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

/// Advice on repeating the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// The call will fail the same way.
    No,
    /// Repeat the call after correcting what the message names.
    Corrected,
    /// Repeat the unchanged call later.
    Later,
}

impl Retry {
    /// Returns the name of the advice, as it appears on the wire.
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
    /// Rung's own tools.
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

            /// Returns the code's name on Rung's own face.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the class: who has to act.
            pub fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class,)* }
            }

            /// Returns the status of an HTTP reply that carries this code.
            pub fn http_status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Returns the retry advice.
            pub fn retry(self) -> Retry {
                match self { $(Self::$variant => Retry::$retry,)* }
            }

            /// Returns one sentence that says when the code occurs.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }

            /// Returns the code's name on `face`.
            pub fn name_on(self, face: Face) -> &'static str {
                match (face, self) {
                    $($((Face::Pdpp, Self::$variant) => $pdpp,)?)*
                    $($((Face::Datalevin, Self::$variant) => $datalevin,)?)*
                    // Datalevin's code for every error that its contract does not name.
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
        "The request has an unknown parameter, or a parameter with an invalid value.";
    InvalidSort "invalid_sort" Caller 400 Corrected:
        "The requested order is not supported: a stream is ordered by its cursor field only, in one direction.";
    InvalidExpand "invalid_expand" Caller 400 Corrected:
        "The relation cannot be expanded: it is not declared for the stream, is nested, or exceeds the allowed limit.";
    InvalidFilter "invalid_filter" Caller 400 Corrected:
        "The filter is not valid: it must be a non-empty object of fields, each with a value or with bounds.";
    InvalidRecordIdentity "invalid_record_identity" Caller 400 Corrected:
        "The text is not a record ID: a part is missing or has an invalid character.";
    ConflictingConnection "conflicting_connection_id" Caller 400 Corrected:
        "The ID and the argument name different connections.";
    InvalidFieldWindowSelector "invalid_field_window_selector" Caller 400 Corrected:
        "The record, or the part of its field, is selected in two ways or not at all.";
    UnknownField "unknown_field" Caller 400 Corrected:
        "The stream declares no field of this name.";
    UnsupportedVersion "unsupported_version" Caller 400 Corrected:
        "The PDPP-Version header names a version that this server does not support.";
    AmbiguousConnection "ambiguous_connection" Caller 409 Corrected:
        "Several connections match; the request must name one.";
    AmbiguousSchemaDetail "ambiguous_schema_detail" Caller 409 Corrected:
        "Several sources have a stream of this name; the request must name one.";
    ConnectorInstanceClosed "connector_instance_not_writable" Caller 409 Corrected:
        "The connection is paused or revoked and accepts no records.";
    InvalidCursor "invalid_cursor" Caller 400 Corrected:
        "The cursor was not issued for this read: malformed, forged, or made for another subject, field or grant.";
    StaleCursor "stale_cursor" Caller 409 Corrected:
        "The cursor is valid, but its text has changed since.";
    InvalidHandle "invalid_handle" Caller 400 Corrected datalevin ":invalid-handle":
        "The text does not have the form of a handle.";
    InvalidWindow "invalid_window" Caller 400 Corrected:
        "The bounds of the window are out of range, or the request selects a window in several ways.";
    InvalidPath "invalid_path" Caller 400 Corrected pdpp "invalid_field_path":
        "The JSON path does not parse, or uses an unsupported operator.";
    InvalidPattern "invalid_pattern" Caller 400 Corrected:
        "The regular expression does not compile within its size limit.";
    InvalidEdn "invalid_edn" Caller 400 Corrected datalevin ":invalid-request":
        "The text is not EDN.";
    InvalidQuery "invalid_query" Caller 400 Corrected:
        "The query or pull pattern is not valid, or calls a function with wrong arguments.";
    InvalidAttributes "invalid_attributes" Caller 400 Corrected:
        "The schema is not valid, or the existing data does not allow the change.";
    InvalidTransaction "invalid_transaction" Caller 400 Corrected:
        "The transaction is not valid, or a value does not have the type of its attribute.";
    TransactionConflict "transaction_conflict" Caller 409 Corrected:
        "The transaction contradicts the existing data. No part of it was applied.";
    MissingCapability "missing_capability" Caller 400 No:
        "The call needs a capability that the client did not declare.";
    NotText "not_text" Caller 422 No pdpp "field_not_text":
        "The request reads a text window of data that is not UTF-8 text.";
    NotJson "not_json" Caller 422 No:
        "The request reads a JSON path of data that is not JSON.";
    InvalidSetting "invalid_setting" Caller 400 Corrected:
        "A setting has a value of the wrong type or out of range.";
    UnknownSetting "unknown_setting" Caller 400 Corrected:
        "A settings file or variable names a setting that does not exist.";
    UntrustedProject "untrusted_project" Caller 403 Corrected:
        "A project file has a value that the user must approve first.";
    // permission
    AuthenticationError "authentication_error" Auth 401 Corrected:
        "The credential is missing or not valid.";
    GrantExpired "grant_expired" Auth 403 No:
        "The credential has expired.";
    GrantRevoked "grant_revoked" Auth 403 No:
        "The owner revoked the grant.";
    GrantInvalid "grant_invalid" Auth 403 No:
        "The stored grant cannot be used; the owner must issue a new one.";
    PermissionError "permission_error" Auth 403 No:
        "This kind of token does not permit the operation.";
    GrantConsumed "grant_consumed" Auth 403 No:
        "The grant was for one use and has been used.";
    PackageRevoked "package_revoked" Auth 403 No:
        "All grants of the package are revoked or expired.";
    InvalidClient "invalid_client" Auth 401 Corrected:
        "The client ID is unknown, or the client failed to authenticate.";
    UnauthorizedClient "unauthorized_client" Auth 400 No:
        "The client is not registered for this operation.";
    InvalidClientMetadata "invalid_client_metadata" Caller 400 Corrected:
        "The client metadata is not valid.";
    InvalidRedirectUri "invalid_redirect_uri" Caller 400 Corrected:
        "The redirect URI is not exactly one of those that the client registered.";
    InvalidAuthorizationDetails "invalid_authorization_details" Caller 400 Corrected:
        "The authorization details are malformed, or name something that does not exist.";
    InvalidGrant "invalid_grant" Auth 400 No:
        "The authorization code, refresh token or device code is not valid, was used, or belongs to another client.";
    InvalidTarget "invalid_target" Caller 400 Corrected:
        "This server does not serve the named resource.";
    UnsupportedGrantType "unsupported_grant_type" Caller 400 Corrected:
        "The token endpoint does not support this grant type.";
    UnsupportedResponseType "unsupported_response_type" Caller 400 Corrected:
        "The authorization endpoint supports only the response type `code`.";
    AuthorizationPending "authorization_pending" Busy 429 Later:
        "The owner has not decided yet.";
    SlowDown "slow_down" Limit 429 Later:
        "The client sends requests too often.";
    AccessDenied "access_denied" Auth 403 No:
        "The owner denied the request.";
    ExpiredToken "expired_token" Auth 400 No:
        "The owner did not decide in time.";
    ApprovalConflict "approval_conflict" Caller 409 No:
        "The owner has decided the request already.";
    OwnerSessionRequired "owner_session_required" Auth 401 Corrected:
        "The owner must sign in first.";
    MisdirectedRequest "misdirected_request" Caller 421 No:
        "The request names a host that this server does not serve.";
    GrantStreamNotAllowed "grant_stream_not_allowed" Auth 403 Corrected:
        "The stream is not in the grant.";
    FieldNotGranted "field_not_granted" Auth 403 Corrected:
        "The field is declared but not in the grant.";
    InsufficientScope "insufficient_scope" Auth 403 Corrected:
        "The expanded relation is in a stream that is not in the grant.";
    WritesDisabled "writes_disabled" Auth 403 No pdpp "permission_error" datalevin ":writes-disabled":
        "The call writes, and the caller's permit is read-only.";
    // absence
    NotFound "not_found" Absent 404 Corrected:
        "Nothing that the caller may see has this name or handle.";
    ConnectionNotFound "connection_not_found" Absent 404 Corrected:
        "No connection that the caller may see has this ID.";
    ConnectorInstanceNotFound "connector_instance_not_found" Absent 404 Corrected:
        "No writable connection has this ID.";
    StreamNotDeclared "stream_not_declared" Absent 404 Corrected:
        "The source declares no stream of this name.";
    BlobNotFound "blob_not_found" Absent 404 Corrected:
        "No record that the caller may see refers to this blob.";
    CursorExpired "cursor_expired" Absent 410 Corrected:
        "The history of changes does not reach back to the cursor.";
    UnknownTool "unknown_tool" Absent 404 Corrected datalevin ":unknown-tool":
        "No tool that the caller may use has this name.";
    UnknownServer "unknown_server" Absent 404 Corrected:
        "No server that the caller may use has this name.";
    UnknownTask "unknown_task" Absent 404 Corrected:
        "The caller has no task with this ID.";
    UnknownDatabase "unknown_database" Absent 404 Corrected datalevin ":unknown-database":
        "No open database has this ID.";
    UnknownKv "unknown_kv" Absent 404 Corrected datalevin ":unknown-kv":
        "No open key-value store has this ID.";
    UnknownSearchIndex "unknown_search_index" Absent 404 Corrected datalevin ":unknown-search-index":
        "No open search index has this ID.";
    UnknownVectorIndex "unknown_vector_index" Absent 404 Corrected datalevin ":unknown-vector-index":
        "No open vector index has this ID.";
    QueryNotFound "query_not_found" Absent 404 Corrected:
        "The text searched for does not occur.";
    PathNotFound "path_not_found" Absent 404 Corrected pdpp "field_not_found":
        "The document has nothing at the JSON path.";
    // limits
    ResultTooLarge "result_too_large" Limit 413 Corrected pdpp "resource_limit" datalevin ":result-too-large":
        "The result is larger than the store may hold for one caller.";
    QueryTooLarge "query_too_large" Limit 413 Corrected:
        "The query needs more memory than one query may use.";
    BudgetTooSmall "budget_too_small" Limit 400 Corrected datalevin ":result-too-large":
        "Not even the smallest form of the reply fits the byte budget.";
    StoreFull "store_full" Limit 507 Later:
        "The disk has no space for the write; no part of it was stored.";
    // temporary
    DeadlineExceeded "deadline_exceeded" Busy 504 Later:
        "The call did not finish before its deadline.";
    CallCancelled "call_cancelled" Caller 409 No:
        "The call was cancelled on request. Its effects until then may remain.";
    WorkPending "work_pending" Busy 503 Later:
        "The operation would end calls or tasks that are still running.";
    StoreBusy "store_busy" Busy 503 Later:
        "The store cannot be opened or locked at the moment.";
    IngestBatchStorageError "ingest_batch_storage_error" Busy 503 Later:
        "The store could not write the batch; send the whole batch again.";
    IndexBuilding "index_building" Busy 503 Later:
        "The field was declared recently, and its index is still being built.";
    SourceFailed "source_failed" Upstream 502 Later:
        "The source failed or returned an invalid response.";
    SourceRefused "source_refused" Upstream 502 Corrected:
        "The server behind the source rejected the request; the message quotes its error.";
    SourceUnauthorized "source_unauthorized" Upstream 502 Corrected:
        "The server behind the source requires a credential that it did not receive.";
    SourceUnavailable "source_unavailable" Upstream 503 Later:
        "The server behind the source could not be started or reached; the request was not sent.";
    OutcomeUnknown "outcome_unknown" Upstream 502 No:
        "The call was sent and its response was lost: its outcome is unknown. It was not repeated.";
    InvalidSchema "invalid_schema" Upstream 502 No:
        "A tool's published schema cannot be used: not valid, too large, or too costly to check.";
    // internal
    StoreFormat "store_format" Broken 500 No:
        "The data folder was written by a version of this program that this one cannot read.";
    StoreBroken "store_broken" Broken 500 No:
        "The store failed, and a retry does not help.";
    Internal "internal" Broken 500 No pdpp "api_error":
        "A bug in Rung.";
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
