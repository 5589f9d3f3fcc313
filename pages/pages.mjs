// Drives the owner's pages in a real browser, as a person would: with a mouse, with the keyboard alone, on a phone, in the dark,
// and with scripts switched off. `node pages.mjs RUNG FOLDER` leaves a picture of every page in FOLDER.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium } from 'playwright-core';

const rung = resolve(process.argv[2]);
const pictures = resolve(process.argv[3]);
const home = mkdtempSync(join(tmpdir(), 'pages-'));
mkdirSync(pictures, { recursive: true });
const axe = readFileSync(new URL('./node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');
const environment = { PATH: process.env.PATH, HOME: home };
const run = (...args) => execFileSync(rung, args, { cwd: home, env: environment, encoding: 'utf8' });
const checks = [];
const ended = [];

// A person's data, and a server for it.
run('demo', '--prepare', '--home', join(home, 'data'));
const password = 'correct horse battery';
// A database and a downstream server, which a token may reach as well.
mkdirSync(join(home, '.config/rung'), { recursive: true });
writeFileSync(join(home, '.config/rung/config.toml'), `
[databases.people]
dir = "people.db"
mode = "write"
[sources.printer]
command = ["/usr/bin/env", "true"]
`);
execFileSync(rung, ['pdpp', 'password', '--stdin', '--home', join(home, 'data')], { cwd: home, env: environment, input: password });
const server = spawn(rung, ['serve', '--listen', '127.0.0.1:0', '--home', join(home, 'data')], { cwd: home, env: environment });
ended.push(() => server.kill());
const here = await new Promise((found, failed) => {
  let said = '';
  server.stderr.on('data', (bytes) => {
    said += bytes;
    const at = said.match(/listening at (http:\/\/[^/]+)/);
    if (at) found(at[1]);
  });
  server.on('exit', () => failed(new Error(`the server ended: ${said}`)));
});

// An application that sends the owner over and waits for a code.
let came;
const application = createServer((request, response) => {
  came?.(new URL(request.url, 'http://app'));
  response.setHeader('content-type', 'text/html').end('<!doctype html><html lang="en"><title>App</title><p>Thank you.</p>');
});
await new Promise((listening) => application.listen(0, '127.0.0.1', listening));
ended.push(() => application.close());
const redirect = `http://127.0.0.1:${application.address().port}/callback`;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--force-color-profile=srgb'],
});
ended.push(() => browser.close());

async function post(path, body) {
  const response = await fetch(here + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  return { status: response.status, body: await response.json() };
}

const client = (await post('/oauth/register', {
  client_name: 'Shelf Finder <b>', redirect_uris: [redirect], grant_types: ['authorization_code', 'refresh_token'],
})).body.client_id;

function authorize(details) {
  const verifier = randomBytes(40).toString('base64url');
  const query = new URLSearchParams({
    response_type: 'code', client_id: client, redirect_uri: redirect, state: 'st&ate', resource: `${here}/mcp`,
    code_challenge: createHash('sha256').update(verifier).digest('base64url'), code_challenge_method: 'S256',
  });
  if (details) query.set('authorization_details', JSON.stringify(details));
  return { url: `${here}/oauth/authorize?${query}`, verifier };
}

async function redeem(code, verifier) {
  const body = new URLSearchParams({ grant_type: 'authorization_code', code, client_id: client, redirect_uri: redirect, code_verifier: verifier });
  const response = await fetch(`${here}/oauth/token`, { method: 'POST', body });
  return { status: response.status, body: await response.json() };
}

/** A page is there, whole, readable by machines for people, and as narrow as its window. */
async function looked(page, name) {
  const foreign = [];
  page.on('request', (request) => new URL(request.url()).origin === here || foreign.push(request.url()));
  await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `${name} is ${wide} pixels wider than its window`);
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }));
  const wrong = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(' ')}`);
  assert.deepEqual(wrong, [], `${name} can be read by everybody`);
  assert.deepEqual(foreign, [], `${name} asks nobody else`);
}

async function check(name, work, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 800 }, ...options });
  const page = await context.newPage();
  const said = [];
  page.on('console', (message) => message.type() === 'error' && said.push(message.text()));
  try {
    await work(page, context);
    assert.deepEqual(said.filter((line) => !/status of (401|403|404|429|400)/.test(line)), [], 'the browser has nothing to say against it');
    checks.push(name);
    console.log(`passed  ${name}`);
  } catch (error) {
    await page.screenshot({ path: join(pictures, 'failed.png'), fullPage: true }).catch(() => {});
    console.error(`FAILED  ${name}`);
    throw error;
  } finally {
    await context.close();
  }
}

async function signIn(page) {
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

const mail = [{
  type: 'https://pdpp.dev/data-access', source: { kind: 'connector', id: 'mail' }, access_mode: 'continuous',
  purpose_code: 'https://pdpp.dev/purpose/personalization', purpose_description: 'finds books <script>alert(1)</script>',
  retention: { max_duration: 'P30D', on_expiry: 'delete' },
  streams: [{ name: 'messages', fields: ['from', 'subject', 'body', 'sent_at'] }, { name: 'threads', necessity: 'optional' }],
}];

try {
  await check('an application gets what the owner narrowed, and nothing else', async (page) => {
    const { url, verifier } = authorize(mail);
    const wrong = await page.goto(url);
    assert.match(page.url(), /\/owner\/login\?next=/, 'whoever is not signed in signs in first');
    for (const [name, value] of [['x-frame-options', 'DENY'], ['referrer-policy', 'same-origin'], ['x-content-type-options', 'nosniff']]) {
      assert.equal(wrong.headers()[name], value);
    }
    assert.match(wrong.headers()['content-security-policy'], /default-src 'none'.*frame-ancestors 'none'/);
    await looked(page, 'sign-in');
    await page.getByLabel('Password').fill('wrong password');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').waitFor();
    await looked(page, 'sign-in-wrong');
    await signIn(page);
    await page.getByRole('heading', { name: 'Shelf Finder <b> asks to read your data' }).waitFor();
    await page.getByText('finds books <script>alert(1)</script>').waitFor();
    await page.getByText('See 3 of them').first().click();
    await looked(page, 'consent');
    // Without the threads, without the bodies, and only this year's autumn.
    await page.getByRole('checkbox', { name: 'threads' }).uncheck();
    await page.getByText(/^\d+ fields, choose which$/).first().click();
    await page.getByRole('checkbox', { name: 'body' }).uncheck();
    await page.getByLabel('Only what is from').fill('2026-09-01');
    await page.getByLabel('It ends').selectOption('30');
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByRole('heading', { name: 'will be able to read this' }).waitFor();
    const told = await page.getByRole('main').innerText();
    // What was chosen is still chosen when one goes back.
    await page.getByRole('button', { name: 'Change it' }).click();
    assert.equal(await page.getByRole('checkbox', { name: 'threads' }).isChecked(), false);
    assert.equal(await page.getByRole('checkbox', { name: 'body' }).isChecked(), false);
    assert.equal(await page.getByLabel('Only what is from').inputValue(), '2026-09-01');
    assert.equal(await page.getByLabel('It ends').inputValue(), '30');
    await page.getByRole('button', { name: 'Go on' }).click();
    assert.match(told, /Only from 1 September 2026 on/);
    assert.doesNotMatch(told, /body|threads/);
    await page.getByText(/^See \d of them$/).first().click();
    await looked(page, 'review');
    const arrived = new Promise((found) => { came = found; });
    await page.getByRole('button', { name: 'Allow it' }).click();
    const back = (await arrived).searchParams;
    assert.equal(back.get('state'), 'st&ate');
    assert.equal(back.get('iss'), here);
    const given = await redeem(back.get('code'), verifier);
    assert.equal(given.status, 200, JSON.stringify(given.body));
    const bearer = { authorization: `Bearer ${given.body.access_token}` };
    const read = await (await fetch(`${here}/v1/streams/messages/records?limit=100`, { headers: bearer })).json();
    assert.ok(read.data.length > 0);
    for (const record of read.data) {
      assert.deepEqual(Object.keys(record.data).sort(), ['from', 'id', 'sent_at', 'subject']);
      assert.ok(record.data.sent_at >= '2026-09-01');
    }
    const threads = await fetch(`${here}/v1/streams/threads/records`, { headers: bearer });
    assert.equal(threads.status, 403);

    // The owner sees it, sees that it was used, and takes it back.
    await page.goto(`${here}/owner/grants`);
    await looked(page, 'grants');
    const row = page.getByRole('row').filter({ hasText: 'Shelf Finder' });
    assert.doesNotMatch(await row.innerText(), /never/);
    await row.getByRole('link').click();
    await page.getByText('/v1/streams/messages/records').first().waitFor();
    await looked(page, 'grant');
    await page.goto(`${here}/owner/grants`);
    await row.getByRole('button', { name: /Take it back/ }).click();
    await row.getByText('taken back').waitFor();
    const after = await fetch(`${here}/v1/streams/messages/records`, { headers: bearer });
    assert.equal(after.status, 403);
    assert.equal((await after.json()).error.code, 'grant_revoked');
  });

  await check('the owner sees all that a token reaches, and ends all of it', async (page) => {
    writeFileSync(join(home, 'grant.toml'), `
expires = 2999-01-31
[budget]
reply_bytes = 20000
[[personal_data]]
source = "mail"
[[personal_data.streams]]
name = "messages"
fields = ["subject"]
[[databases]]
name = "people"
mode = "write"
attributes = ["person/*"]
[[servers]]
name = "printer"
tools = ["print", "scan"]
`);
    const token = run('token', 'new', 'assistant', '--grant', 'grant.toml', '--home', join(home, 'data')).trim();
    const listed = async () => (await fetch(`${here}/mcp`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'pages', version: '1' } } }),
    })).status;
    assert.equal(await listed(), 200);
    await page.goto(`${here}/owner/grants`);
    await signIn(page);
    const row = page.getByRole('row').filter({ hasText: 'assistant' });
    const what = await row.innerText();
    for (const reached of ['mail: messages', 'database people', 'server printer']) assert.ok(what.includes(reached), what);
    await row.getByRole('link').click();
    await page.getByRole('heading', { name: 'What assistant may reach' }).waitFor();
    const shown = await page.getByRole('main').innerText();
    for (const reached of ['until 31 January 2999', '20000 bytes', 'messages', 'Fields: id, subject', 'Database people', 'Mode: read and write',
      'Attributes: person/*', 'Server printer', 'Tools: print, scan', 'ends all of this at once']) {
      assert.ok(shown.includes(reached), `${reached} is not in ${shown}`);
    }
    await looked(page, 'grant-token');
    await page.getByRole('button', { name: 'Take it back' }).click();
    await page.waitForURL(`${here}/owner/grants`);
    await row.getByText('taken back').waitFor();
    assert.equal(await listed(), 401);
  });

  await check('the keyboard alone is enough', async (page) => {
    const { url } = authorize(mail);
    await page.goto(url);
    await page.locator('#password:focus').waitFor();
    await page.keyboard.type(password);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'asks to read your data' }).waitFor();
    const press = async (name) => {
      for (let tabs = 0; tabs < 60; tabs += 1) {
        await page.keyboard.press('Tab');
        const focused = await page.evaluate(() => document.activeElement.innerText);
        if (focused === name) {
          const outlined = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
          assert.notEqual(outlined, 'none', 'what is focused can be seen');
          return page.keyboard.press('Enter');
        }
      }
      throw new Error(`${name} is not reached by the keyboard`);
    };
    await press('Go on');
    await page.getByRole('heading', { name: 'will be able to read this' }).waitFor();
    const arrived = new Promise((found) => { came = found; });
    await press('Say no');
    assert.equal((await arrived).searchParams.get('error'), 'access_denied');
  });

  await check('on a phone, in the dark, without scripts, the owner picks for an agent', async (page, context) => {
    const { url, verifier } = authorize();
    await page.goto(url);
    await signIn(page);
    await page.getByRole('heading', { name: 'asks to read what you choose' }).waitFor();
    await page.screenshot({ path: join(pictures, 'picker-phone-dark.png'), fullPage: true });
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByRole('alert').getByText(/choose at least one source/i).waitFor();
    assert.equal(await page.getByRole('checkbox', { name: 'Notes', exact: true }).isChecked(), false);
    for (const source of ['Notes', 'Calendar']) await page.getByRole('checkbox', { name: source, exact: true }).check();
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByRole('heading', { name: 'will be able to read this' }).waitFor();
    await page.screenshot({ path: join(pictures, 'picker-review-phone-dark.png'), fullPage: true });
    const arrived = new Promise((found) => { came = found; });
    await page.getByRole('button', { name: 'Allow it' }).click();
    const given = await redeem((await arrived).searchParams.get('code'), verifier);
    assert.match(given.body.grant_package_id, /^gpkg_/);
    assert.equal(given.body.authorization_details.length, 2);
    const cookies = await context.cookies();
    assert.ok(cookies.every((cookie) => cookie.httpOnly && cookie.sameSite === 'Lax'), JSON.stringify(cookies));
  }, { viewport: { width: 360, height: 740 }, colorScheme: 'dark', javaScriptEnabled: false });

  await check('a device shows a code, and the owner types it in', async (page) => {
    const body = new URLSearchParams({ client_id: 'cli_longview' });
    const device = await (await fetch(`${here}/oauth/device_authorization`, { method: 'POST', body })).json();
    const poll = async () => {
      const body = new URLSearchParams({ grant_type: 'urn:ietf:params:oauth:grant-type:device_code', device_code: device.device_code, client_id: 'cli_longview' });
      return (await fetch(`${here}/oauth/token`, { method: 'POST', body })).json();
    };
    assert.equal((await poll()).error, 'authorization_pending');
    await page.goto(device.verification_uri);
    await signIn(page);
    await page.getByLabel('Code').fill('xxxx-xxxx');
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByRole('alert').waitFor();
    await looked(page, 'device');
    await page.getByLabel('Code').fill(device.user_code.toLowerCase().replace('-', ' '));
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByText(device.user_code).waitFor();
    await looked(page, 'device-consent');
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByRole('button', { name: 'Allow it' }).click();
    await page.getByRole('heading', { name: 'It is allowed' }).waitFor();
    await looked(page, 'allowed');
    const given = await poll();
    assert.equal(given.scope, 'pdpp:owner');
    assert.equal((await poll()).error, 'invalid_grant', 'it is handed over once');
    // A tool of the owner's own is ended as easily as it was let in.
    const bearer = { authorization: `Bearer ${given.access_token}` };
    assert.equal((await fetch(`${here}/v1/connections`, { headers: bearer })).status, 200);
    await page.goto(`${here}/owner/grants`);
    await looked(page, 'grants-tools');
    await page.getByRole('button', { name: /End it: cli_longview/ }).click();
    await page.waitForLoadState();
    assert.equal((await fetch(`${here}/v1/connections`, { headers: bearer })).status, 401);
  });

  await check('a command is connected, in the dark', async (page) => {
    const cache = join(home, 'cache');
    const connecting = spawn(rung, ['pdpp', 'connect', here, '--no-browser', '--cache-root', cache], { cwd: home, env: environment });
    let printed = '';
    connecting.stdout.on('data', (bytes) => { printed += bytes; });
    const url = await new Promise((found) => {
      let said = '';
      connecting.stderr.on('data', (bytes) => {
        said += bytes;
        const at = said.match(/approve it here: (\S+)/);
        if (at) found(at[1]);
      });
    });
    await page.goto(url);
    await signIn(page);
    await page.getByRole('radio', { name: 'Shop' }).check();
    await looked(page, 'connect-dark');
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByRole('button', { name: 'Allow it' }).click();
    await page.getByRole('heading', { name: 'It is allowed' }).waitFor();
    assert.equal(await new Promise((exit) => connecting.on('exit', exit)), 0);
    assert.match(printed, /connected to .*\ngrant grt_.*\n {2}shop\/orders\nkept in /s);
    assert.ok(existsSync(join(cache, 'clients', `${new URL(here).host.replace(':', '_')}.json`)));
    assert.match(run('pdpp', 'whoami', here, '--cache-root', cache), /stream +shop\/orders/);
  }, { colorScheme: 'dark' });

  await check('nobody else can decide in the owner\'s place', async (page, context) => {
    const pushed = (await post('/oauth/par', { client_id: 'longview', authorization_details: mail })).body;
    const review = await post('/consent/review', { request_uri: pushed.request_uri });
    assert.equal(review.status, 401);
    assert.equal(review.body.error.code, 'owner_session_required');
    await page.goto(pushed.authorization_url);
    await signIn(page);
    // Another site's form, with the owner's cookies.
    const elsewhere = createServer((_, response) => response.setHeader('content-type', 'text/html').end(
      `<form method="post" action="${here}/consent/review"><input name="request_uri" value="${pushed.request_uri}"><input name="source" value="0"><button>Win</button></form>`));
    await new Promise((listening) => elsewhere.listen(0, '127.0.0.1', listening));
    // From another site the owner is nobody; from another program on the same machine, the form's own secret is missing.
    for (const [host, answer] of [['localhost', /has to sign in/], ['127.0.0.1', /not sent by one of our pages/]]) {
      const other = await context.newPage();
      await other.goto(`http://${host}:${elsewhere.address().port}/`);
      await other.getByRole('button', { name: 'Win' }).click();
      await other.getByRole('heading', { name: 'That did not work' }).waitFor();
      assert.match(await other.getByRole('main').innerText(), answer);
    }
    elsewhere.close();
    // And nobody frames the page.
    const framing = createServer((_, response) => response.setHeader('content-type', 'text/html').end(`<iframe src="${pushed.authorization_url}"></iframe>`));
    await new Promise((listening) => framing.listen(0, '127.0.0.1', listening));
    const framed = await context.newPage();
    await framed.goto(`http://127.0.0.1:${framing.address().port}/`);
    const inside = framed.frames()[1];
    assert.ok(!inside || !(await inside.content()).includes('Shelf Finder'));
    framing.close();
    // A session ends where the owner says so.
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.goto(`${here}/owner/grants`);
    assert.match(page.url(), /\/owner\/login/);
  });

  console.log(`${checks.length} checks; pictures are in ${pictures}`);
} finally {
  for (const end of ended.reverse()) await end();
  rmSync(home, { recursive: true, force: true });
}
