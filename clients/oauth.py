#!/usr/bin/env python3
"""The whole way to access, gone by the OAuth clients of the Python SDK and of the Rust SDK.

    oauth.py RUNG RUST-CLIENT

RUNG is the binary, RUST-CLIENT the one that is built of rmcp-oauth. Each SDK finds out by itself where access is asked for,
registers, proves with PKCE who asks, exchanges the code, calls a tool, and refreshes. This file only plays the owner, who signs
in and picks in a browser.
"""

import asyncio
import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse

import httpx2
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

PASSWORD = "correct horse battery"
REDIRECT = "http://127.0.0.1:9/callback"


class Kept:
    """Where the SDK keeps what it was given."""

    def __init__(self):
        self.tokens = self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Owner:
    """Signs in, picks two sources, and is sent back to where the application waits."""

    def __init__(self):
        self.browser = httpx2.AsyncClient(headers={"accept": "text/html"}, follow_redirects=True)
        self.back = None

    async def decide(self, url):
        page = await self.browser.get(url)
        if "/owner/login" in str(page.url):
            form = self.hidden(page.text) | {"password": PASSWORD}
            page = await self.browser.post(urllib.parse.urljoin(str(page.url), "/owner/login"), data=form)
        assert "asks to read what you choose" in page.text, page.text
        here = str(page.url)
        form = self.hidden(page.text) | {"source": ["0", "1"], "access_mode": "continuous"}
        for name, value in re.findall(r'name="((?:stream|field|connection|connector)\.[^"]+)" value="([^"]+)"', page.text):
            form.setdefault(name, []).append(value)
        page = await self.browser.post(urllib.parse.urljoin(here, "/consent/review"), data=form)
        assert "will be able to read this" in page.text, page.text
        answer = await self.browser.post(
            urllib.parse.urljoin(here, "/consent/approve"), data=self.hidden(page.text), follow_redirects=False
        )
        assert answer.status_code == 302, answer.text
        self.back = answer.headers["location"]
        assert self.back.startswith(REDIRECT), self.back

    async def returned(self):
        said = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.back).query))
        return AuthorizationCodeResult(code=said["code"], state=said["state"], iss=said["iss"])

    @staticmethod
    def hidden(html):
        found = re.findall(r'<input type="hidden" name="([^".]+)" value="([^"]*)"', html)
        return {name: value for name, value in found}


async def call(provider, auth, want):
    async with httpx2.AsyncClient(auth=auth, timeout=30) as http:
        async with streamable_http_client(f"{provider}/mcp", http_client=http) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                tools = [tool.name for tool in (await session.list_tools()).tools]
                assert tools == ["schema", "query_records", "aggregate", "search", "fetch", "read_record_field"], tools
                schema = (await session.call_tool("schema", {})).structured_content["data"]
                assert want(schema), schema
                found = await session.call_tool("search", {"q": "room", "limit": 4})
                hits = found.structured_content["results"]
                fetched = await session.call_tool("fetch", {"id": hits[0]["id"]})
                assert fetched.structured_content["id"] == hits[0]["id"], fetched
                return schema


async def journey(provider):
    kept, owner = Kept(), Owner()
    metadata = OAuthClientMetadata(client_name="Python SDK", redirect_uris=[REDIRECT])
    auth = OAuthClientProvider(f"{provider}/mcp", metadata, kept, owner.decide, owner.returned)
    said = await call(provider, auth, lambda said: said["bearer"]["token_kind"] == "mcp_package")
    assert said["connector_count"] == 2, said
    assert kept.tokens.refresh_token and kept.tokens.expires_in == 600, kept.tokens
    print("passed  Python SDK: discovery, registration, PKCE, code, call")

    # A token that is over is refreshed without asking the owner.
    first, owner.back = kept.tokens, None
    auth.context.token_expiry_time = 1
    await call(provider, auth, lambda said: said["connector_count"] == 2)
    assert owner.back is None, "the owner was asked again"
    assert kept.tokens.access_token != first.access_token
    print("passed  Python SDK: a token that is over is refreshed, without the owner")

    # The owner takes it back, and the SDK has to ask again.
    page = await owner.browser.get(f"{provider}/owner/grants")
    for grant in re.findall(r'/owner/grants/(grt_\w+)/revoke', page.text):
        await owner.browser.post(f"{provider}/owner/grants/{grant}/revoke", data=Owner.hidden(page.text))
    refused = httpx2.post(
        f"{provider}/mcp", json={}, headers={"authorization": f"Bearer {kept.tokens.access_token}"}
    )
    assert refused.status_code == 403 and "package_revoked" in refused.text, refused.text
    print("passed  Python SDK: what was taken back is refused")


async def other(provider, client):
    """The Rust SDK says where to go and waits to be told where the owner was sent."""
    owner = Owner()
    process = await asyncio.create_subprocess_exec(
        client, f"{provider}/mcp", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    await owner.decide((await process.stdout.readline()).decode().strip())
    out, _ = await process.communicate(f"{owner.back}\n".encode())
    assert process.returncode == 0 and b"passed" in out, out
    print("passed  Rust SDK: discovery, registration, PKCE, code, refresh, call")


def main():
    rung = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as ends:
        run = lambda *args, **more: subprocess.run([rung, *args, "--home", f"{home}/data"], cwd=home, check=True, capture_output=True, **more)
        run("demo", "--prepare")
        run("pdpp", "password", "--stdin", input=PASSWORD.encode())
        # With a token of its own the door asks everybody who they are.
        run("token", "new", "somebody")
        server = subprocess.Popen(
            [rung, "serve", "--listen", "127.0.0.1:0", "--home", f"{home}/data"], cwd=home, stderr=subprocess.PIPE, text=True
        )
        ends.callback(server.kill)
        for line in server.stderr:
            if found := re.match(r"listening at (http://[^/]+)/mcp", line):
                break
        asyncio.run(journey(found[1]))
        asyncio.run(other(found[1], pathlib.Path(sys.argv[2]).resolve()))


if __name__ == "__main__":
    main()
