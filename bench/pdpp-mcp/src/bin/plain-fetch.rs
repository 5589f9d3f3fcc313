//! Fetches a URL once per input line and prints the number of bytes received. The bytes are discarded.

use std::io::{BufRead as _, Write as _};

fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_default();
    let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = reqwest::Client::builder().tcp_nodelay(true).build()?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        line?;
        let bytes = runtime.block_on(async {
            let response = client.get(&url).bearer_auth("a-token-of-some-length").send().await?;
            response.bytes().await
        })?;
        writeln!(out, "{}", bytes.len())?;
        out.flush()?;
    }
    Ok(())
}
