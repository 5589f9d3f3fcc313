//! A fake server with datoms, pairs, texts and vectors in memory, which misbehaves on demand.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rung_dtlv::nippy;
use rung_dtlv::{DtlvSession, DtlvUrl, Options};
use rung_edn::{Map, Name, Set, Value, read};

pub(crate) const PASSWORD: &str = "hunter2-unmistakable";

/// A fault that replaces one response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ServerFault {
    Close,
    CloseInHeader,
    CloseInContent,
    Hang,
    HangInContent,
    Drip,
    /// A header with this length, and nothing after it.
    Length(u32),
    Format(u8),
    Content(Vec<u8>),
    Answer(Value),
    /// The correct response, followed by another.
    Twice,
    CloseInCopy,
    FailInCopy,
    /// Endless items.
    Endless,
}

/// The state and the log of the server.
#[derive(Default)]
pub(crate) struct FakeState {
    faults: Mutex<VecDeque<ServerFault>>,
    login_faults: Mutex<VecDeque<ServerFault>>,
    pub(crate) log: Mutex<Vec<String>>,
    pub(crate) logins: AtomicUsize,
    pub(crate) connections: AtomicUsize,
    pub(crate) batches: Mutex<Vec<usize>>,
    memory: Mutex<FakeStore>,
    /// The open connections.
    streams: Mutex<Vec<TcpStream>>,
    is_down: AtomicBool,
}

#[derive(Default)]
struct FakeStore {
    /// Entity, attribute, value.
    facts: Vec<[Value; 3]>,
    pairs: BTreeMap<String, BTreeMap<Value, Value>>,
    texts: BTreeMap<Value, String>,
    vectors: Vec<(Value, Vec<f64>)>,
}

pub(crate) struct FakeServer {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<FakeState>,
}

impl FakeServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(FakeState::default());
        accept(listener, Arc::clone(&state));
        Self { address, state }
    }

    /// Closes every connection and accepts no more.
    pub(crate) fn stop(&self) {
        self.state.is_down.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
        for stream in self.state.streams.lock().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Listens again on the same address, with the same state.
    pub(crate) fn restart(&self) {
        self.state.is_down.store(false, Ordering::SeqCst);
        let listener = (0..200).find_map(|_| {
            let listener = TcpListener::bind(self.address);
            listener
                .inspect_err(|_| thread::sleep(Duration::from_millis(10)))
                .ok()
        });
        accept(listener.unwrap(), Arc::clone(&self.state));
    }

    /// Waits until `times` requests of this type were received.
    pub(crate) fn wait_for(&self, kind: &str, times: usize) {
        for _ in 0..1_000 {
            let log = self.state.log.lock();
            if log.iter().filter(|own| *own == kind).count() >= times {
                return;
            }
            drop(log);
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{kind} was not asked");
    }

    /// Queues faults for the next requests.
    pub(crate) fn queue_faults(&self, mischief: impl IntoIterator<Item = ServerFault>) {
        self.state.faults.lock().extend(mischief);
    }

    /// Queues faults for the next login messages.
    pub(crate) fn queue_login_faults(&self, mischief: impl IntoIterator<Item = ServerFault>) {
        self.state.login_faults.lock().extend(mischief);
    }

    pub(crate) fn target(&self, rest: &str) -> DtlvUrl {
        let Self { address, .. } = self;
        format!("dtlv://ann:{PASSWORD}@{address}/{rest}")
            .parse()
            .unwrap()
    }

    pub(crate) fn session(&self, rest: &str) -> Arc<DtlvSession> {
        self.session_with(rest, options())
    }

    pub(crate) fn session_with(&self, rest: &str, options: Options) -> Arc<DtlvSession> {
        Arc::new(DtlvSession::new(self.target(rest), options))
    }

    /// Returns the types of the received requests, except login and disconnect.
    pub(crate) fn request_types(&self) -> Vec<String> {
        let log = self.state.log.lock();
        let quiet = ["set-client-id", "authentication", "disconnect"];
        log.iter()
            .filter(|kind| !quiet.contains(&kind.as_str()))
            .cloned()
            .collect()
    }
}

fn accept(listener: TcpListener, state: Arc<FakeState>) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            if state.is_down.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            state.connections.fetch_add(1, Ordering::SeqCst);
            state.streams.lock().extend(stream.try_clone());
            let state = Arc::clone(&state);
            // A disconnecting client is no error.
            thread::spawn(move || {
                let served = serve(&stream, &state);
                // `streams` holds a clone, so dropping the stream would not close it.
                let _ = stream.shutdown(std::net::Shutdown::Both);
                served
            });
        }
    });
}

pub(crate) fn options() -> Options {
    Options {
        request_timeout: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(2),
        ..Options::default()
    }
}

pub(crate) fn edn(text: &str) -> Value {
    read(text).unwrap()
}

/// Encodes a frame without the code under test.
fn frame(value: &Value) -> Vec<u8> {
    let content = nippy::write(value).unwrap();
    let length = u32::try_from(content.len() + 5).unwrap();
    [&[2], &length.to_be_bytes()[..], &content].concat()
}

fn receive(stream: &mut TcpStream) -> io::Result<Value> {
    let mut header = [0; 5];
    stream.read_exact(&mut header)?;
    assert_eq!(header[0], 2, "what is sent is nippy");
    let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize;
    let mut content = vec![0; length - 5];
    stream.read_exact(&mut content)?;
    Ok(nippy::read(&content).unwrap())
}

fn send(stream: &mut TcpStream, value: &Value) -> io::Result<()> {
    stream.write_all(&frame(value))
}

fn get(message: &Value, name: &str) -> Value {
    let map = message.as_map().unwrap();
    map.get(&Value::keyword(name))
        .cloned()
        .unwrap_or(Value::Nil)
}

fn serve(stream: &TcpStream, state: &FakeState) -> io::Result<()> {
    let mut stream = stream.try_clone()?;
    loop {
        let message = receive(&mut stream)?;
        let kind = get(&message, "type").as_keyword().unwrap().to_string();
        state.log.lock().push(kind.clone());
        let logs_in = ["authentication", "set-client-id"].contains(&kind.as_str());
        let queue = if logs_in {
            &state.login_faults
        } else {
            &state.faults
        };
        let mischief = queue.lock().pop_front();
        if let Some(mischief) = mischief {
            misbehave(&mut stream, state, &mischief, &message)?;
            continue;
        }
        match kind.as_str() {
            "authentication" => {
                state.logins.fetch_add(1, Ordering::SeqCst);
                let right = get(&message, "password").as_str() == Some(PASSWORD);
                let said = if right {
                    edn(
                        r#"{:type :authentication-ok :client-id #uuid "00000000-0000-0000-0000-0000000000aa"}"#,
                    )
                } else {
                    edn(r#"{:type :error-response :message "Failed to authenticate"}"#)
                };
                send(&mut stream, &said)?;
            }
            "set-client-id" => send(&mut stream, &edn("{:type :set-client-id-ok}"))?,
            "disconnect" => return Ok(()),
            _ => answer(&mut stream, state, &message)?,
        }
    }
}

fn misbehave(
    stream: &mut TcpStream,
    state: &FakeState,
    mischief: &ServerFault,
    message: &Value,
) -> io::Result<()> {
    let whole = frame(&edn(
        r#"{:type :command-complete :result [1 2 3 "long enough"]}"#,
    ));
    let gone = || Err(io::ErrorKind::Other.into());
    let hang = |stream: &mut TcpStream| {
        // Waits until the client disconnects.
        let _ = stream.read(&mut [0]);
        gone()
    };
    match mischief {
        ServerFault::Close => gone(),
        ServerFault::CloseInHeader => {
            stream.write_all(&whole[..3])?;
            gone()
        }
        ServerFault::CloseInContent => {
            stream.write_all(&whole[..whole.len() / 2])?;
            gone()
        }
        ServerFault::Hang => hang(stream),
        ServerFault::HangInContent => {
            stream.write_all(&whole[..8])?;
            hang(stream)
        }
        ServerFault::Drip => {
            for byte in whole.iter().cycle() {
                stream.write_all(&[*byte])?;
                thread::sleep(Duration::from_millis(150));
            }
            Ok(())
        }
        ServerFault::Length(length) => {
            stream.write_all(&[&[2], &length.to_be_bytes()[..]].concat())?;
            hang(stream)
        }
        ServerFault::Format(format) => {
            let mut whole = whole;
            whole[0] = *format;
            stream.write_all(&whole)
        }
        ServerFault::Content(content) => {
            let length = u32::try_from(content.len() + 5).unwrap();
            stream.write_all(&[&[2], &length.to_be_bytes()[..], content].concat())
        }
        ServerFault::Answer(value) => send(stream, value),
        ServerFault::Twice => {
            answer(stream, state, message)?;
            send(stream, &edn("{:type :command-complete :result :stray}"))
        }
        ServerFault::CloseInCopy | ServerFault::FailInCopy | ServerFault::Endless => {
            send(stream, &edn("{:type :copy-out-response}"))?;
            send(stream, &edn("[[1 1] [2 2] [3 3]]"))?;
            match mischief {
                ServerFault::FailInCopy => send(
                    stream,
                    &edn(r#"{:type :error-response :message "disk on fire"}"#),
                ),
                ServerFault::Endless => loop {
                    send(stream, &edn("[[4 4] [5 5]]"))?;
                },
                _ => gone(),
            }
        }
    }
}

fn answer(stream: &mut TcpStream, state: &FakeState, message: &Value) -> io::Result<()> {
    let items = if get(message, "mode") == Value::keyword("copy-in") {
        send(stream, &edn("{:type :copy-in-response}"))?;
        let mut items = Vec::new();
        loop {
            match receive(stream)? {
                Value::Vector(batch) => {
                    state.batches.lock().push(batch.len());
                    items.extend(batch);
                }
                done => {
                    assert_eq!(done, edn("{:type :copy-done}"));
                    break;
                }
            }
        }
        Some(items)
    } else {
        None
    };
    match state.memory.lock().answer(message, items) {
        Err(why) => {
            let why = [
                (":type", ":error-response"),
                (":message", &format!("{why:?}")),
            ]
            .map(|(key, value)| format!("{key} {value}"));
            send(stream, &edn(&format!("{{{}}}", why.join(" "))))
        }
        // Like a real server, sends long results in batches.
        Ok(Value::Set(rows)) if rows.len() >= 1_000 => {
            send(
                stream,
                &edn("{:type :copy-out-response :copy-result-type :set}"),
            )?;
            copy(stream, &rows.into_iter().collect::<Vec<_>>())
        }
        Ok(Value::Vector(rows)) if rows.len() >= 1_000 => {
            send(stream, &edn("{:type :copy-out-response}"))?;
            copy(stream, &rows)
        }
        Ok(value) => {
            let members = [
                (Value::keyword("type"), Value::keyword("command-complete")),
                (Value::keyword("result"), value),
            ];
            send(stream, &Value::Map(members.into_iter().collect()))
        }
    }
}

fn copy(stream: &mut TcpStream, rows: &[Value]) -> io::Result<()> {
    for batch in rows.chunks(1_000) {
        send(stream, &Value::Vector(batch.to_vec()))?;
    }
    send(stream, &edn("{:type :copy-done}"))
}

fn datom([e, a, v]: &[Value; 3]) -> Value {
    let parts = vec![e.clone(), a.clone(), v.clone(), Value::Long(7)];
    Value::Tagged("datalevin/Datom".into(), Box::new(Value::Vector(parts)))
}

/// Returns the parts of a bound in index order, ranked so that the least and greatest values sort first and last.
fn bound(datom: &Value, ave: bool) -> [(u8, Value); 3] {
    let Value::Tagged(tag, parts) = datom else {
        panic!("a bound is a datom")
    };
    assert_eq!(tag.as_str(), "datalevin/Datom");
    let parts = parts.as_sequence().unwrap();
    let [e, a, v] = [&parts[0], &parts[1], &parts[2]].map(|part| {
        let rank = match part.as_keyword().map(Name::as_str) {
            Some("db.value/sysMin") => 0,
            Some("db.value/sysMax") => 2,
            _ => 1,
        };
        (rank, part.clone())
    });
    if ave { [a, v, e] } else { [e, a, v] }
}

impl FakeStore {
    fn answer(&mut self, message: &Value, items: Option<Vec<Value>>) -> Result<Value, String> {
        let kind = get(message, "type").as_keyword().unwrap().to_string();
        let args = get(message, "args");
        let args = args.as_sequence().unwrap_or_default();
        if !args.is_empty() {
            assert_eq!(args[0], Value::from("things"), "the name comes first");
        }
        let arg = |at: usize| args.get(at).cloned().unwrap_or(Value::Nil);
        Ok(match kind.as_str() {
            "open" => edn("{:max-eid 9 :max-tx 3 :schema {:name {:db/valueType :db.type/string}}}"),
            "schema" => edn("{:name {:db/valueType :db.type/string}}"),
            "q" => {
                let inputs = arg(2);
                let [database, attribute] = inputs.as_sequence().unwrap() else {
                    return Err("Too few inputs".to_owned());
                };
                assert_eq!(*database, Value::keyword("remote-db-placeholder"));
                let rows = self.facts.iter().filter(|fact| fact[1] == *attribute);
                let rows = rows.map(|[e, _, v]| Value::Vector(vec![e.clone(), v.clone()]));
                Value::Set(rows.collect::<Set>())
            }
            "explain" => edn("{:planning-time \"1\"}"),
            "pull" => self.pull(&arg(2)),
            "pull-many" => {
                let entities = arg(2);
                let pulled = entities.as_sequence().unwrap().iter().map(|e| self.pull(e));
                Value::Vector(pulled.collect())
            }
            "slice" => Value::Vector(self.slice(args).iter().map(datom).collect()),
            "size" => Value::Long(i64::try_from(self.slice(args).len()).unwrap()),
            "fulltext-datoms" => edn("([1 :name \"Ann\"])"),
            "tx-data" => {
                let simulated = arg(if items.is_some() { 1 } else { 2 }) == Value::Bool(true);
                let given = items.unwrap_or_else(|| arg(1).as_sequence().unwrap().to_vec());
                self.transact(&given, simulated)?
            }
            "transact-kv" => {
                let table = arg(1).as_str().unwrap().to_owned();
                let given = items.unwrap_or_else(|| arg(2).as_sequence().unwrap().to_vec());
                let pairs = self.pairs.entry(table).or_default();
                for operation in given {
                    match operation.as_sequence().unwrap() {
                        [_, key, value] => pairs.insert(key.clone(), value.clone()),
                        [_, key] => pairs.remove(key),
                        _ => return Err("Not an operation".to_owned()),
                    };
                }
                Value::keyword("transacted")
            }
            "get-value" => {
                let table = arg(1).as_str().unwrap().to_owned();
                let found = self.pairs.get(&table).and_then(|pairs| pairs.get(&arg(2)));
                match (found, arg(5)) {
                    (None, _) => Value::Nil,
                    (Some(value), Value::Bool(true)) => value.clone(),
                    (Some(value), _) => Value::Vector(vec![arg(2), value.clone()]),
                }
            }
            "get-range" | "range-count" => {
                let table = arg(1).as_str().unwrap().to_owned();
                let pairs = self.pairs.get(&table).cloned().unwrap_or_default();
                if kind == "range-count" {
                    return Ok(Value::Long(i64::try_from(pairs.len()).unwrap()));
                }
                let pairs = pairs
                    .into_iter()
                    .map(|(key, value)| Value::Vector(vec![key, value]));
                Value::Vector(pairs.collect())
            }
            "open-kv" | "close" | "close-kv" | "close-vecs" => Value::Nil,
            "open-dbi" => {
                self.pairs
                    .entry(arg(1).as_str().unwrap().to_owned())
                    .or_default();
                Value::Nil
            }
            "new-search-engine" | "new-vector-index" => {
                let options = arg(1);
                let options = options.as_map();
                let domain = options.and_then(|map| map.get(&Value::keyword("domain")));
                let domain = domain.and_then(Value::as_str).unwrap_or("datalevin");
                let table = if kind == "new-search-engine" {
                    "docs"
                } else {
                    "vec-refs"
                };
                self.pairs.entry(format!("{domain}/{table}")).or_default();
                Value::Nil
            }
            "list-databases" => edn(r#"["things"]"#),
            "list-dbis" => {
                Value::Vector(self.pairs.keys().map(|name| name.as_str().into()).collect())
            }
            _ => return self.indexes(&kind, &arg(1), &arg(2)),
        })
    }

    fn indexes(&mut self, kind: &str, one: &Value, two: &Value) -> Result<Value, String> {
        let numbers = |vector: &Value| -> Vec<f64> {
            let numbers = vector.as_sequence().unwrap().iter();
            numbers.map(|number| number.as_f64().unwrap()).collect()
        };
        Ok(match kind {
            "add-doc" => {
                self.texts
                    .insert(one.clone(), two.as_str().unwrap().to_owned());
                Value::keyword("doc-added")
            }
            "remove-doc" => match self.texts.remove(one) {
                Some(_) => Value::keyword("doc-removed"),
                None => return Err("Document does not exist.".to_owned()),
            },
            "clear-docs" => {
                self.texts.clear();
                Value::Nil
            }
            "doc-indexed?" => self.texts.contains_key(one).into(),
            "doc-count" => Value::Long(i64::try_from(self.texts.len()).unwrap()),
            "search" => {
                let found = self
                    .texts
                    .iter()
                    .filter(|(_, text)| text.contains(one.as_str().unwrap()));
                Value::List(found.map(|(reference, _)| reference.clone()).collect())
            }
            "add-vec" => {
                self.vectors.push((one.clone(), numbers(two)));
                Value::Nil
            }
            "remove-vec" => {
                self.vectors.retain(|(reference, _)| reference != one);
                Value::Nil
            }
            "vec-indexed?" => self
                .vectors
                .iter()
                .any(|(reference, _)| reference == one)
                .into(),
            "vecs-info" => edn(&format!("{{:size {}}}", self.vectors.len())),
            "search-vec" => {
                let query = numbers(one);
                let mut found = self.vectors.clone();
                found.sort_by(|(_, one), (_, other)| {
                    let distance = |vector: &[f64]| -> f64 {
                        let parts = vector.iter().zip(&query);
                        parts.map(|(one, other)| (one - other).powi(2)).sum()
                    };
                    distance(one).total_cmp(&distance(other))
                });
                Value::Vector(found.into_iter().map(|(reference, _)| reference).collect())
            }
            _ => return Err(format!("Unknown message type {kind}")),
        })
    }

    fn pull(&self, entity: &Value) -> Value {
        // A lookup reference by any attribute.
        let entity = match entity.as_sequence() {
            Some([a, v]) => self
                .facts
                .iter()
                .find(|fact| fact[1] == *a && fact[2] == *v),
            _ => self.facts.iter().find(|fact| fact[0] == *entity),
        };
        let Some([entity, ..]) = entity else {
            return Value::Nil;
        };
        let own = self.facts.iter().filter(|fact| fact[0] == *entity);
        let mut map: Map = own.map(|[_, a, v]| (a.clone(), v.clone())).collect();
        map.insert(Value::keyword("db/id"), entity.clone());
        Value::Map(map)
    }

    fn slice(&self, args: &[Value]) -> Vec<[Value; 3]> {
        let ave = args[1] == Value::keyword("ave");
        let (low, high) = (bound(&args[2], ave), bound(&args[3], ave));
        let mut found: Vec<_> = self
            .facts
            .iter()
            .map(|[e, a, v]| {
                let (e, a, v) = (e.clone(), a.clone(), v.clone());
                if ave { [a, v, e] } else { [e, a, v] }
            })
            .filter(|fact| {
                // A missing part is no bound.
                let within = |at: usize| {
                    let part = (1, fact[at].clone());
                    let said = |bound: &(u8, Value)| !bound.1.is_nil();
                    (!said(&low[at]) || low[at] <= part) && (!said(&high[at]) || part <= high[at])
                };
                (0..3).all(within)
            })
            .collect();
        found.sort();
        let back = found.into_iter().map(|[one, two, three]| {
            if ave {
                [three, one, two]
            } else {
                [one, two, three]
            }
        });
        back.collect()
    }

    fn transact(&mut self, given: &[Value], simulated: bool) -> Result<Value, String> {
        let mut facts = Vec::new();
        for operation in given {
            let [_, e, a, v] = operation.as_sequence().unwrap() else {
                return Err("Bad transaction data".to_owned());
            };
            facts.push([e.clone(), a.clone(), v.clone()]);
        }
        let datoms: Vec<_> = facts.iter().map(datom).collect();
        if !simulated {
            self.facts.extend(facts);
        }
        if datoms.len() >= 1_000 {
            // Like a real server: datoms, then pairs of ids.
            let pairs = [edn("[\"new\" 5]"), edn("[:max-eid 77]")];
            return Ok(Value::Vector(datoms.into_iter().chain(pairs).collect()));
        }
        let report = [
            (Value::keyword("tx-data"), Value::Vector(datoms)),
            (Value::keyword("tempids"), edn("{\"new\" 5 :max-eid 77}")),
        ];
        Ok(Value::Map(report.into_iter().collect()))
    }
}
