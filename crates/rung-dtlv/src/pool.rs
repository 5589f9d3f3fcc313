//! A few connections that are used in turn.

use parking_lot::{Condvar, Mutex};

use crate::Result;
use crate::connection::{Connection, Deadline};

/// Connections that are open, those in use included.
#[derive(Debug)]
pub(crate) struct Pool {
    max: usize,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    idle: Vec<Member>,
}

/// A connection, and which login it belongs to.
#[derive(Debug)]
pub(crate) struct Member {
    pub connection: Connection,
    pub login: u64,
}

impl Pool {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// A connection of this login that nobody uses, or one that `open` makes. Waits where there are as many as there may be.
    pub(crate) fn lease(
        &self,
        login: Option<u64>,
        deadline: &Deadline,
        open: impl FnOnce() -> Result<Member>,
    ) -> Result<Lease<'_>> {
        let mut state = self.state.lock();
        loop {
            while let Some(member) = state.idle.pop() {
                if Some(member.login) == login && member.connection.is_quiet() {
                    return Ok(Lease::of(self, member));
                }
                state.open -= 1;
            }
            if state.open < self.max {
                break;
            }
            let next = deadline.next_look()?;
            self.freed.wait_until(&mut state, next);
        }
        state.open += 1;
        drop(state);
        // Gives the place back where nothing comes of it.
        let mut lease = Lease {
            pool: self,
            member: None,
            sound: false,
        };
        lease.member = Some(open()?);
        Ok(lease)
    }

    /// Closes those that nobody uses, and gives one of them for a last word.
    pub(crate) fn clear(&self) -> Option<Member> {
        let mut state = self.state.lock();
        let mut idle = std::mem::take(&mut state.idle);
        state.open -= idle.len();
        drop(state);
        self.freed.notify_all();
        idle.pop()
    }
}

/// A connection that is in use. It goes back only if it was left as it was found.
#[derive(Debug)]
pub(crate) struct Lease<'p> {
    pool: &'p Pool,
    member: Option<Member>,
    sound: bool,
}

impl<'p> Lease<'p> {
    fn of(pool: &'p Pool, member: Member) -> Self {
        Self {
            pool,
            member: Some(member),
            sound: false,
        }
    }

    pub(crate) fn member(&mut self) -> &mut Member {
        let member = self.member.as_mut();
        member.expect("a lease is given out with its connection and keeps it until it ends")
    }

    /// Everything that was asked on it is answered.
    pub(crate) fn keep(mut self) {
        self.sound = true;
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        match self.member.take() {
            Some(member) if self.sound => state.idle.push(member),
            _ => state.open -= 1,
        }
        drop(state);
        self.pool.freed.notify_one();
    }
}
