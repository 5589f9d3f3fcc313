// Tests the owner's pages in Chromium: with the mouse, with the keyboard alone, on a phone, with dark colors, and without
// JavaScript. `node pages.mjs RUNG FOLDER` saves a screenshot of every page in FOLDER.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium } from 'playwright-core';

const rung = resolve(process.argv[2]);
const screenshots = resolve(process.argv[3]);
const home = mkdtempSync(join(tmpdir(), 'pages-'));
mkdirSync(screenshots, { recursive: true });
const axe = readFileSync(new URL('./node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');
const environment = { PATH: process.env.PATH, HOME: home };
const run = (...args) => execFileSync(rung, args, { cwd: home, env: environment, encoding: 'utf8' });
const checks = [];
const cleanups = [];

// Sample data and a server for it.
run('demo', '--prepare', '--home', join(home, 'data'));
const password = 'correct horse battery';
// A database and a downstream server for the grant of a token.
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
cleanups.push(() => server.kill());
const serverOrigin = await new Promise((found, failed) => {
  let output = '';
  server.stderr.on('data', (bytes) => {
    output += bytes;
    const match = output.match(/listening at (http:\/\/[^/]+)/);
    if (match) found(match[1]);
  });
  server.on('exit', () => failed(new Error(`the server ended: ${output}`)));
});

// A client application that waits for the redirect with the authorization code.
let onRedirect;
const application = createServer((request, response) => {
  onRedirect?.(new URL(request.url, 'http://app'));
  response.setHeader('content-type', 'text/html').end('<!doctype html><html lang="en"><title>App</title><p>Thank you.</p>');
});
await new Promise((listening) => application.listen(0, '127.0.0.1', listening));
cleanups.push(() => application.close());
const redirect = `http://127.0.0.1:${application.address().port}/callback`;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--force-color-profile=srgb'],
});
cleanups.push(() => browser.close());

async function post(path, body) {
  const response = await fetch(serverOrigin + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  return { status: response.status, body: await response.json() };
}

const client = (await post('/oauth/register', {
  client_name: 'Shelf Finder <b>', redirect_uris: [redirect], grant_types: ['authorization_code', 'refresh_token'],
})).body.client_id;

function authorize(details) {
  const verifier = randomBytes(40).toString('base64url');
  const query = new URLSearchParams({
    response_type: 'code', client_id: client, redirect_uri: redirect, state: 'st&ate', resource: `${serverOrigin}/mcp`,
    code_challenge: createHash('sha256').update(verifier).digest('base64url'), code_challenge_method: 'S256',
  });
  if (details) query.set('authorization_details', JSON.stringify(details));
  return { url: `${serverOrigin}/oauth/authorize?${query}`, verifier };
}

async function redeem(code, verifier) {
  const body = new URLSearchParams({ grant_type: 'authorization_code', code, client_id: client, redirect_uri: redirect, code_verifier: verifier });
  const response = await fetch(`${serverOrigin}/oauth/token`, { method: 'POST', body });
  return { status: response.status, body: await response.json() };
}

/** Takes a screenshot; the page must fit its window, pass axe, and load nothing from another origin. */
async function checkPage(page, name) {
  const otherOrigins = [];
  page.on('request', (request) => new URL(request.url()).origin === serverOrigin || otherOrigins.push(request.url()));
  await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true });
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(excess <= 0, `${name} is ${excess} pixels wider than its window`);
  await page.evaluate(axe);
  const report = await page.evaluate(() => globalThis.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }));
  const violations = report.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(' ')}`);
  assert.deepEqual(violations, [], `${name} is accessible`);
  assert.deepEqual(otherOrigins, [], `${name} loads nothing from other origins`);
}

async function check(name, work, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 800 }, ...options });
  const page = await context.newPage();
  const errors = [];
  page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
  try {
    await work(page, context);
    assert.deepEqual(errors.filter((line) => !/status of (401|403|404|429|400)/.test(line)), [], 'the browser console has no errors');
    checks.push(name);
    console.log(`passed  ${name}`);
  } catch (error) {
    await page.screenshot({ path: join(screenshots, 'failed.png'), fullPage: true }).catch(() => {});
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
  await check('an application reads only what the owner allows', async (page) => {
    const { url, verifier } = authorize(mail);
    const signInResponse = await page.goto(url);
    assert.match(page.url(), /\/owner\/login\?next=/, 'an owner without a session must sign in first');
    for (const [name, value] of [['x-frame-options', 'DENY'], ['referrer-policy', 'same-origin'], ['x-content-type-options', 'nosniff']]) {
      assert.equal(signInResponse.headers()[name], value);
    }
    assert.match(signInResponse.headers()['content-security-policy'], /default-src 'none'.*frame-ancestors 'none'/);
    await checkPage(page, 'sign-in');
    await page.getByLabel('Password').fill('wrong password');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').waitFor();
    await checkPage(page, 'sign-in-wrong');
    await signIn(page);
    await page.getByRole('heading', { name: 'Shelf Finder <b> asks to read your data' }).waitFor();
    await page.getByText('finds books <script>alert(1)</script>').waitFor();
    await page.getByText('See 3 of them').first().click();
    await checkPage(page, 'consent');
    // Exclude the threads and the bodies, and allow only records from September 2026 on.
    await page.getByRole('checkbox', { name: 'threads' }).uncheck();
    await page.getByText(/^\d+ fields, choose which$/).first().click();
    await page.getByRole('checkbox', { name: 'body' }).uncheck();
    await page.getByLabel('Only records from').fill('2026-09-01');
    await page.getByLabel('Access ends').selectOption('30');
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('heading', { name: 'will be able to read this' }).waitFor();
    const review = await page.getByRole('main').innerText();
    // Going back keeps the choices.
    await page.getByRole('button', { name: 'Change' }).click();
    assert.equal(await page.getByRole('checkbox', { name: 'threads' }).isChecked(), false);
    assert.equal(await page.getByRole('checkbox', { name: 'body' }).isChecked(), false);
    assert.equal(await page.getByLabel('Only records from').inputValue(), '2026-09-01');
    assert.equal(await page.getByLabel('Access ends').inputValue(), '30');
    await page.getByRole('button', { name: 'Continue' }).click();
    assert.match(review, /Only from 1 September 2026 on/);
    assert.doesNotMatch(review, /body|threads/);
    await page.getByText(/^See \d of them$/).first().click();
    await checkPage(page, 'review');
    const redirected = new Promise((resolve) => { onRedirect = resolve; });
    await page.getByRole('button', { name: 'Approve' }).click();
    const callback = (await redirected).searchParams;
    assert.equal(callback.get('state'), 'st&ate');
    assert.equal(callback.get('iss'), serverOrigin);
    const token = await redeem(callback.get('code'), verifier);
    assert.equal(token.status, 200, JSON.stringify(token.body));
    const bearer = { authorization: `Bearer ${token.body.access_token}` };
    const records = await (await fetch(`${serverOrigin}/v1/streams/messages/records?limit=100`, { headers: bearer })).json();
    assert.ok(records.data.length > 0);
    for (const record of records.data) {
      assert.deepEqual(Object.keys(record.data).sort(), ['from', 'id', 'sent_at', 'subject']);
      assert.ok(record.data.sent_at >= '2026-09-01');
    }
    const threads = await fetch(`${serverOrigin}/v1/streams/threads/records`, { headers: bearer });
    assert.equal(threads.status, 403);

    // The owner sees the grant and its use, and revokes it.
    await page.goto(`${serverOrigin}/owner/grants`);
    await checkPage(page, 'grants');
    const row = page.getByRole('row').filter({ hasText: 'Shelf Finder' });
    assert.doesNotMatch(await row.innerText(), /never/);
    await row.getByRole('link').click();
    await page.getByText('/v1/streams/messages/records').first().waitFor();
    await checkPage(page, 'grant');
    await page.goto(`${serverOrigin}/owner/grants`);
    await row.getByRole('button', { name: /Revoke/ }).click();
    await page.getByRole('heading', { name: 'Revoke access of Shelf Finder <b>?' }).waitFor();
    assert.match(await page.getByRole('main').innerText(), /mail: messages/);
    await checkPage(page, 'revoke');
    // Opening the page revokes nothing.
    assert.equal((await fetch(`${serverOrigin}/v1/streams/messages/records`, { headers: bearer })).status, 200);
    await page.getByRole('link', { name: 'Cancel' }).click();
    await row.getByRole('button', { name: /Revoke/ }).click();
    await page.getByRole('button', { name: 'Revoke' }).click();
    await page.waitForURL(`${serverOrigin}/owner/grants`);
    await row.getByText('revoked').waitFor();
    const after = await fetch(`${serverOrigin}/v1/streams/messages/records`, { headers: bearer });
    assert.equal(after.status, 403);
    assert.equal((await after.json()).error.code, 'grant_revoked');
  });

  await check('the owner sees everything a token may reach and revokes the token', async (page) => {
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
    const initializeStatus = async () => (await fetch(`${serverOrigin}/mcp`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'pages', version: '1' } } }),
    })).status;
    assert.equal(await initializeStatus(), 200);
    await page.goto(`${serverOrigin}/owner/grants`);
    await signIn(page);
    const row = page.getByRole('row').filter({ hasText: 'assistant' });
    const rowText = await row.innerText();
    for (const reached of ['mail: messages', 'database people', 'server printer']) assert.ok(rowText.includes(reached), rowText);
    await row.getByRole('link').click();
    await page.getByRole('heading', { name: 'Access of assistant' }).waitFor();
    const text = await page.getByRole('main').innerText();
    for (const reached of ['until 31 January 2999', '20000 bytes', 'messages', 'Fields: id, subject', 'Database people', 'Mode: read and write',
      'Attributes: person/*', 'Server printer', 'Tools: print, scan', 'ends all of this at once']) {
      assert.ok(text.includes(reached), `${reached} is not in ${text}`);
    }
    await checkPage(page, 'grant-token');
    await page.getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('heading', { name: 'Revoke access of assistant?' }).waitFor();
    const ends = await page.getByRole('main').innerText();
    for (const reached of ['mail: messages', 'database people', 'server printer']) assert.ok(ends.includes(reached), ends);
    await page.getByRole('button', { name: 'Revoke' }).click();
    await page.waitForURL(`${serverOrigin}/owner/grants`);
    await row.getByText('revoked').waitFor();
    assert.equal(await initializeStatus(), 401);
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
          assert.notEqual(outlined, 'none', 'the focused element is visible');
          return page.keyboard.press('Enter');
        }
      }
      throw new Error(`${name} is not reached by the keyboard`);
    };
    await press('Continue');
    await page.getByRole('heading', { name: 'will be able to read this' }).waitFor();
    const redirected = new Promise((resolve) => { onRedirect = resolve; });
    await press('Deny');
    assert.equal((await redirected).searchParams.get('error'), 'access_denied');
  });

  await check('on a phone, with dark colors and without JavaScript, the owner selects sources for an agent', async (page, context) => {
    const { url, verifier } = authorize();
    await page.goto(url);
    await signIn(page);
    await page.getByRole('heading', { name: 'asks to read what you choose' }).waitFor();
    await page.screenshot({ path: join(screenshots, 'picker-phone-dark.png'), fullPage: true });
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('alert').getByText(/choose at least one source/i).waitFor();
    assert.equal(await page.getByRole('checkbox', { name: 'Notes', exact: true }).isChecked(), false);
    for (const source of ['Notes', 'Calendar']) await page.getByRole('checkbox', { name: source, exact: true }).check();
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('heading', { name: 'will be able to read this' }).waitFor();
    await page.screenshot({ path: join(screenshots, 'picker-review-phone-dark.png'), fullPage: true });
    const redirected = new Promise((resolve) => { onRedirect = resolve; });
    await page.getByRole('button', { name: 'Approve' }).click();
    const token = await redeem((await redirected).searchParams.get('code'), verifier);
    assert.match(token.body.grant_package_id, /^gpkg_/);
    assert.equal(token.body.authorization_details.length, 2);
    const cookies = await context.cookies();
    assert.ok(cookies.every((cookie) => cookie.httpOnly && cookie.sameSite === 'Lax'), JSON.stringify(cookies));
  }, { viewport: { width: 360, height: 740 }, colorScheme: 'dark', javaScriptEnabled: false });

  await check('the owner enters the code of a device', async (page) => {
    const body = new URLSearchParams({ client_id: 'cli_longview' });
    const device = await (await fetch(`${serverOrigin}/oauth/device_authorization`, { method: 'POST', body })).json();
    const poll = async () => {
      const body = new URLSearchParams({ grant_type: 'urn:ietf:params:oauth:grant-type:device_code', device_code: device.device_code, client_id: 'cli_longview' });
      return (await fetch(`${serverOrigin}/oauth/token`, { method: 'POST', body })).json();
    };
    assert.equal((await poll()).error, 'authorization_pending');
    await page.goto(device.verification_uri);
    await signIn(page);
    await page.getByLabel('Code').fill('xxxx-xxxx');
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('alert').waitFor();
    await checkPage(page, 'device');
    await page.getByLabel('Code').fill(device.user_code.toLowerCase().replace('-', ' '));
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByText(device.user_code).waitFor();
    await checkPage(page, 'device-consent');
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('button', { name: 'Approve' }).click();
    await page.getByRole('heading', { name: 'Approved' }).waitFor();
    await checkPage(page, 'allowed');
    const token = await poll();
    assert.equal(token.scope, 'pdpp:owner');
    assert.equal((await poll()).error, 'invalid_grant', 'the device code is redeemed once');
    // The owner ends the access of the device.
    const bearer = { authorization: `Bearer ${token.access_token}` };
    assert.equal((await fetch(`${serverOrigin}/v1/connections`, { headers: bearer })).status, 200);
    await page.goto(`${serverOrigin}/owner/grants`);
    await checkPage(page, 'grants-tools');
    await page.getByRole('button', { name: /Revoke: cli_longview/ }).click();
    await page.getByRole('heading', { name: /Revoke access of cli_longview/ }).waitFor();
    await checkPage(page, 'revoke-tool');
    await page.getByRole('button', { name: 'Revoke' }).click();
    await page.waitForURL(`${serverOrigin}/owner/grants`);
    assert.equal((await fetch(`${serverOrigin}/v1/connections`, { headers: bearer })).status, 401);
  });

  await check('`rung pdpp connect` gets a grant, with dark colors', async (page) => {
    const cache = join(home, 'cache');
    const connecting = spawn(rung, ['pdpp', 'connect', serverOrigin, '--no-browser', '--cache-root', cache], { cwd: home, env: environment });
    let printed = '';
    connecting.stdout.on('data', (bytes) => { printed += bytes; });
    const url = await new Promise((found) => {
      let output = '';
      connecting.stderr.on('data', (bytes) => {
        output += bytes;
        const match = output.match(/approve the request at (\S+)/);
        if (match) found(match[1]);
      });
    });
    await page.goto(url);
    await signIn(page);
    await page.getByRole('radio', { name: 'Shop' }).check();
    await checkPage(page, 'connect-dark');
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('button', { name: 'Approve' }).click();
    await page.getByRole('heading', { name: 'Approved' }).waitFor();
    assert.equal(await new Promise((exit) => connecting.on('exit', exit)), 0);
    assert.match(printed, /connected to .*\ngrant grt_.*\n {2}shop\/orders\ncredential cached in /s);
    assert.ok(existsSync(join(cache, 'clients', `${new URL(serverOrigin).host.replace(':', '_')}.json`)));
    assert.match(run('pdpp', 'whoami', serverOrigin, '--cache-root', cache), /stream +shop\/orders/);
  }, { colorScheme: 'dark' });

  await check('only the owner can decide', async (page, context) => {
    const pushed = (await post('/oauth/par', { client_id: 'longview', authorization_details: mail })).body;
    const review = await post('/consent/review', { request_uri: pushed.request_uri });
    assert.equal(review.status, 401);
    assert.equal(review.body.error.code, 'owner_session_required');
    await page.goto(pushed.authorization_url);
    await signIn(page);
    // A form on another site, posted with the owner's cookies.
    const otherSite = createServer((_, response) => response.setHeader('content-type', 'text/html').end(
      `<form method="post" action="${serverOrigin}/consent/review"><input name="request_uri" value="${pushed.request_uri}"><input name="source" value="0"><button>Win</button></form>`));
    await new Promise((listening) => otherSite.listen(0, '127.0.0.1', listening));
    // From another site the session cookie is not sent; from another origin on the same host the form's CSRF token is missing.
    for (const [host, message] of [['localhost', /has to sign in/], ['127.0.0.1', /not sent by one of our pages/]]) {
      const other = await context.newPage();
      await other.goto(`http://${host}:${otherSite.address().port}/`);
      await other.getByRole('button', { name: 'Win' }).click();
      await other.getByRole('heading', { name: 'The request failed' }).waitFor();
      assert.match(await other.getByRole('main').innerText(), message);
    }
    otherSite.close();
    // Another site cannot frame the page.
    const framing = createServer((_, response) => response.setHeader('content-type', 'text/html').end(`<iframe src="${pushed.authorization_url}"></iframe>`));
    await new Promise((listening) => framing.listen(0, '127.0.0.1', listening));
    const framed = await context.newPage();
    await framed.goto(`http://127.0.0.1:${framing.address().port}/`);
    const inside = framed.frames()[1];
    assert.ok(!inside || !(await inside.content()).includes('Shelf Finder'));
    framing.close();
    // An unknown address has a page of the same style.
    assert.equal((await page.goto(`${serverOrigin}/owner/nothing`)).status(), 404);
    await page.getByRole('heading', { name: 'Not found' }).waitFor();
    await checkPage(page, 'not-found');
    // Signing out ends the session.
    await page.goto(`${serverOrigin}/owner/grants`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.goto(`${serverOrigin}/owner/grants`);
    assert.match(page.url(), /\/owner\/login/);
  });

  console.log(`${checks.length} checks; screenshots are in ${screenshots}`);
} finally {
  for (const cleanup of cleanups.reverse()) await cleanup();
  rmSync(home, { recursive: true, force: true });
}
