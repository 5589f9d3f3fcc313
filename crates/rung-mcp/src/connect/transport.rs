//! The transport interface: stdio, Streamable HTTP, and HTTP with SSE (2024-11-05).

use std::sync::Arc;

use rung_tool::BoxFuture;

use super::error::TransportError;
use super::pending::{Delegate, RpcOutcome};
use crate::version::ProtocolVersion;

/// An encoded request.
pub(super) struct EncodedRequest<'a> {
    pub(super) id: u64,
    pub(super) method: &'a str,
    pub(super) message: Vec<u8>,
    /// The parameters in `message`, for transports that repeat parts of them in headers.
    pub(super) params: Option<&'a str>,
    /// Headers that mirror arguments.
    pub(super) headers: Vec<(String, String)>,
    /// Receives notifications and requests that arrive before the response.
    pub(super) delegate: Option<Arc<dyn Delegate>>,
}

/// A transport to one server.
pub(super) trait Transport: Send + Sync {
    /// Sends a request and waits for its response. Dropping the future ends the wait, and cancels the request where closing
    /// its stream does so.
    fn send_request<'a>(
        &'a self,
        sent: EncodedRequest<'a>,
    ) -> BoxFuture<'a, Result<RpcOutcome, TransportError>>;

    /// Sends a notification or a response.
    fn send_message(&self, message: Vec<u8>) -> BoxFuture<'_, Result<(), TransportError>>;

    /// Sets the negotiated version.
    fn set_version(&self, version: ProtocolVersion);

    /// Called after the handshake: opens the stream for messages that belong to no request.
    fn on_handshake_complete(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Returns true if requests are cancelled by `notifications/cancelled`.
    fn needs_cancel_notification(&self) -> bool {
        true
    }

    fn is_open(&self) -> bool;

    /// Returns the end of the server's stderr, if there is one.
    fn stderr_tail(&self) -> String {
        String::new()
    }

    /// Stops background reads. Called when the connection is dropped.
    fn release(&self) {}

    /// Closes the transport, gracefully if the server cooperates.
    fn close(&self) -> BoxFuture<'_, ()>;
}
