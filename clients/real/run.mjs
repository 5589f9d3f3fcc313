#!/usr/bin/env node
// Runs Claude Code and Codex headless with Rung as their MCP server and a scripted model, and checks what reaches the model.
//
//     npm ci --ignore-scripts
//     node run.mjs RUNG [--log FILE] [WORD ...]
//
// RUNG is the binary. WORDs select a client (claude, codex) and a scenario (gateway, data, database).
// With --log, every tool result that a model received is appended to FILE as a line of JSON.
//
// What a client shows its model through the gateway is compared with what the same client shows of the same downstream server
// when it is connected directly. Nothing leaves this machine: the model is on loopback, and so is the clients' only proxy,
// which refuses everything.

import { execFile, spawn } from 'node:child_process';
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual, promisify } from 'node:util';

const FOLDER = dirname(fileURLToPath(import.meta.url));
const DOWNSTREAM = join(FOLDER, 'downstream.mjs');
const CLIENT_MS = 60_000;
const CONCURRENCY = 2;

const words = process.argv.slice(2);
const logFile = words.includes('--log') ? words.splice(words.indexOf('--log'), 2)[1] : undefined;
if (!words.length) {
    console.error('usage: run.mjs RUNG [--log FILE] [WORD ...]');
    process.exit(2);
}
const RUNG = resolve(words.shift());
if (!existsSync(join(FOLDER, 'node_modules'))) {
    console.error('the clients are not installed: run npm ci in the folder of this file');
    process.exit(2);
}

// --- The scripted model ------------------------------------------------------------------------

/**
 * One run of a client. The script calls tools with `call`; the client's requests to the model carry the calls out and
 * bring back the results.
 */
class Conversation {
    constructor(label, server, script) {
        this.label = label;
        this.server = server;
        this.calls = 0;
        this.searched = new Set();
        // The call that the next response to the client makes, and the call that waits for its result.
        this.next = deferred();
        this.pending = null;
        this.error = null;
        this.script = script;
    }

    start() {
        this.finished ??= this.script((tool, args) => this.call(tool, args))
            .catch(error => (this.error = error))
            .finally(() => this.next.resolve(null));
    }

    /** Calls a tool of the server and returns what the model received: its texts joined, and its pictures. */
    call(tool, args) {
        const pending = deferred();
        if (this.closed) pending.reject(new Error(`the client ended before the result of ${tool}: ${this.closed}`));
        this.pending = { id: `call_${++this.calls}`, tool, args, ...pending };
        this.next.resolve(this.pending);
        return pending.promise;
    }

    /**
     * Takes the results out of a request and returns the call to make, or null. `results` maps the ids of calls to results.
     * Both clients defer the tools of MCP servers: the model has to search for a tool before it can call it.
     */
    async turn(tools, results) {
        this.start();
        if (this.pending?.sent) {
            const shown = results.get(this.pending.id);
            // A repeated request, without the result.
            if (!shown) return this.pending;
            // The result of this call.
            const { tool, args, resolve } = this.pending;
            if (logFile) appendFileSync(logFile, JSON.stringify({ run: this.label, tool, args, ...shown }) + '\n');
            this.pending = null;
            this.next = deferred();
            resolve(shown);
        }
        const call = await this.next.promise;
        if (!call) return null;
        const name = call.tool.replaceAll('.', '_');
        call.offer = tools.find(offer => offer.server === this.server && offer.tool === name);
        if (call.offer) {
            call.sent = true;
            return call;
        }
        if (!this.searched.has(name)) {
            this.searched.add(name);
            return { id: `search_${this.searched.size}`, search: name, words: call.tool };
        }
        call.reject(new Error(`${call.tool} is not offered to the model, but ${tools.map(offer => offer.name).join(' ')}`));
        return null;
    }

    /** The client has ended: no result arrives any more. */
    async close(output) {
        this.closed = output;
        this.pending?.reject(new Error(`the client ended before the result of ${this.pending.tool}: ${output}`));
        this.start();
        await this.finished;
        if (this.error) throw this.error;
    }
}

function deferred() {
    let resolve, reject;
    const promise = new Promise((yes, no) => ([resolve, reject] = [yes, no]));
    promise.catch(() => {});
    return { promise, resolve, reject };
}

const conversations = new Map();

/** Serves all conversations, each below a path of its own. */
const model = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const [, key, ...rest] = new URL(request.url, 'http://model').pathname.split('/');
    const path = rest.join('/');
    const conversation = conversations.get(key);
    const api = request.method === 'POST' && conversation ? { 'v1/messages': messages, 'v1/responses': responses }[path] : null;
    if (!api) {
        const known = { 'v1/messages/count_tokens': { input_tokens: 10 }, 'v1/models': { models: [], data: [] } }[path];
        response.writeHead(known ? 200 : 404, { 'content-type': 'application/json' });
        response.end(JSON.stringify(known ?? {}));
        return;
    }
    const events = await api(conversation, JSON.parse(Buffer.concat(chunks)));
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(events.map(event => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(''));
});

/** The Messages API, as Claude Code uses it. */
async function messages(conversation, request) {
    const names = (request.tools ?? []).map(({ name }) => name);
    const results = new Map();
    for (const { content } of request.messages)
        for (const block of Array.isArray(content) ? content : [])
            if (block.type === 'tool_result') {
                results.set(block.tool_use_id, parseToolResult(block));
                if (block.tool_use_id.startsWith('search_')) names.push(...(JSON.stringify(block.content).match(/mcp__\w+/g) ?? []));
            }
    const tools = names.map(name => {
        const [, server, tool] = /^mcp__(.+?)__(.+)$/.exec(name) ?? [];
        return { name, server, tool };
    });
    // Requests without tools are for titles and summaries.
    const call = tools.length ? await conversation.turn(tools, results) : null;
    const name = call?.search ? 'ToolSearch' : call?.offer.name;
    const input = call?.search ? { query: `select:mcp__${conversation.server}__${call.search}`, max_results: 5 } : call?.args;
    const [block, delta] = call
        ? [{ type: 'tool_use', id: call.id, name, input: {} }, { type: 'input_json_delta', partial_json: JSON.stringify(input) }]
        : [{ type: 'text', text: '' }, { type: 'text_delta', text: 'Done.' }];
    const message = { id: `msg_${conversation.calls}`, type: 'message', role: 'assistant', model: request.model, content: [] };
    return [
        { type: 'message_start', message: { ...message, stop_reason: null, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } } },
        { type: 'content_block_start', index: 0, content_block: block },
        { type: 'content_block_delta', index: 0, delta },
        { type: 'content_block_stop', index: 0 },
        {
            type: 'message_delta',
            delta: { stop_reason: call ? 'tool_use' : 'end_turn', stop_sequence: null },
            usage: { output_tokens: 1 },
        },
        { type: 'message_stop' },
    ];
}

function parseToolResult({ content, is_error }) {
    const blocks = typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? []);
    return {
        text: blocks
            .filter(block => block.type === 'text')
            // Claude Code adds a line with the file in which it stores a picture.
            .map(block => block.text.replace(/^\[Image: source: .*\]$/m, ''))
            .join('\n')
            .trim(),
        pictures: blocks.filter(block => block.type === 'image').map(block => block.source.data),
        isError: is_error === true,
    };
}

/** The Responses API, as Codex uses it. */
async function responses(conversation, request) {
    const found = request.input.flatMap(item => (item.type === 'tool_search_output' ? item.tools : []));
    const tools = [...(request.tools ?? []), ...found].flatMap(({ type, name, tools }) => {
        if (type !== 'namespace') return [{ name: name ?? type }];
        const server = name.replace(/^mcp__/, '').replace(/__$/, '');
        return tools.map(tool => ({ name: tool.name, namespace: name, server, tool: tool.name }));
    });
    const results = new Map();
    for (const item of request.input)
        if (item.type?.endsWith('_call_output')) results.set(item.call_id, parseCallOutput(item.output));
    const call = await conversation.turn(tools, results);
    const item = call?.search
        ? { type: 'tool_search_call', execution: 'client', arguments: { query: call.words, limit: 8 } }
        : call
          ? { type: 'function_call', namespace: call.offer.namespace, name: call.offer.name, arguments: JSON.stringify(call.args) }
          : { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Done.' }] };
    if (call) item.call_id = call.id;
    item.id = `item_${call?.id}`;
    const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
    return [
        { type: 'response.created', response: { id: 'resp_1' } },
        { type: 'response.output_item.done', output_index: 0, item },
        { type: 'response.completed', response: { id: 'resp_1', usage } },
    ];
}

function parseCallOutput(output) {
    const items = typeof output === 'string' ? [{ type: 'input_text', text: output }] : (output ?? []);
    const text = items.filter(item => item.type === 'input_text').map(item => item.text).join('\n');
    return {
        // Codex puts two lines of its own before every result.
        text: text.replace(/^Wall time: .*\nOutput:\n?/, ''),
        pictures: items.filter(item => item.type === 'input_image').map(item => item.image_url.replace(/^data:[^,]*,/, '')),
        isError: false,
    };
}

// --- The clients -------------------------------------------------------------------------------

// Claude Code's own binary, because the command of its package needs the install script of the package.
const CLAUDE = join(FOLDER, `node_modules/@anthropic-ai/claude-code-${process.platform}-${process.arch}`);
const CODEX = join(FOLDER, 'node_modules/@openai/codex/bin/codex.js');

const clients = {
    claude(home, address, server, command) {
        const [program, ...args] = command;
        const config = join(home, 'mcp.json');
        writeFileSync(config, JSON.stringify({ mcpServers: { [server]: { command: program, args } } }));
        return {
            command: [
                join(existsSync(CLAUDE) ? CLAUDE : `${CLAUDE}-musl`, 'claude'),
                '-p', 'Call the tools.', '--mcp-config', config, '--strict-mcp-config', '--allowedTools', `mcp__${server}__*`,
            ],
            env: {
                ANTHROPIC_BASE_URL: address,
                ANTHROPIC_API_KEY: 'none',
                CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
                DISABLE_AUTOUPDATER: '1',
                DISABLE_TELEMETRY: '1',
                DISABLE_ERROR_REPORTING: '1',
                // It refuses to run as root otherwise.
                IS_SANDBOX: '1',
                // The first request to the model waits for the server.
                MCP_CONNECTION_NONBLOCKING: '0',
            },
        };
    },

    codex(home, address, server, command) {
        const [program, ...args] = command.map(part => JSON.stringify(part));
        mkdirSync(join(home, '.codex'));
        writeFileSync(join(home, '.codex/config.toml'), `
model = "gpt-5.5"
model_provider = "scripted"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
apps = false
plugins = false
[model_providers.scripted]
name = "scripted"
base_url = "${address}/v1"
wire_api = "responses"
[mcp_servers.${server}]
command = ${program}
args = [${args.join(', ')}]
`);
        return {
            command: [
                process.execPath, CODEX,
                'exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', 'Call the tools.',
            ],
            env: {},
        };
    },
};

/** Runs a client with one MCP server until the script has ended. The script's errors are thrown. */
async function converse(client, label, folder, server, command, script) {
    const home = join(folder, label.replaceAll(' ', '-'));
    const work = join(home, 'work');
    mkdirSync(work, { recursive: true });
    const key = `run${conversations.size + 1}`;
    const conversation = new Conversation(label, server, script);
    conversations.set(key, conversation);
    const address = `http://127.0.0.1:${model.address().port}/${key}`;
    const { command: [program, ...args], env } = clients[client](home, address, server, command);
    const child = spawn(program, args, {
        cwd: work,
        env: { ...environment(home), ...env },
        stdio: ['ignore', 'pipe', 'pipe'],
        detached: true,
    });
    running.add(child);
    let output = '';
    child.stdout.on('data', data => (output += data));
    child.stderr.on('data', data => (output += data));
    const timer = setTimeout(() => end(child), CLIENT_MS);
    const status = await new Promise(resolve => child.on('error', resolve).on('close', (code, signal) => resolve(code ?? signal)));
    clearTimeout(timer);
    end(child);
    const report = `exit status ${status}, ${output.trim().slice(-400)}`;
    await conversation.close(report);
    if (status !== 0) throw new Error(`the client failed: ${report}`);
}

const running = new Set();

/** Ends a process together with its group. */
function end(child) {
    running.delete(child);
    try {
        process.kill(-child.pid, 'SIGKILL');
    } catch {
        // It has ended.
    }
}

for (const signal of ['SIGINT', 'SIGTERM'])
    process.on(signal, () => {
        running.forEach(end);
        process.exit(130);
    });

/** Nothing of the caller's environment but the programs. */
function environment(home) {
    const refusingProxy = `http://127.0.0.1:${model.address().port}/refused`;
    return {
        HOME: home,
        PATH: [dirname(process.execPath), process.env.PATH].join(delimiter),
        LANG: 'C.UTF-8',
        NO_COLOR: '1',
        TERM: 'dumb',
        HTTPS_PROXY: refusingProxy,
        HTTP_PROXY: refusingProxy,
        NO_PROXY: '127.0.0.1,localhost',
    };
}

async function rung(home, ...args) {
    const { stdout } = await promisify(execFile)(RUNG, args, { env: environment(home), cwd: home, maxBuffer: 1 << 26 });
    return stdout.trim();
}

// --- Checks ------------------------------------------------------------------------------------

const counts = { passed: 0, failed: 0 };

function check(label, promise, passed, shown) {
    counts[passed ? 'passed' : 'failed']++;
    console.log(`${passed ? 'passed' : 'FAILED'}  ${label}: ${promise}`);
    if (!passed && shown !== undefined) {
        const text = typeof shown === 'string' ? shown : shown.text;
        console.log(`        ${shown.isError ? 'as an error, ' : ''}the model got ${text.length} characters: ${JSON.stringify(text.slice(0, 300))}`);
    }
}

/** The numbered lines of a text, also within JSON. The last one can be cut. */
const numberedLines = text => text.replaceAll('\\n', '\n').match(/\b[A-Z]+LINE number \d{5}(?!\d)[^\n"\\]*/g) ?? [];
const lineNumber = line => Number(/\d{5}/.exec(line)[0]);

/** The JSON value that a text is, or else the first of its lines that is one. */
function jsonIn(text) {
    for (const part of [text, ...text.split('\n')])
        try {
            const value = JSON.parse(part);
            if (typeof value === 'object') return value;
        } catch {
            // Not this one.
        }
}

/** The JSON object that begins at a place of a text. */
function objectAt(text, start) {
    for (let end = text.indexOf('}', start); end >= 0; end = text.indexOf('}', end + 1))
        try {
            return JSON.parse(text.slice(start, end + 1));
        } catch {
            // A brace within it.
        }
}

/** All objects and lists within a JSON value, itself included. */
function* nestedValues(value) {
    if (value === null || typeof value !== 'object') return;
    yield value;
    for (const inner of Object.values(value)) yield* nestedValues(inner);
}

/** The arguments with which a reply says to continue with a tool, or undefined. */
function continuation(tool, { text }) {
    for (const object of nestedValues(jsonIn(text))) {
        if (object.tool === tool) return object.arguments ?? object.args;
        // The last part has no cursor.
        if (tool === 'rung.read' && object.handle && object.next_cursor) return { handle: object.handle, cursor: object.next_cursor };
        if (tool === 'read_record_field' && object.window?.next_cursor)
            return { id: object.record.id, field_path: object.field.path, cursor: object.window.next_cursor };
    }
    const name = tool.replaceAll('.', '\\.');
    for (const words of [`next ${name} (?:args=)?`, 'continue with ', `${name} (?:args=)?`]) {
        const found = new RegExp(`${words}(?=\\{)`).exec(text);
        if (found) return objectAt(text, found.index + found[0].length);
    }
}

// --- Scenarios ---------------------------------------------------------------------------------

// Texts of these sizes fit into a reply of the gateway, which takes 4,000 tokens by default.
const FITS = [8_000, 14_000];
const TOO_LONG = 100_000;

/** The calls of the downstream server's tools: their names in this run, and their arguments. */
const CALLS = [
    ...[...FITS, TOO_LONG].map(bytes => [`text ${bytes / 1000} KB`, 'text', { bytes }]),
    ['big', 'big', {}],
    ['shot', 'shot', {}],
    ['structured', 'structured', {}],
    ['fail', 'fail', {}],
];

async function gateway(client, folder) {
    const downstream = [process.execPath, DOWNSTREAM];
    const config = join(folder, 'servers.json');
    writeFileSync(config, JSON.stringify({ mcpServers: { downstream: { command: downstream[0], args: downstream.slice(1) } } }));

    const directResults = {};
    await converse(client, `${client} direct`, folder, 'downstream', downstream, async call => {
        for (const [name, tool, args] of CALLS) directResults[name] = await call(tool, args);
    });

    const label = `${client} gateway`;
    const command = [RUNG, 'gateway', '--config', config, '--home', join(folder, 'rung')];
    await converse(client, label, folder, 'rung', command, async call => {
        const gatewayResults = {};
        for (const [name, tool, args] of CALLS) {
            const shown = await call('gateway.invoke', { tool_id: `downstream::${tool}`, arguments: args });
            gatewayResults[name] = shown;
            if (name === 'big' || name === `text ${TOO_LONG / 1000} KB`) {
                await checkCutText(`${label} ${name}`, tool === 'big' ? 'PREVIEWLINE' : 'TEXTLINE', shown, call);
            }
        }
        for (const name of FITS.map(bytes => `text ${bytes / 1000} KB`)) {
            const [shown, expected] = [new Set(numberedLines(gatewayResults[name].text)), numberedLines(directResults[name].text)];
            const missing = expected.filter(line => !shown.has(line));
            check(`${label} ${name}`, `shows every line that a direct connection shows (${expected.length - missing.length} of ${expected.length})`,
                expected.length > 0 && missing.length === 0, gatewayResults[name]);
            check(`${label} ${name}`, 'does not say that it is cut', !/truncated|res_[0-9a-z]{26}/.test(gatewayResults[name].text), gatewayResults[name]);
        }
        const { shot, structured, fail } = gatewayResults;
        check(`${label} shot`, 'shows the text that a direct connection shows', shot.text.includes(directResults.shot.text), shot);
        check(`${label} shot`, 'shows the picture that a direct connection shows',
            directResults.shot.pictures.length === 1 && isDeepStrictEqual(shot.pictures, directResults.shot.pictures), shot);
        const expected = jsonIn(directResults.structured.text);
        check(`${label} structured`, 'shows the structured content that a direct connection shows',
            expected?.parts?.length === 40 && [...nestedValues(jsonIn(structured.text))].some(part => isDeepStrictEqual(part, expected)), structured);
        check(`${label} fail`, 'shows the text of the error that a direct connection shows',
            directResults.fail.text.includes('FAILLINE') && fail.text.includes(directResults.fail.text), fail);
        check(`${label} fail`, 'is an error exactly if it is one over a direct connection', fail.isError === directResults.fail.isError, fail);
    });
}

/** A text of numbered lines that does not fit: shows its beginning, says that it is cut, and can be continued. */
async function checkCutText(label, prefix, shown, call) {
    const lines = numberedLines(shown.text);
    check(label, 'shows the first fifty lines', lines.length >= 50 && lines.every((line, n) => line.startsWith(prefix) && lineNumber(line) === n), shown);
    check(label, 'says that it is cut', /truncated|\bcut\b/i.test(shown.text), shown);
    const args = continuation('rung.read', shown);
    check(label, 'names the handle of the stored result and how to continue',
        /^res_[0-9a-z]{26}$/.test(args?.handle) && args.offset_chars > 0, shown);
    let [before, next] = [shown, args];
    for (const part of ['next part', 'part after it']) {
        if (!next) break;
        const shown = await call('rung.read', next);
        check(label, `rung.read continues with the ${part}`, isNextPart(before, shown), shown);
        [before, next] = [shown, continuation('rung.read', shown)];
        check(label, `says how to continue after the ${part}`, next?.handle === args.handle, shown);
    }
}

// A message with a field that does not fit into a reply.
const LONG = {
    id: 'lighthouse',
    from: 'Archive',
    subject: 'The log of the lighthouse',
    body: Array.from({ length: 2000 }, (_, n) => `BODYLINE number ${String(n).padStart(5, '0')}`).join('\n'),
    sent_at: '2026-04-01T08:00:00Z',
};

async function data(client, folder) {
    const home = join(folder, 'rung');
    const label = `${client} data`;
    mkdirSync(home);
    await rung(home, 'demo', '--prepare', '--home', home);
    writeFileSync(join(home, 'long.ndjson'), JSON.stringify({ key: LONG.id, data: LONG, emitted_at: '2026-11-01T00:00:00Z' }) + '\n');
    await rung(home, 'pdpp', 'ingest', 'long.ndjson', '--connector', 'mail', '--stream', 'messages', '--home', home);
    const token = await rung(home, 'pdpp', 'grant', 'issue', '--client', client, '--source', 'mail', '--streams', 'messages', '--home', home);
    await withServer(home, async address => {
        const credential = join(folder, 'credentials/clients', `${address.replace('http://', '').replace(':', '_')}.json`);
        mkdirSync(dirname(credential), { recursive: true });
        writeFileSync(credential, JSON.stringify({ credential: { access_token: token } }));
        const command = [RUNG, 'pdpp', 'mcp', '--provider-url', address, '--cache-root', join(folder, 'credentials'), '--home', join(folder, 'adapter')];
        // What the provider itself returns.
        const provider = async path => {
            const response = await fetch(`${address}/v1/${path}`, { headers: { authorization: `Bearer ${token}` } });
            if (!response.ok) throw new Error(`the provider refuses ${path}: ${response.status}`);
            return response.json();
        };
        await converse(client, label, folder, 'rung', command, call => checkData(label, call, provider));
    });
}

async function checkData(label, call, provider) {
    const schema = await call('schema', {});
    check(`${label} schema`, 'shows the stream', /\bmessages\b/.test(schema.text), schema);

    const records = (await provider('streams/messages/records?limit=25&order=desc')).data;
    const page = await call('query_records', { stream: 'messages', limit: 25, order: 'desc' });
    const shown = records.filter(record => isRowShown(page.text, record.id, record.data.subject)).length;
    check(`${label} query_records`, `shows 25 rows, each with id and subject (${shown} of ${records.length})`, shown === 25, page);

    // Its rows win over the usual size of a reply, and each client is sent no more than it shows whole.
    const most = (await provider('streams/messages/records?limit=100&order=desc')).data;
    const long = await call('query_records', { stream: 'messages', limit: 100, order: 'desc' });
    const all = most.filter(record => isRowShown(long.text, record.id, record.data.subject)).length;
    check(`${label} query_records`, `shows 100 rows (${all} of ${most.length})`, all === 100, long);

    const { value } = await provider('streams/messages/aggregate?metric=count');
    const count = await call('aggregate', { stream: 'messages', metric: 'count' });
    check(`${label} aggregate`, `shows the count (${value})`, new RegExp(`\\b${value}\\b`).test(count.text), count);

    const hits = await call('search', { q: 'reading room', limit: 5 });
    const ids = new Set(hits.text.match(/[\w-]+\/messages:\w+/g));
    check(`${label} search`, `shows 5 hits with their ids (${ids.size})`, ids.size === 5, hits);
    const snippets = hits.text.match(/snippet"?[:=]\s*"[^"]*reading room[^"]*"/gi) ?? [];
    check(`${label} search`, `shows a snippet with the words for each hit (${snippets.length})`, snippets.length === 5, hits);

    const [id] = ids;
    if (id) {
        const document = await call('fetch', { id });
        const { body } = (await provider(`streams/messages/records/${id.split(':').at(-1)}`)).data;
        check(`${label} fetch`, 'shows the whole text of a hit', document.text.includes(JSON.stringify(body).slice(1, -1)), document);
    }

    const cut = await call('query_records', { stream: 'messages', filter: { from: LONG.from }, limit: 1 });
    check(`${label} long field`, 'shows the beginning of a field that is too long', cut.text.includes('BODYLINE number 00000'), cut);
    let [before, args] = [cut, continuation('read_record_field', cut)];
    check(`${label} long field`, 'names the call that continues', args !== undefined, cut);
    for (const part of ['next part', 'part after it']) {
        if (!args) break;
        const shown = await call('read_record_field', args);
        check(`${label} read_record_field`, `continues with the ${part}`, isNextPart(before, shown), shown);
        [before, args] = [shown, continuation('read_record_field', shown)];
        check(`${label} read_record_field`, `says how to continue after the ${part}`, args !== undefined, shown);
    }

    const unknown = await call('query_records', { stream: 'mesages', limit: 5 });
    check(`${label} unknown stream`, 'shows the error with its code', /"code":\s*"grant_stream_not_allowed"/.test(unknown.text), unknown);
    check(`${label} unknown stream`, 'shows the hint of the error', /"hint":\s*"did you mean messages\?"/.test(unknown.text), unknown);
}

/** Whether a row is shown with its id and its subject: as an object, as a list of values, or as a line. */
function isRowShown(text, id, subject) {
    const inJson = [...nestedValues(jsonIn(text))].some(row =>
        Array.isArray(row) ? row.includes(id) && row.includes(subject) : row.id === id && (row.data ?? row).subject === subject);
    return inJson || text.split('\n').some(line => line.length < 2000 && line.includes(id) && line.includes(subject));
}

/** Whether the numbered lines of a part begin where those before it end. The line at the cut can be split between the two. */
function isNextPart(before, part) {
    const [last, following] = [numberedLines(before.text).at(-1), numberedLines(part.text)];
    return last !== undefined && following.length > 20 && [1, 2].includes(lineNumber(following[0]) - lineNumber(last));
}

/** Serves a data folder while `use` runs. */
async function withServer(home, use) {
    const server = spawn(RUNG, ['serve', '--listen', '127.0.0.1:0', '--home', home], {
        cwd: home,
        env: environment(home),
        stdio: ['ignore', 'pipe', 'pipe'],
        detached: true,
    });
    running.add(server);
    try {
        let output = '';
        const address = await new Promise((found, failed) => {
            for (const stream of [server.stdout, server.stderr])
                createInterface({ input: stream }).on('line', line => {
                    output += `${line}\n`;
                    const [, address] = /^listening at (http:\/\/127\.0\.0\.1:\d+)/.exec(line) ?? [];
                    if (address) found(address);
                });
            server.on('error', failed).on('exit', () => failed(new Error(`rung serve ended: ${output}`)));
        });
        await use(address);
    } finally {
        end(server);
    }
}

const ROWS = 300;

async function database(client, folder) {
    const dir = join(folder, 'harbour.db');
    const facts = Array.from({ length: ROWS }, (_, n) => `{:n ${n} :text "ROWLINE number ${String(n).padStart(5, '0')}"}`);
    await rung(folder, 'db', 'transact', dir, `[${facts.join('')}]`);
    const command = [RUNG, 'db', 'mcp', '--root', folder, '--home', join(folder, 'rung')];
    const label = `${client} database`;
    await converse(client, label, folder, 'rung', command, async call => {
        const opened = await call('datalevin_open_database', { dir });
        const [id] = /database-[0-9a-f-]{36}/.exec(opened.text) ?? [];
        check(`${label} open`, 'shows the id of the database', id !== undefined, opened);

        const query = '[:find ?n ?t :where [?e :n ?n] [?e :text ?t]]';
        const shown = await call('datalevin_query', { database: id, query });
        const seen = new Set(numberedLines(shown.text));
        check(`${label} query`, `shows the first 200 of ${ROWS} rows (${seen.size})`, seen.size === 200, shown);
        check(`${label} query`, 'says that it is cut', /truncated/.test(shown.text), shown);
        let args = continuation('rung.read', shown);
        check(`${label} query`, 'names the handle of the stored result and how to continue',
            /^res_[0-9a-z]{26}$/.test(args?.handle), shown);
        for (let parts = 0; args && parts < 10; parts++) {
            const part = await call('rung.read', args);
            const lines = numberedLines(part.text);
            if (!parts) check(`${label} rung.read`, 'continues with new rows', lines.length > 0 && lines.every(line => !seen.has(line)), part);
            for (const line of lines) seen.add(line);
            args = continuation('rung.read', part);
        }
        check(`${label} rung.read`, `shows all ${ROWS} rows in the end (${seen.size})`, seen.size === ROWS);

        const bad = await call('datalevin_query', { database: id, query: '[:find ?n ?t :where [?e :n ?n]]' });
        check(`${label} bad query`, 'shows the error with its code', /:tool-error/.test(bad.text) && bad.text.includes('?t is in :find'), bad);
        const other = await call('datalevin_query', { database: 'none', query });
        check(`${label} unknown database`, 'shows the error with its code', /unknown-database/.test(other.text), other);
    });
}

// --- The run -----------------------------------------------------------------------------------

const scenarios = { gateway, data, database };
const queue = Object.entries(scenarios).flatMap(([name, scenario]) => Object.keys(clients).map(client => ({ client, name, scenario })));
const selected = queue.filter(({ client, name }) => words.every(word => word === client || word === name));
if (!selected.length) {
    console.error(`nothing is named ${words.join(' ')}`);
    process.exit(2);
}

const started = Date.now();
const temporary = mkdtempSync(join(tmpdir(), 'rung-clients-'));
await new Promise(listening => model.listen(0, '127.0.0.1', listening));
async function worker() {
    for (let next; (next = selected.shift()); ) {
        const { client, name, scenario } = next;
        const folder = join(temporary, `${client}-${name}`);
        mkdirSync(folder);
        try {
            await scenario(client, folder);
        } catch (error) {
            check(`${client} ${name}`, `runs to its end: ${error.message.trim().replaceAll('\n', ' | ').slice(0, 600)}`, false);
        }
    }
}
await Promise.all(Array.from({ length: CONCURRENCY }, worker));
model.closeAllConnections();
model.close();
rmSync(temporary, { recursive: true, force: true, maxRetries: 5 });
console.log(`${counts.passed} passed, ${counts.failed} failed, in ${((Date.now() - started) / 1000).toFixed(1)} s`);
process.exitCode = counts.failed ? 1 : 0;
