//! Addresses to listen on.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use rung_fault::{Code, Fault};

/// An IP address or a host name, and a port. The name is resolved when the listener is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenAddress(String);

/// What a valid address looks like.
pub(crate) const EXPECTED: &str = "a host and a port, such as 127.0.0.1:7663 or localhost:7663";

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |host: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
            // Digits and dots alone are an incomplete IP address.
            host.bytes().all(plain) && host.bytes().any(|b| b.is_ascii_alphabetic())
        };
        let valid = text.parse::<SocketAddr>().is_ok()
            || text
                .rsplit_once(':')
                .is_some_and(|(host, port)| is_name(host) && port.parse::<u16>().is_ok());
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("must be {EXPECTED}"))
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ListenAddress {
    /// Resolves the address. Returns at least one address; loopback addresses come first, and IPv4 before IPv6.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>, Fault> {
        let unresolved = |why: String| {
            Fault::new(
                Code::InvalidSetting,
                format!("cannot listen at {self}: the host name does not resolve: {why}"),
            )
            .with_hint("choose an IP address or a host name of this machine, such as localhost")
        };
        let found = self.0.to_socket_addrs();
        let found = found.map_err(|error| unresolved(error.to_string()))?;
        let mut all: Vec<SocketAddr> = found.collect();
        all.sort_by_key(|address| (!address.ip().is_loopback(), !address.is_ipv4()));
        if all.is_empty() {
            return Err(unresolved("it has no address".to_owned()));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_address_or_a_name_with_a_port() {
        for good in ["127.0.0.1:0", "[::1]:80", "localhost:7670", "a-b.example:1"] {
            assert_eq!(good.parse::<ListenAddress>().unwrap().to_string(), good);
        }
        for bad in [
            "7663",
            ":7663",
            "localhost",
            "localhost:",
            "localhost:65536",
            "127.0.0:80",
            "a b:80",
            "http://localhost:80",
            "::1:80",
        ] {
            assert!(bad.parse::<ListenAddress>().is_err(), "{bad}");
        }
    }
}
