//! Rate limit per caller. A caller starts with a minute's worth of requests, which refills over time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rung_auth::Permit;

/// Callers that are counted at once.
const MAX_CALLERS: usize = 10_000;
const MINUTE: Duration = Duration::from_mins(1);

/// Identifies a caller, by its token or else by its address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RateLimitKey {
    Token(String, String),
    Address(IpAddr),
}

pub(super) struct RateLimiter {
    /// Part of the minute that one request uses up.
    request_cost: Duration,
    /// For each caller, the time at which its minute is refilled.
    refilled_at: Mutex<HashMap<RateLimitKey, Instant>>,
}

impl RateLimiter {
    /// Creates a limit of so many requests per minute; `None` for 0, which sets no limit.
    pub(super) fn new(a_minute: u32) -> Option<Self> {
        (a_minute > 0).then(|| Self {
            request_cost: MINUTE / a_minute,
            refilled_at: Mutex::default(),
        })
    }

    /// Counts a request of the caller. If the limit is reached, returns the time to wait.
    pub(super) fn take(&self, permit: &Permit, peer: IpAddr) -> Result<(), Duration> {
        let caller = if permit.is_anonymous() {
            RateLimitKey::Address(peer.to_canonical())
        } else {
            let (caller, grant) = (permit.caller().as_str(), permit.grant().as_str());
            RateLimitKey::Token(caller.to_owned(), grant.to_owned())
        };
        self.take_at(caller, Instant::now())
    }

    fn take_at(&self, caller: RateLimitKey, now: Instant) -> Result<(), Duration> {
        let mut even = self.refilled_at.lock();
        if even.len() >= MAX_CALLERS && !even.contains_key(&caller) {
            even.retain(|_, even| *even > now);
        }
        // If all counted callers are active, a new one is not limited: a flooding caller is counted already.
        if even.len() >= MAX_CALLERS && !even.contains_key(&caller) {
            return Ok(());
        }
        let slot = even.entry(caller).or_insert(now);
        let then = (*slot).max(now) + self.request_cost;
        let over = then.saturating_duration_since(now + MINUTE);
        if !over.is_zero() {
            return Err(over);
        }
        *slot = then;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minutes_worth_and_then_as_it_grows_back() {
        let rate = RateLimiter::new(60).unwrap();
        let caller = |last: u8| RateLimitKey::Address(IpAddr::from([127, 0, 0, last]));
        let now = Instant::now();
        for _ in 0..60 {
            assert!(rate.take_at(caller(1), now).is_ok());
        }
        let wait = rate.take_at(caller(1), now).unwrap_err();
        assert_eq!(wait, Duration::from_secs(1));
        assert!(
            rate.take_at(caller(2), now).is_ok(),
            "others are not held up"
        );
        assert!(rate.take_at(caller(1), now + wait).is_ok());
        assert!(rate.take_at(caller(1), now + wait).is_err());
        assert!(RateLimiter::new(0).is_none());
    }
}
