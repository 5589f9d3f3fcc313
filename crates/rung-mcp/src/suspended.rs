//! Suspended calls: calls that continue after the client has answered, although a question ended the client's request.
//!
//! A modern client answers with its next request. A call that cannot run again from its start, such as one that a
//! downstream server is executing, is suspended here meanwhile: the client carries a sealed resume token, and the request
//! that returns it waits for the call's next question or its end. Suspended calls are few and short-lived, and end with
//! the request that waits for them. The outcome of a call that was ended is unknown, and a late request gets that error.

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

use crate::client::ClientContext;
use crate::protocol_error::{ProtocolError, Result};
use crate::request_context::{CallFuture, DriveOutcome, RequestContext, ResponseChannel};

/// Time limit for a client to return with answers.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(15);
/// Maximum number of suspended calls. At the limit, the one that has waited longest for its client is ended.
const MAX_HELD: usize = 1_000;

/// What a client carries of a suspended call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ResumeToken {
    run: String,
    /// Number of the round of questions. An answer to an earlier round is rejected.
    round: u64,
}

/// The questions of a suspended call, and their answers.
#[derive(Debug, Default)]
pub(crate) struct PendingQuestions {
    state: Mutex<QuestionState>,
    change_notify: Notify,
}

#[derive(Debug, Default)]
struct QuestionState {
    open: Vec<(String, Question)>,
    answers: Answers,
    /// The fault that all questions fail with.
    failure: Option<Fault>,
    outcome: Option<Result<Vec<u8>>>,
    round: u64,
    /// Time since which no request waits for the call.
    idle_since: Option<Instant>,
}

impl PendingQuestions {
    /// Waits until all of `questions` are answered. Dropping the future withdraws them.
    pub(crate) async fn ask(&self, questions: Vec<(String, Question)>) -> Result<Answers, Fault> {
        let keys: Vec<String> = questions.iter().map(|(key, _)| key.clone()).collect();
        let asked = OpenQuestions { desk: self, keys };
        self.change(|state| state.open.extend(questions));
        loop {
            let moved = self.change_notify.notified();
            {
                let mut state = self.state.lock();
                if let Some(fault) = &state.failure {
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

    /// Fails open and later questions with `fault`.
    pub(crate) fn refuse(&self, fault: Fault) {
        self.change(|state| {
            state.open.clear();
            state.failure = Some(fault);
        });
    }

    fn change(&self, change: impl FnOnce(&mut QuestionState)) {
        change(&mut self.state.lock());
        self.change_notify.notify_waiters();
    }

    /// Waits until no request waits for the call and the client is late or the server shuts down.
    async fn abandoned(&self, shutdown: &CancellationToken) {
        loop {
            let moved = self.change_notify.notified();
            let idle_since = self.state.lock().idle_since;
            match idle_since {
                None => moved.await,
                Some(since) => tokio::select! {
                    () = moved => {}
                    () = tokio::time::sleep_until(since + ANSWER_TIMEOUT) => return,
                    () = shutdown.cancelled() => return,
                },
            }
        }
    }
}

/// Guard of open questions. Dropping it withdraws those that are not answered.
struct OpenQuestions<'a> {
    desk: &'a PendingQuestions,
    keys: Vec<String>,
}

impl Drop for OpenQuestions<'_> {
    fn drop(&mut self) {
        self.desk.change(|state| {
            state.open.retain(|(key, _)| !self.keys.contains(key));
            self.keys
                .iter()
                .for_each(|key| drop(state.answers.remove(key)));
        });
    }
}

struct SuspendedCall {
    name: String,
    binding: [String; 2],
    context: Arc<RequestContext>,
    questions: Arc<PendingQuestions>,
    abort_handle: OnceLock<AbortHandle>,
}

#[derive(Default)]
pub(crate) struct SuspendedCalls(Mutex<HashMap<String, Arc<SuspendedCall>>>);

impl SuspendedCalls {
    /// Suspends a call, for the request that waits for it. Gives the call back if there is no room or the server is stopping.
    pub(crate) fn suspend(
        self: &Arc<Self>,
        client: &ClientContext,
        exchange: &Arc<RequestContext>,
        run: CallFuture,
        shutdown: CancellationToken,
    ) -> Result<SuspendedCallWaiter, (Fault, CallFuture)> {
        let name = match self.reserve_name(client) {
            Ok(name) if !shutdown.is_cancelled() => name,
            Ok(_) => {
                return Err((
                    Fault::new(Code::SourceFailed, "the server is stopping"),
                    run,
                ));
            }
            Err(fault) => return Err((fault, run)),
        };
        let held = Arc::new(SuspendedCall {
            name,
            binding: client.binding().map(str::to_owned),
            context: exchange.clone(),
            questions: exchange.pending_questions(),
            abort_handle: OnceLock::new(),
        });
        self.0.lock().insert(held.name.clone(), held.clone());
        let (runs, driven) = (self.clone(), held.clone());
        let driving = tokio::spawn(async move {
            let (exchange, desk) = (&driven.context, &driven.questions);
            let ended = async {
                let outcome = drive_to_completion(exchange, run).await;
                desk.change(|state| state.outcome = Some(outcome));
                // The request that takes the outcome ends this task.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = ended => {}
                () = desk.abandoned(&shutdown) => runs.end(&driven),
            }
        });
        let _only_here = held.abort_handle.set(driving.abort_handle());
        Ok(SuspendedCallWaiter {
            calls: self.clone(),
            call: held,
            is_done: false,
        })
    }

    /// Makes room for another call, and returns a name for it.
    fn reserve_name(&self, client: &ClientContext) -> Result<String, Fault> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)
            .map_err(|_| Fault::new(Code::Internal, "the system returned no random bytes"))?;
        let idlest = {
            let runs = self.0.lock();
            if runs.len() < MAX_HELD {
                return Ok(BASE32_NOPAD.encode(&bits));
            }
            let idle = runs.values().filter_map(|run| {
                let since = run.questions.state.lock().idle_since?;
                // A client's own calls are ended before those of others.
                Some((run.binding != client.binding(), since, run.clone()))
            });
            idle.min_by_key(|(others, since, _)| (*others, *since))
        };
        let Some((_, _, idlest)) = idlest else {
            let why = format!("{MAX_HELD} calls already wait for input");
            return Err(Fault::new(Code::SourceFailed, why));
        };
        self.end(&idlest);
        Ok(BASE32_NOPAD.encode(&bits))
    }

    /// Delivers answers to the call that `ticket` names, and waits for that call from now on.
    pub(crate) fn resume(
        self: &Arc<Self>,
        ticket: &ResumeToken,
        answers: Answers,
        line: ResponseChannel,
    ) -> Result<SuspendedCallWaiter> {
        let run = self.0.lock().get(&ticket.run).cloned();
        let run = run.ok_or_else(no_longer_suspended)?;
        {
            let mut state = run.questions.state.lock();
            if state.round != ticket.round {
                return Err(outcome_unknown(
                    "this input was already given, and the call continued",
                ));
            }
            if state.idle_since.take().is_none() {
                return Err(outcome_unknown(
                    "another request already waits for this call",
                ));
            }
            for (key, answer) in answers {
                let asked = state.open.iter().position(|(open, _)| *open == key);
                // An answer that is not an object counts as missing.
                if let (Some(asked), true) = (asked, answer.is_object()) {
                    state.open.remove(asked);
                    state.answers.insert(key, answer);
                }
            }
        }
        run.context.set_channel(line);
        run.questions.change_notify.notify_waiters();
        Ok(SuspendedCallWaiter {
            calls: self.clone(),
            call: run,
            is_done: false,
        })
    }

    fn end(&self, run: &SuspendedCall) {
        self.0.lock().remove(&run.name);
        if let Some(stop) = run.abort_handle.get() {
            stop.abort();
        }
        // A request that resumes the call at this moment fails too.
        run.questions.change(|state| {
            state
                .outcome
                .get_or_insert_with(|| Err(no_longer_suspended()));
        });
    }
}

/// Returns the error for a request that names a suspended call but cannot resume it.
fn outcome_unknown(why: &str) -> ProtocolError {
    let hint = "check whether the call took effect, then make the call again without requestState";
    ProtocolError::invalid_params(why).with_data(json!({"code": "outcome_unknown", "hint": hint}))
}

fn no_longer_suspended() -> ProtocolError {
    outcome_unknown("the suspended call is gone: its outcome is unknown")
}

/// Drives a suspended call until it completes.
async fn drive_to_completion(exchange: &RequestContext, mut run: CallFuture) -> Result<Vec<u8>> {
    loop {
        match exchange.drive(run).await {
            DriveOutcome::Completed(outcome) => return outcome,
            // Already suspended.
            DriveOutcome::Suspended(again) => run = again,
            DriveOutcome::InputRequired(_) | DriveOutcome::Detached(_) => {
                return Err(ProtocolError::bug());
            }
        }
    }
}

/// What a request that waits for a suspended call has to do next.
pub(crate) enum SuspendedCallStep {
    /// Have the client answer these and return with the token.
    Ask(Vec<(String, Question)>, ResumeToken),
    /// The call has completed.
    Completed(Result<Vec<u8>>),
}

/// A request that waits for a suspended call. Dropping it early ends the call: the client is gone.
pub(crate) struct SuspendedCallWaiter {
    calls: Arc<SuspendedCalls>,
    call: Arc<SuspendedCall>,
    is_done: bool,
}

impl SuspendedCallWaiter {
    /// Waits for the next questions or the outcome.
    pub(crate) async fn next(mut self) -> SuspendedCallStep {
        let run = self.call.clone();
        loop {
            let moved = run.questions.change_notify.notified();
            {
                let mut state = run.questions.state.lock();
                if let Some(outcome) = state.outcome.take() {
                    // Dropping `self` removes the call.
                    return SuspendedCallStep::Completed(outcome);
                }
                if !state.open.is_empty() {
                    self.is_done = true;
                    state.round += 1;
                    state.idle_since = Some(Instant::now());
                    let ticket = ResumeToken {
                        run: run.name.clone(),
                        round: state.round,
                    };
                    let open = state.open.clone();
                    drop(state);
                    run.context.set_channel(ResponseChannel::discarding());
                    run.questions.change_notify.notify_waiters();
                    return SuspendedCallStep::Ask(open, ticket);
                }
            }
            moved.await;
        }
    }
}

impl Drop for SuspendedCallWaiter {
    fn drop(&mut self) {
        if !self.is_done {
            self.calls.end(&self.call);
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
    use crate::client_profile;
    use crate::request_context::RequestOpening;
    use crate::version::ProtocolVersion;

    fn client() -> Arc<ClientContext> {
        Arc::new(ClientContext {
            permit: Permit::local_user(Access::Read),
            version: ProtocolVersion::V2026_07_28,
            capabilities: Capabilities {
                roots: true,
                ..Capabilities::default()
            },
            profile: &client_profile::UNKNOWN,
            log_level: None,
            session: None,
            conversation: None,
            headers: None,
        })
    }

    /// Suspends a call that asks for roots. The weak reference expires when the call ends.
    async fn suspended_call(
        runs: &Arc<SuspendedCalls>,
        client: &Arc<ClientContext>,
        shutdown: &CancellationToken,
    ) -> (ResumeToken, Weak<()>) {
        let opening = RequestOpening {
            progress_token: None,
            carried_answers: Answers::new(),
        };
        let exchange =
            RequestContext::new(client.clone(), ResponseChannel::discarding().sink, opening);
        exchange.prevent_restart();
        let life = Arc::new(());
        let (alive, asks) = (Arc::downgrade(&life), exchange.clone());
        let run: CallFuture = Box::pin(async move {
            let asked = asks
                .ask(vec![("where".to_owned(), Question::roots())])
                .await;
            drop(life);
            Ok(json!(asked?).to_string().into_bytes())
        });
        let DriveOutcome::Suspended(run) = exchange.drive(run).await else {
            panic!("it asks");
        };
        let adopted = runs.suspend(client, &exchange, run, shutdown.clone());
        let Ok(waiting) = adopted else {
            panic!("there is room");
        };
        let SuspendedCallStep::Ask(_, ticket) = waiting.next().await else {
            panic!("it asks");
        };
        (ticket, alive)
    }

    async fn has_ended(alive: &Weak<()>) -> bool {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        alive.upgrade().is_none()
    }

    fn is_gone(runs: &Arc<SuspendedCalls>, ticket: &ResumeToken) -> bool {
        let resumed = runs.resume(ticket, Answers::new(), ResponseChannel::discarding());
        resumed.is_err_and(|refusal| refusal.body.message.contains("the suspended call is gone"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspended_call_without_its_client_is_ended() {
        let (runs, client, shutdown) = (Arc::default(), client(), CancellationToken::new());
        let (ticket, alive) = suspended_call(&runs, &client, &shutdown).await;
        tokio::time::sleep(ANSWER_TIMEOUT * 9 / 10).await;
        assert!(!has_ended(&alive).await);
        tokio::time::sleep(ANSWER_TIMEOUT / 5).await;
        assert!(has_ended(&alive).await && is_gone(&runs, &ticket));
    }

    #[tokio::test]
    async fn a_run_that_waits_for_its_client_ends_with_the_server() {
        let (runs, client, shutdown) = (Arc::default(), client(), CancellationToken::new());
        let (ticket, alive) = suspended_call(&runs, &client, &shutdown).await;
        shutdown.cancel();
        assert!(has_ended(&alive).await && is_gone(&runs, &ticket));
    }

    #[tokio::test(start_paused = true)]
    async fn when_too_many_calls_are_suspended_the_longest_waiting_is_ended() {
        let (runs, client, shutdown) = (Arc::default(), client(), CancellationToken::new());
        let mut held = Vec::new();
        for _ in 0..=MAX_HELD {
            held.push(suspended_call(&runs, &client, &shutdown).await);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(has_ended(&held[0].1).await && is_gone(&runs, &held[0].0));
        assert!(!has_ended(&held[1].1).await);
        assert_eq!(runs.0.lock().len(), MAX_HELD);
        let answers = Answers::from_iter([("where".to_owned(), json!({"roots": []}))]);
        let waiting = runs
            .resume(&held[1].0, answers, ResponseChannel::discarding())
            .unwrap();
        let SuspendedCallStep::Completed(outcome) = waiting.next().await else {
            panic!("it is answered");
        };
        assert_eq!(outcome.unwrap(), br#"{"where":{"roots":[]}}"#);
        assert_eq!(runs.0.lock().len(), MAX_HELD - 1);
    }
}
