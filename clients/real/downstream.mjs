// A downstream MCP server over stdio, legacy protocol. Its tools return what run.mjs checks:
// text (as many bytes as `bytes` says), big (520 KB of text), shot (text and a picture), structured, fail.

import { createInterface } from 'node:readline';

// A picture of one pixel.
const PICTURE = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const PARTS = Array.from({ length: 40 }, (_, n) => ({ part: `P-${1000 + n}`, name: `gear number ${n}`, stock: n * 7 }));

function lines(prefix, bytes, rest = '') {
    let text = '';
    for (let n = 0; text.length < bytes; n++) text += `${prefix} number ${String(n).padStart(5, '0')}${rest}\n`;
    return text;
}
// Prose, which has about as many tokens as a quarter of its bytes.
const PROSE = ': the harbour master writes down which boats came in before the tide turned, and which of them stayed out.';

const none = { type: 'object' };
const tools = {
    text: {
        description: 'Return a text of some size',
        inputSchema: { type: 'object', properties: { bytes: { type: 'integer' } }, required: ['bytes'] },
        call: ({ bytes }) => ({ content: [{ type: 'text', text: lines('TEXTLINE', bytes, PROSE) }] }),
    },
    big: {
        description: 'Return a very long text',
        inputSchema: none,
        call: () => ({ content: [{ type: 'text', text: lines('PREVIEWLINE', 520_000) }] }),
    },
    shot: {
        description: 'Take a picture',
        inputSchema: none,
        call: () => ({
            content: [
                { type: 'text', text: 'The picture of the harbour' },
                { type: 'image', data: PICTURE, mimeType: 'image/png' },
            ],
        }),
    },
    structured: {
        description: 'List the parts',
        inputSchema: none,
        outputSchema: {
            type: 'object',
            properties: { total: { type: 'integer' }, parts: { type: 'array', items: { type: 'object' } } },
            required: ['total', 'parts'],
        },
        call: () => {
            const structuredContent = { total: PARTS.length, parts: PARTS };
            return { content: [{ type: 'text', text: JSON.stringify(structuredContent) }], structuredContent };
        },
    },
    fail: {
        description: 'Fail',
        inputSchema: none,
        call: () => ({ content: [{ type: 'text', text: 'FAILLINE the harbour is closed until Monday' }], isError: true }),
    },
};

function buildResult({ method, params }) {
    switch (method) {
        case 'initialize':
            return {
                protocolVersion: params.protocolVersion,
                capabilities: { tools: {} },
                serverInfo: { name: 'downstream', version: '1' },
            };
        case 'ping':
            return {};
        case 'tools/list':
            return { tools: Object.entries(tools).map(([name, { call, ...definition }]) => ({ name, ...definition })) };
        case 'tools/call':
            return tools[params.name]?.call(params.arguments ?? {});
    }
}

createInterface({ input: process.stdin }).on('line', line => {
    const request = JSON.parse(line);
    if (request.id === undefined) return;
    const result = buildResult(request);
    const outcome = result ? { result } : { error: { code: -32601, message: `unknown: ${request.method}` } };
    process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id: request.id, ...outcome }) + '\n');
});
