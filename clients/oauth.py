#!/usr/bin/env python3
"""Run the whole authorization flow with the OAuth clients of the Python SDK and of the Rust SDK.

    oauth.py RUNG RUST-CLIENT

RUNG is the binary, RUST-CLIENT the binary built from rmcp-oauth. Each SDK discovers the authorization server, registers,
uses PKCE, exchanges the code, calls a tool, and refreshes its token. This file only acts as the owner, who signs in and
selects the data in a browser.
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


class TokenStorage:
    """Token storage of the Python SDK, in memory."""

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
    """An owner who signs in, selects two sources, and is redirected back to the client."""

    def __init__(self):
        self.browser = httpx2.AsyncClient(headers={"accept": "text/html"}, follow_redirects=True)
        self.redirected_to = None

    async def decide(self, url):
        page = await self.browser.get(url)
        if "/owner/login" in str(page.url):
            form = self.hidden_fields(page.text) | {"password": PASSWORD}
            page = await self.browser.post(urllib.parse.urljoin(str(page.url), "/owner/login"), data=form)
        assert "asks to read what you choose" in page.text, page.text
        page_url = str(page.url)
        form = self.hidden_fields(page.text) | {"source": ["0", "1"], "access_mode": "continuous"}
        for name, value in re.findall(r'name="((?:stream|field|connection|connector)\.[^"]+)" value="([^"]+)"', page.text):
            form.setdefault(name, []).append(value)
        page = await self.browser.post(urllib.parse.urljoin(page_url, "/consent/review"), data=form)
        assert "will be able to read this" in page.text, page.text
        response = await self.browser.post(
            urllib.parse.urljoin(page_url, "/consent/approve"), data=self.hidden_fields(page.text), follow_redirects=False
        )
        assert response.status_code == 302, response.text
        self.redirected_to = response.headers["location"]
        assert self.redirected_to.startswith(REDIRECT), self.redirected_to

    async def callback_result(self):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.redirected_to).query))
        return AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query["iss"])

    @staticmethod
    def hidden_fields(html):
        found = re.findall(r'<input type="hidden" name="([^".]+)" value="([^"]*)"', html)
        return {name: value for name, value in found}


async def check_tools(provider, auth, is_expected):
    async with httpx2.AsyncClient(auth=auth, timeout=30) as http:
        async with streamable_http_client(f"{provider}/mcp", http_client=http) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await session.initialize()
                tools = [tool.name for tool in (await session.list_tools()).tools]
                assert tools == ["schema", "query_records", "aggregate", "search", "fetch", "read_record_field"], tools
                schema = (await session.call_tool("schema", {})).structured_content["data"]
                assert is_expected(schema), schema
                found = await session.call_tool("search", {"q": "room", "limit": 4})
                hits = found.structured_content["results"]
                fetched = await session.call_tool("fetch", {"id": hits[0]["id"]})
                assert fetched.structured_content["id"] == hits[0]["id"], fetched
                return schema


async def check_python_sdk(provider):
    storage, owner = TokenStorage(), Owner()
    metadata = OAuthClientMetadata(client_name="Python SDK", redirect_uris=[REDIRECT])
    auth = OAuthClientProvider(f"{provider}/mcp", metadata, storage, owner.decide, owner.callback_result)
    schema = await check_tools(provider, auth, lambda schema: schema["bearer"]["token_kind"] == "mcp_package")
    assert schema["connector_count"] == 2, schema
    assert storage.tokens.refresh_token and storage.tokens.expires_in == 600, storage.tokens
    print("passed  Python SDK: discovery, registration, PKCE, code, call")

    # An expired token is refreshed without the owner.
    first_tokens, owner.redirected_to = storage.tokens, None
    auth.context.token_expiry_time = 1
    await check_tools(provider, auth, lambda schema: schema["connector_count"] == 2)
    assert owner.redirected_to is None, "the owner was asked again"
    assert storage.tokens.access_token != first_tokens.access_token
    print("passed  Python SDK: an expired token is refreshed without the owner")

    # After the owner revokes the grants, the token is rejected.
    page = await owner.browser.get(f"{provider}/owner/grants")
    for grant in re.findall(r'/owner/grants/(grt_\w+)/revoke', page.text):
        confirmation = await owner.browser.get(f"{provider}/owner/grants/{grant}/revoke")
        assert "Revoke access of" in confirmation.text, confirmation.text
        await owner.browser.post(str(confirmation.url), data=Owner.hidden_fields(confirmation.text))
    rejected = httpx2.post(
        f"{provider}/mcp", json={}, headers={"authorization": f"Bearer {storage.tokens.access_token}"}
    )
    assert rejected.status_code == 403 and "package_revoked" in rejected.text, rejected.text
    print("passed  Python SDK: a revoked grant is rejected")


async def check_rust_sdk(provider, client):
    """The Rust client prints the authorization URL and reads the redirect URL from stdin."""
    owner = Owner()
    process = await asyncio.create_subprocess_exec(
        client, f"{provider}/mcp", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    await owner.decide((await process.stdout.readline()).decode().strip())
    out, _ = await process.communicate(f"{owner.redirected_to}\n".encode())
    assert process.returncode == 0 and b"passed" in out, out
    print("passed  Rust SDK: discovery, registration, PKCE, code, refresh, call")


def main():
    rung = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as cleanup:
        run = lambda *args, **more: subprocess.run(
            [rung, *args, "--home", f"{home}/data"], cwd=home, check=True, capture_output=True, **more
        )
        run("demo", "--prepare")
        run("pdpp", "password", "--stdin", input=PASSWORD.encode())
        # Once a token exists, the server requires authentication.
        run("token", "new", "other")
        server = subprocess.Popen(
            [rung, "serve", "--listen", "127.0.0.1:0", "--home", f"{home}/data"], cwd=home, stderr=subprocess.PIPE, text=True
        )
        cleanup.callback(server.kill)
        for line in server.stderr:
            if found := re.match(r"listening at (http://[^/]+)/mcp", line):
                break
        asyncio.run(check_python_sdk(found[1]))
        asyncio.run(check_rust_sdk(found[1], pathlib.Path(sys.argv[2]).resolve()))


if __name__ == "__main__":
    main()
