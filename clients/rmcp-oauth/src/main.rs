//! OAuth client on the official Rust SDK: `rung-rmcp-oauth http://127.0.0.1:7663/mcp` prints the authorization URL, reads the
//! redirect URL from stdin, exchanges the code, refreshes the token, and calls a tool.

use anyhow::{Context as _, ensure};
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::{AuthClient, AuthorizationManager};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

const REDIRECT: &str = "http://127.0.0.1:9/callback";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
    let url = std::env::args().nth(1).context("the address of /mcp")?;
    let mut manager = AuthorizationManager::new(url.as_str()).await?;
    let found = manager.resolve_metadata().await?;
    ensure!(found.source.is_discovered(), "it is described");
    manager.set_metadata(found.metadata);
    let registered = manager.register_client("Rust SDK", REDIRECT, &["pdpp:read"]).await?;
    manager.configure_client(registered)?;
    println!("{}", manager.get_authorization_url(&["pdpp:read"]).await?);

    let mut back = String::new();
    std::io::stdin().read_line(&mut back)?;
    let callback = rmcp::transport::auth::AuthorizationCallback::from_redirect_url(back.trim())?;
    manager
        .exchange_code_for_token_with_issuer(&callback.code, &callback.csrf_token, callback.issuer.as_deref())
        .await?;
    let first = manager.get_access_token().await?;
    manager.refresh_token().await?;
    ensure!(manager.get_access_token().await? != first, "it is another one");

    let client = AuthClient::new(reqwest::Client::new(), manager);
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    let service = ().serve(StreamableHttpClientTransport::with_client(client, config)).await?;
    let tools = service.list_all_tools().await?;
    ensure!(tools.len() == 6, "{tools:?}");
    let schema = service.call_tool(CallToolRequestParams::new("schema")).await?;
    let said = schema.structured_content.context("it has structured content")?;
    ensure!(said["data"]["bearer"]["token_kind"] == "mcp_package", "{said}");
    ensure!(said["data"]["connector_count"] == 2, "{said}");
    service.cancel().await?;
    println!("passed");
    Ok(())
}
