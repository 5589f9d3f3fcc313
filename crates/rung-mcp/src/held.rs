//! Runs that go on while their caller is asked, where the caller is asked by the end of its request.
//!
//! A modern client answers with its next request. What cannot be begun anew for that, such as a call that another server
//! is in the middle of, is held here meanwhile: the client carries a sealed name of the run, and whichever request comes
//! with it waits for the run's next question or its end. Held runs are few and short-lived, and end with the request
//! that waits for them; what one did by then, nobody knows, and whoever comes too late is told so.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use data_encoding::BASE32_NOPAD;
use parking_lot::Mutex;
use rung_fault::{Code, Fault};
use rung_tool::{Answers, Question};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::exchange::{End, Exchange, Line, Run};
use crate::refusal::{Refusal, Result};

/// How long somebody may think about a question.
const PATIENCE: Duration = Duration::from_mins(15);
/// Runs that are held at once. The one that has waited longest for its client makes room.
const MAX_HELD: usize = 1_000;

/// What a client carries of a run that is held for it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ticket {
    run: String,
    /// Which time it was asked. An earlier answer is no answer to a later question.
    round: u64,
}

/// What a run asks, and what it is answered.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    state: Mutex<State>,
    moved: Notify,
}

#[derive(Debug, Default)]
struct State {
    open: Vec<(String, Question)>,
    answers: Answers,
    /// Why nothing will be answered.
    refused: Option<Fault>,
    outcome: Option<Result<Vec<u8>>>,
    round: u64,
    /// Since when no request waits for the run.
    idle_since: Option<Instant>,
}

impl Desk {
    /// Waits until all of `questions` are answered. Dropped, it takes them back.
    pub(crate) async fn ask(&self, questions: Vec<(String, Question)>) -> Result<Answers, Fault> {
        let keys: Vec<String> = questions.iter().map(|(key, _)| key.clone()).collect();
        let asked = Asked { desk: self, keys };
        self.change(|state| state.open.extend(questions));
        loop {
            let moved = self.moved.notified();
            {
                let mut state = self.state.lock();
                if let Some(fault) = &state.refused {
                    return Err(fault.clone());
                }
                let answered = |key: &String| state.answers.contains_key(key);
                if asked.keys.iter().all(answered) {
                    let take = |key: &String| Some((key.clone(), state.answers.remove(key)?));
                    return Ok(asked.keys.iter().filter_map(take).collect());
                }
            }
            moved.await;
        }
    }

    /// Nothing that is asked will be answered.
    pub(crate) fn refuse(&self, fault: Fault) {
        self.change(|state| {
            state.open.clear();
            state.refused = Some(fault);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.moved.notify_waiters();
    }

    /// Waits until nobody will come back any more.
    async fn is_left(&self, shutdown: &CancellationToken) {
        loop {
            let moved = self.moved.notified();
            let idle_since = self.state.lock().idle_since;
            match idle_since {
                None => moved.await,
                Some(since) => tokio::select! {
                    () = moved => {}
                    () = tokio::time::sleep_until(since + PATIENCE) => return,
                    () = shutdown.cancelled() => return,
                },
            }
        }
    }
}

/// Questions under way. Dropped before they are answered, nobody is asked them any more.
struct Asked<'a> {
    desk: &'a Desk,
    keys: Vec<String>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.desk.change(|state| {
            state.open.retain(|(key, _)| !self.keys.contains(key));
            self.keys
                .iter()
                .for_each(|key| drop(state.answers.remove(key)));
        });
    }
}

/// A run that is held.
struct HeldRun {
    name: String,
    bound: [String; 2],
    exchange: Arc<Exchange>,
    desk: Arc<Desk>,
    stop: OnceLock<AbortHandle>,
}

/// The runs that are held.
#[derive(Default)]
pub(crate) struct Held(Mutex<HashMap<String, Arc<HeldRun>>>);

impl Held {
    /// Holds a run from now on, for the request that waits for it. Where there is no room, it is given back.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        client: &Client,
        exchange: &Arc<Exchange>,
        run: Run,
        shutdown: CancellationToken,
    ) -> Result<Waiting, (Fault, Run)> {
        let name = match self.room_for(client) {
            Ok(name) if !shutdown.is_cancelled() => name,
            Ok(_) => return Err((Fault::new(Code::SourceFailed, "the server stops"), run)),
            Err(fault) => return Err((fault, run)),
        };
        let held = Arc::new(HeldRun {
            name,
            bound: client.bound().map(str::to_owned),
            exchange: exchange.clone(),
            desk: exchange.desk(),
            stop: OnceLock::new(),
        });
        self.0.lock().insert(held.name.clone(), held.clone());
        let (runs, driven) = (self.clone(), held.clone());
        let driving = tokio::spawn(async move {
            let (exchange, desk) = (&driven.exchange, &driven.desk);
            let ended = async {
                let outcome = to_its_end(exchange, run).await;
                desk.change(|state| state.outcome = Some(outcome));
                // Whoever comes for it ends this.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = ended => {}
                () = desk.is_left(&shutdown) => runs.end(&driven),
            }
        });
        let _only_here = held.stop.set(driving.abort_handle());
        Ok(Waiting {
            runs: self.clone(),
            run: held,
            is_over: false,
        })
    }

    /// Makes room for one more, and names it.
    fn room_for(&self, client: &Client) -> Result<String, Fault> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)
            .map_err(|_| Fault::new(Code::Internal, "the system has no randomness to give"))?;
        let idlest = {
            let runs = self.0.lock();
            if runs.len() < MAX_HELD {
                return Ok(BASE32_NOPAD.encode(&bits));
            }
            let idle = runs.values().filter_map(|run| {
                let since = run.desk.state.lock().idle_since?;
                // Whoever has many makes room among their own.
                Some((run.bound != client.bound(), since, run.clone()))
            });
            idle.min_by_key(|(others, since, _)| (*others, *since))
        };
        let Some((_, _, idlest)) = idlest else {
            let why = format!("{MAX_HELD} calls wait for answers already");
            return Err(Fault::new(Code::SourceFailed, why));
        };
        self.end(&idlest);
        Ok(BASE32_NOPAD.encode(&bits))
    }

    /// Hands answers to the run that the client carries the ticket of, and waits for it from now on.
    pub(crate) fn resume(
        self: &Arc<Self>,
        ticket: &Ticket,
        answers: Answers,
        line: Line,
    ) -> Result<Waiting> {
        let run = self.0.lock().get(&ticket.run).cloned();
        let run = run.ok_or_else(gone)?;
        {
            let mut state = run.desk.state.lock();
            if state.round != ticket.round {
                return Err(refused("this was answered already, and the call went on"));
            }
            if state.idle_since.take().is_none() {
                return Err(refused("another request waits for this call already"));
            }
            for (key, answer) in answers {
                let asked = state.open.iter().position(|(open, _)| *open == key);
                // What is no answer was not answered.
                if let (Some(asked), true) = (asked, answer.is_object()) {
                    state.open.remove(asked);
                    state.answers.insert(key, answer);
                }
            }
        }
        run.exchange.speak_on(line);
        run.desk.moved.notify_waiters();
        Ok(Waiting {
            runs: self.clone(),
            run,
            is_over: false,
        })
    }

    fn end(&self, run: &HeldRun) {
        self.0.lock().remove(&run.name);
        if let Some(stop) = run.stop.get() {
            stop.abort();
        }
        // Whoever came back at this very moment waits for nothing.
        run.desk.change(|state| {
            state.outcome.get_or_insert_with(|| Err(gone()));
        });
    }
}

/// The refusal of a request that belongs to a run, but comes to nothing there.
fn refused(why: &str) -> Refusal {
    let hint = "look whether it was done, then make the call again without requestState";
    Refusal::params(why).with_data(json!({"code": "outcome_unknown", "hint": hint}))
}

fn gone() -> Refusal {
    refused("the call that asked is not held any more: what became of it is not known")
}

/// Drives a run that nothing but its end or its caller's can end.
async fn to_its_end(exchange: &Exchange, mut run: Run) -> Result<Vec<u8>> {
    loop {
        match exchange.drive(run).await {
            End::Done(outcome) => return outcome,
            // It is held.
            End::Holds(again) => run = again,
            End::Asks(_) | End::Detaches(_) => return Err(Refusal::bug()),
        }
    }
}

/// What a run wants of the request that waits for it.
pub(crate) enum Next {
    /// To have these answered by whoever comes back with the ticket.
    Ask(Vec<(String, Question)>, Ticket),
    /// Nothing: it is over.
    Over(Result<Vec<u8>>),
}

/// A request that waits for a run. Dropped before there is something to answer, it ends the run: its client has gone.
pub(crate) struct Waiting {
    runs: Arc<Held>,
    run: Arc<HeldRun>,
    is_over: bool,
}

impl Waiting {
    /// Waits until there is something to answer.
    pub(crate) async fn next(mut self) -> Next {
        let run = self.run.clone();
        loop {
            let moved = run.desk.moved.notified();
            {
                let mut state = run.desk.state.lock();
                if let Some(outcome) = state.outcome.take() {
                    // Dropping this clears it away.
                    return Next::Over(outcome);
                }
                if !state.open.is_empty() {
                    self.is_over = true;
                    state.round += 1;
                    state.idle_since = Some(Instant::now());
                    let ticket = Ticket {
                        run: run.name.clone(),
                        round: state.round,
                    };
                    let open = state.open.clone();
                    drop(state);
                    run.exchange.speak_on(Line::silent());
                    run.desk.moved.notify_waiters();
                    return Next::Ask(open, ticket);
                }
            }
            moved.await;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_over {
            self.runs.end(&self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use rung_auth::{Access, Permit};
    use rung_tool::Peer as _;

    use super::*;
    use crate::client::Capabilities;
    use crate::exchange::Opening;
    use crate::version::Version;

    fn client() -> Arc<Client> {
        Arc::new(Client {
            permit: Permit::local_user(Access::Read),
            version: Version::V2026_07_28,
            capabilities: Capabilities {
                roots: true,
                ..Capabilities::default()
            },
            log_level: None,
            session: None,
            conversation: None,
            headers: None,
        })
    }

    /// A run that asks and is held, for as long as the second of these can be had.
    async fn asking(
        runs: &Arc<Held>,
        client: &Arc<Client>,
        shutdown: &CancellationToken,
    ) -> (Ticket, Weak<()>) {
        let opening = Opening {
            progress_token: None,
            given: Answers::new(),
        };
        let exchange = Exchange::new(client.clone(), Line::silent().outlet, opening);
        exchange.hold();
        let life = Arc::new(());
        let (alive, asks) = (Arc::downgrade(&life), exchange.clone());
        let run: Run = Box::pin(async move {
            let asked = asks
                .ask(vec![("where".to_owned(), Question::roots())])
                .await;
            drop(life);
            Ok(json!(asked?).to_string().into_bytes())
        });
        let End::Holds(run) = exchange.drive(run).await else {
            panic!("it asks");
        };
        let adopted = runs.adopt(client, &exchange, run, shutdown.clone());
        let Ok(waiting) = adopted else {
            panic!("there is room");
        };
        let Next::Ask(_, ticket) = waiting.next().await else {
            panic!("it asks");
        };
        (ticket, alive)
    }

    async fn ends(alive: &Weak<()>) -> bool {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        alive.upgrade().is_none()
    }

    fn is_gone(runs: &Arc<Held>, ticket: &Ticket) -> bool {
        let resumed = runs.resume(ticket, Answers::new(), Line::silent());
        resumed.is_err_and(|refusal| refusal.body.message.contains("not held any more"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_nobody_comes_back_for_is_ended() {
        let (runs, client, shutdown) = (Arc::default(), client(), CancellationToken::new());
        let (ticket, alive) = asking(&runs, &client, &shutdown).await;
        tokio::time::sleep(PATIENCE * 9 / 10).await;
        assert!(!ends(&alive).await);
        tokio::time::sleep(PATIENCE / 5).await;
        assert!(ends(&alive).await && is_gone(&runs, &ticket));
    }

    #[tokio::test]
    async fn a_run_that_waits_for_its_client_ends_with_the_server() {
        let (runs, client, shutdown) = (Arc::default(), client(), CancellationToken::new());
        let (ticket, alive) = asking(&runs, &client, &shutdown).await;
        shutdown.cancel();
        assert!(ends(&alive).await && is_gone(&runs, &ticket));
    }

    #[tokio::test(start_paused = true)]
    async fn when_too_many_are_held_the_one_that_waits_longest_makes_room() {
        let (runs, client, shutdown) = (Arc::default(), client(), CancellationToken::new());
        let mut held = Vec::new();
        for _ in 0..=MAX_HELD {
            held.push(asking(&runs, &client, &shutdown).await);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(ends(&held[0].1).await && is_gone(&runs, &held[0].0));
        assert!(!ends(&held[1].1).await);
        assert_eq!(runs.0.lock().len(), MAX_HELD);
        let answers = Answers::from_iter([("where".to_owned(), json!({"roots": []}))]);
        let waiting = runs.resume(&held[1].0, answers, Line::silent()).unwrap();
        let Next::Over(outcome) = waiting.next().await else {
            panic!("it is answered");
        };
        assert_eq!(outcome.unwrap(), br#"{"where":{"roots":[]}}"#);
        assert_eq!(runs.0.lock().len(), MAX_HELD - 1);
    }
}
