//! Applications whose id is an address: what they are is read there.
//!
//! Whoever asks chooses the address, so nothing is fetched that only this machine or its network reaches: the name is
//! resolved here, every address of it must be one of the public internet, and the connection is made to that one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Client, Url, redirect};
use rung_fault::Code;
use rung_records::Error;
use rung_records::authority::ClientCard;
use serde_json::Value;

/// Bytes of a document.
const MAX_BYTES: usize = 64 * 1024;
/// How long it may take to be read.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it is believed.
const KEPT: Duration = Duration::from_mins(5);
/// Documents that are remembered.
const MAX_KEPT: usize = 256;

/// Documents that are being read at once.
const MAX_READING: usize = 8;
/// How long it is not asked again for what could not be read.
const FAILED: Duration = Duration::from_secs(30);

/// Documents that were read, and those that could not be.
#[derive(Default)]
pub(crate) struct Documents {
    known: Mutex<HashMap<String, (Instant, Option<ClientCard>)>>,
    reading: AtomicUsize,
}

impl Documents {
    /// The application whose id is this address.
    pub(crate) fn client(&self, id: &str) -> Result<ClientCard, Error> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match lock().get(id) {
            Some((at, Some(card))) if at.elapsed() < KEPT => return Ok(card.clone()),
            Some((at, None)) if at.elapsed() < FAILED => {
                return Err(wrong("the document there could not be read a moment ago"));
            }
            _ => {}
        }
        let _one = Reading::begin(&self.reading)?;
        let card = Self::read(id);
        let mut known = lock();
        known.retain(|_, (at, _)| at.elapsed() < KEPT);
        if known.len() < MAX_KEPT {
            known.insert(id.to_owned(), (Instant::now(), card.as_ref().ok().cloned()));
        }
        card
    }

    fn read(id: &str) -> Result<ClientCard, Error> {
        let url = address(id)?;
        let document = Self::fetch(url)?;
        if document["client_id"].as_str() != Some(id) {
            return Err(wrong("the document there is of another client_id"));
        }
        ClientCard::read(id.to_owned(), &document)
    }

    /// What lies at an address of the public internet.
    fn fetch(url: Url) -> Result<Value, Error> {
        let unreachable = |why: &str| wrong(format!("the document there cannot be read: {why}"));
        let host = url.host_str().unwrap_or_default().to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let found = (bare, port).to_socket_addrs();
        let found: Vec<SocketAddr> = found.map_err(|_| unreachable("no such host"))?.collect();
        let public = |at: &SocketAddr| is_public(at.ip());
        let Some(first) = found.first().filter(|_| found.iter().all(public)) else {
            return Err(unreachable("it is not on the public internet"));
        };
        let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(PATIENCE)
            .no_proxy()
            .resolve(&host, *first)
            .build()
            .map_err(|_| unreachable("no TLS"))?;
        let reading = async move {
            let request = client.get(url).header("Accept", "application/json");
            let mut response = request.send().await.map_err(|_| unreachable("no answer"))?;
            if !response.status().is_success() {
                return Err(unreachable("it is not there"));
            }
            let mut body = Vec::new();
            while let Some(piece) = response
                .chunk()
                .await
                .map_err(|_| unreachable("it broke off"))?
            {
                body.extend_from_slice(&piece);
                if body.len() > MAX_BYTES {
                    return Err(unreachable("it is too long"));
                }
            }
            serde_json::from_slice(&body).map_err(|_| unreachable("it is no JSON"))
        };
        tokio::runtime::Handle::current().block_on(reading)
    }
}

/// One of the few that may be read at once: whoever asks chooses how slow it is.
struct Reading<'a>(&'a AtomicUsize);

impl<'a> Reading<'a> {
    fn begin(count: &'a AtomicUsize) -> Result<Self, Error> {
        let reading = Self(count);
        if count.fetch_add(1, Ordering::Relaxed) < MAX_READING {
            return Ok(reading);
        }
        let why = "too many applications are being looked up: try again in a moment";
        Err(Error::refused(Code::SlowDown, "client_id", why))
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn wrong(why: impl Into<String>) -> Error {
    Error::refused(Code::InvalidClient, "client_id", why)
}

fn address(id: &str) -> Result<Url, Error> {
    let url = Url::parse(id).map_err(|_| wrong("client_id is no address"))?;
    let sound = url.scheme() == "https"
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none()
        && url.port().is_none()
        && url.path().len() > 1
        && !url.path().split('/').any(|part| matches!(part, "." | ".."))
        && url.as_str() == id
        && id.len() <= 2_048;
    if sound {
        return Ok(url);
    }
    Err(wrong(
        "a client_id that is an address is https, with a path and nothing else",
    ))
}

/// Whether an address is one of the public internet.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => {
            if let Some(ip) = ip.to_ipv4_mapped().or_else(|| embedded(ip)) {
                return is_public_v4(ip);
            }
            let first = ip.segments()[0];
            // Global unicast, without what is for documentation.
            (0x2000..0x4000).contains(&first) && !(first == 0x2001 && ip.segments()[1] == 0xdb8)
        }
    }
}

/// An older address inside a newer one: 6to4 and NAT64.
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = ip.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0x2002, high, low, ..] | [0x64, 0xff9b, .., high, low] => Some(of(high, low)),
        _ => None,
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    !(ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_broadcast()
        || ip.is_documentation()
        || ip.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b))
        || (a == 192 && b == 0 && c == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_fetched_that_is_not_public() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001:db8::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "93.184.216.34",
            "2606:4700::1111",
            "64:ff9b::101:101",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn an_address_of_an_application_is_plain() {
        assert!(address("https://app.example/client.json").is_ok());
        for bad in [
            "http://app.example/client.json",
            "https://app.example/",
            "https://app.example",
            "https://user@app.example/c",
            "https://app.example/c#f",
            "https://app.example/a/../c",
            "HTTPS://app.example/c",
            "https://app.example:22/c",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
        let refused = Documents::default()
            .client("https://127.0.0.1/c")
            .unwrap_err();
        assert!(refused.to_string().contains("public"), "{refused}");
    }
}
