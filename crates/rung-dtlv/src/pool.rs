//! A small connection pool.

use parking_lot::{Condvar, Mutex};

use crate::Result;
use crate::connection::{Deadline, DtlvConnection};

/// A pool of connections. Its limit includes those in use.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    max: usize,
    state: Mutex<PoolState>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    open: usize,
    idle: Vec<PooledConnection>,
}

/// A connection and the number of its login.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    pub connection: DtlvConnection,
    pub login: u64,
}

impl ConnectionPool {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Returns an idle connection of this login, or one that `open` creates. Waits while the pool is exhausted.
    pub(crate) fn lease(
        &self,
        login: Option<u64>,
        deadline: &Deadline,
        open: impl FnOnce() -> Result<PooledConnection>,
    ) -> Result<Lease<'_>> {
        let mut state = self.state.lock();
        loop {
            while let Some(member) = state.idle.pop() {
                if Some(member.login) == login && member.connection.is_idle() {
                    return Ok(Lease::new(self, member));
                }
                state.open -= 1;
            }
            if state.open < self.max {
                break;
            }
            let next = deadline.next_check()?;
            self.freed.wait_until(&mut state, next);
        }
        state.open += 1;
        drop(state);
        // Releases the slot if `open` fails.
        let mut lease = Lease {
            pool: self,
            pooled: None,
            reusable: false,
        };
        lease.pooled = Some(open()?);
        Ok(lease)
    }

    /// Closes the idle connections, and returns one of them to send `disconnect` on.
    pub(crate) fn close_idle(&self) -> Option<PooledConnection> {
        let mut state = self.state.lock();
        let mut idle = std::mem::take(&mut state.idle);
        state.open -= idle.len();
        drop(state);
        self.freed.notify_all();
        idle.pop()
    }
}

/// A connection in use. It returns to the pool only if marked as reusable.
#[derive(Debug)]
pub(crate) struct Lease<'p> {
    pool: &'p ConnectionPool,
    pooled: Option<PooledConnection>,
    reusable: bool,
}

impl<'p> Lease<'p> {
    fn new(pool: &'p ConnectionPool, member: PooledConnection) -> Self {
        Self {
            pool,
            pooled: Some(member),
            reusable: false,
        }
    }

    pub(crate) fn pooled(&mut self) -> &mut PooledConnection {
        let member = self.pooled.as_mut();
        member.expect("a lease is given out with its connection and keeps it until it ends")
    }

    /// Marks the connection as reusable: all its requests are answered.
    pub(crate) fn mark_reusable(mut self) {
        self.reusable = true;
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        match self.pooled.take() {
            Some(member) if self.reusable => state.idle.push(member),
            _ => state.open -= 1,
        }
        drop(state);
        self.pool.freed.notify_one();
    }
}
