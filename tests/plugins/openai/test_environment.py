"""What the environment says of connections, and whose they are."""

from __future__ import annotations

import anyio

from checkrein_openai import OpenAIConfig
from checkrein_openai.client import Connection
from checkrein_openai.config import resolve


def test_P4_two_endpoints_of_one_name_share_no_client():
    async def main() -> bool:
        at = [resolve("openai", OpenAIConfig(base_url=f"{scheme}://localhost/v1")) for scheme in ("http", "https")]
        first, second = map(Connection, at)
        return first.client() is second.client()

    assert not anyio.run(main)
