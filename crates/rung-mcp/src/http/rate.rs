//! How often one caller may come. Each has a minute's worth to begin with, which grows back as time goes by.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rung_auth::Permit;

/// Callers that are remembered.
const MAX_CALLERS: usize = 10_000;
const MINUTE: Duration = Duration::from_mins(1);

/// Who comes: by the token, or else from where.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Caller {
    Token(String, String),
    Address(IpAddr),
}

/// How often callers come.
pub(super) struct Rate {
    /// How long one request takes of a minute.
    each: Duration,
    /// When each would have used nothing of their minute.
    even: Mutex<HashMap<Caller, Instant>>,
}

impl Rate {
    /// So many requests a minute; any number, where it is none.
    pub(super) fn new(a_minute: u32) -> Option<Self> {
        (a_minute > 0).then(|| Self {
            each: MINUTE / a_minute,
            even: Mutex::default(),
        })
    }

    /// Takes a request of somebody's; or says after how long they may come again.
    pub(super) fn take(&self, permit: &Permit, peer: IpAddr) -> Result<(), Duration> {
        let caller = if permit.is_anonymous() {
            Caller::Address(peer.to_canonical())
        } else {
            let (caller, grant) = (permit.caller().as_str(), permit.grant().as_str());
            Caller::Token(caller.to_owned(), grant.to_owned())
        };
        self.take_at(caller, Instant::now())
    }

    fn take_at(&self, caller: Caller, now: Instant) -> Result<(), Duration> {
        let mut even = self.even.lock();
        if even.len() >= MAX_CALLERS && !even.contains_key(&caller) {
            even.retain(|_, even| *even > now);
        }
        // Where all of them are still at it, a stranger is let in uncounted: whoever floods us is known already.
        if even.len() >= MAX_CALLERS && !even.contains_key(&caller) {
            return Ok(());
        }
        let slot = even.entry(caller).or_insert(now);
        let then = (*slot).max(now) + self.each;
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
        let rate = Rate::new(60).unwrap();
        let caller = |last: u8| Caller::Address(IpAddr::from([127, 0, 0, last]));
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
        assert!(Rate::new(0).is_none());
    }
}
